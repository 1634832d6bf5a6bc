//! A receive takes the tensor: nobody sees it half filled.

use comm_api::{Communicator, Result, TensorMut};

fn wrong(comm: &Communicator, tensor: TensorMut) -> Result<u8> {
    let work = comm.recv_async(tensor, 0)?;
    let half = tensor.as_bytes()?[0]; //~ E0382
    work.wait()?;
    Ok(half)
}

fn main() {
    let _ = wrong;
}
