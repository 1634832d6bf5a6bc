//! Sends a message back and forth between the first and the last rank and prints the latency.
//!
//! ```text
//! cargo xtask launch -n 2 -- target/release/examples/ping_pong
//! ```

use std::time::Instant;

use comm_api::{Communicator, Error, ErrorKind, Result};

const ROUNDS: u32 = 10_000;

fn main() -> Result<()> {
    let comm = Communicator::from_env()?;
    let (rank, last) = (comm.rank(), comm.world_size() - 1);
    if last == 0 {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            "a ping-pong needs two ranks; start it with -n 2",
        ));
    }
    let mut message = [0_u64];
    // The first message connects the two ranks, which takes longer than all others together.
    for timed in [false, true] {
        let rounds = if timed { ROUNDS } else { 1 };
        let start = Instant::now();
        for round in 0..rounds {
            if rank == 0 {
                comm.send(&[u64::from(round)], last)?;
                comm.recv(&mut message, last)?;
                assert_eq!(message, [u64::from(round) + 1]);
            } else if rank == last {
                comm.recv(&mut message, 0)?;
                comm.send(&[message[0] + 1], 0)?;
            }
        }
        if timed && rank == 0 {
            let half = start.elapsed() / (2 * rounds);
            println!("8 bytes from rank 0 to rank {last}: {half:?}");
        }
    }
    comm.barrier()
}
