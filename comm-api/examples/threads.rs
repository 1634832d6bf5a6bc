//! Four ranks that are threads of one process: no launcher, no rendezvous, the same calls.
//!
//! ```text
//! cargo run --release --example threads
//! ```

use std::thread;

use comm_api::{Communicator, ReduceOp, Result};

fn main() -> Result<()> {
    // All ranks join before anything else happens; the k-th communicator is rank k's.
    let threads: Vec<_> = comm_api::init_all(4)?
        .into_iter()
        .map(|comm| thread::spawn(move || work(&comm)))
        .collect();
    for thread in threads {
        println!("{}", thread.join().expect("a rank panicked")?);
    }
    Ok(())
}

fn work(comm: &Communicator) -> Result<String> {
    let (rank, ranks) = (comm.rank(), comm.world_size());
    let mut largest = [f64::from(rank) * 10.0];
    comm.all_reduce(&mut largest, ReduceOp::Max)?;

    // Around a ring: everybody sends to the right and receives from the left.
    comm.send(&[rank], (rank + 1) % ranks)?;
    let mut left = [0_u32];
    comm.recv(&mut left, (rank + ranks - 1) % ranks)?;

    Ok(format!(
        "rank {rank} of {ranks}: the largest value is {}, my left neighbour is rank {}",
        largest[0], left[0]
    ))
}
