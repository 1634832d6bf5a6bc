//! What is sent is frozen: the unique handle through which it could be written is gone.

use comm_api::{Communicator, Result, TensorMut};

fn wrong(comm: &Communicator, mut tensor: TensorMut) -> Result<()> {
    let work = comm.send_async(&tensor.freeze(), 1)?;
    tensor.as_mut_bytes()?[0] = 1; //~ E0382
    work.wait()
}

fn main() {
    let _ = wrong;
}
