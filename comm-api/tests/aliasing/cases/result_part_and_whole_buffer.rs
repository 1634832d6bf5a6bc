//! The block that a reduce-scatter gives back is a borrow of the buffer.

use comm_api::{Communicator, ReduceOp, Result};

fn wrong(comm: &Communicator, buffer: &mut [f32]) -> Result<()> {
    let block = comm.reduce_scatter(buffer, ReduceOp::Sum)?;
    comm.all_reduce(buffer, ReduceOp::Sum)?; //~ E0499
    block[0] = 1.0;
    Ok(())
}

fn main() {
    let _ = wrong;
}
