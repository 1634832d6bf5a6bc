//! Input and output of one call do not overlap.

use comm_api::{Communicator, ReduceOp, Result};

fn wrong(comm: &Communicator, buffer: &mut [f32]) -> Result<()> {
    comm.all_reduce_into(buffer, buffer, ReduceOp::Sum) //~ E0502
}

fn main() {
    let _ = wrong;
}
