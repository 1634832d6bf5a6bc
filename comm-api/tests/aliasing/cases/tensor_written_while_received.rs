//! A receive takes the tensor: until it is complete nobody else can write to it.

use comm_api::{Communicator, Result, TensorMut};

fn wrong(comm: &Communicator, mut tensor: TensorMut) -> Result<()> {
    let work = comm.recv_async(tensor, 0)?;
    tensor.as_mut_bytes()?[0] = 1; //~ E0382
    work.wait()
}

fn main() {
    let _ = wrong;
}
