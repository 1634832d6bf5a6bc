//! A view of a tensor ends before the tensor is given away.

use comm_api::{Communicator, Result, TensorMut};

fn wrong(comm: &Communicator, mut tensor: TensorMut) -> Result<()> {
    let view = tensor.as_mut_slice::<f32>()?;
    let work = comm.recv_async(tensor, 0)?; //~ E0505
    view[0] = 1.0;
    work.wait()
}

fn main() {
    let _ = wrong;
}
