//! A tensor that can be in several sends at once has no way to be written.

use comm_api::{Communicator, Result, Tensor};

fn wrong(comm: &Communicator, mut tensor: Tensor) -> Result<()> {
    let work = comm.send_async(&tensor, 1)?;
    tensor.as_mut_bytes()?[0] = 1; //~ E0599
    work.wait()
}

fn main() {
    let _ = wrong;
}
