//! Two operations cannot write to one tensor.

use comm_api::{Communicator, Result, TensorMut};

fn wrong(comm: &Communicator, tensor: TensorMut) -> Result<()> {
    let one = comm.recv_async(tensor, 0)?;
    let other = comm.broadcast_async(tensor, 0)?; //~ E0382
    one.wait()?;
    other.wait()
}

fn main() {
    let _ = wrong;
}
