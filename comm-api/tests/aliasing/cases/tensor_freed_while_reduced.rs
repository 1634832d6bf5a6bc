//! An operation owns its tensors: they cannot be freed under it.

use comm_api::{Communicator, ReduceOp, Result, TensorMut};

fn wrong(comm: &Communicator, tensor: TensorMut) -> Result<()> {
    let work = comm.all_reduce_async(tensor, ReduceOp::Sum)?;
    drop(tensor); //~ E0382
    work.wait()
}

fn main() {
    let _ = wrong;
}
