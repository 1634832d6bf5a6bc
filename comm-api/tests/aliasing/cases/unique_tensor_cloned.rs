//! There is no second handle to a tensor that can be written.

use comm_api::{Communicator, Result, TensorMut};

fn wrong(comm: &Communicator, tensor: TensorMut) -> Result<()> {
    let work = comm.recv_async(tensor.clone(), 0)?; //~ E0599
    work.wait()
}

fn main() {
    let _ = wrong;
}
