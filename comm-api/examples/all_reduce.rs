//! All-reduces 16 MiB over all ranks and checks every element.
//!
//! ```text
//! cargo xtask launch -n 4 -- target/release/examples/all_reduce
//! ```

use comm_api::{Communicator, ReduceOp, Result};

fn main() -> Result<()> {
    let comm = Communicator::from_env()?;
    let mut gradients = vec![comm.rank() as f32 + 1.0; 4 << 20];
    comm.all_reduce(&mut gradients, ReduceOp::Sum)?;
    let n = comm.world_size();
    let expected = (n * (n + 1) / 2) as f32;
    assert!(
        gradients.iter().all(|sum| *sum == expected),
        "a sum is wrong"
    );
    println!(
        "rank {} of {n}: every one of {} sums is {expected}",
        comm.rank(),
        gradients.len()
    );
    comm.barrier()
}
