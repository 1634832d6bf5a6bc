//! Registers a transport that is no part of the library, and uses nothing else.
//!
//! ```text
//! cargo xtask launch -n 2 -- target/release/examples/own_transport
//! ```

mod transport;

use std::sync::Arc;

use comm_api::{Builder, ReduceOp, Result};

use transport::{MemfileTransport, NAME};

fn main() -> Result<()> {
    let comm = Builder::from_env()?
        .transport(NAME, |context| {
            let doorbells = Arc::clone(&context.doorbells);
            Ok(Arc::new(MemfileTransport::new(doorbells)))
        })
        .only_transports([NAME])
        .build()?;
    let mut sum = vec![comm.rank(); 100_000];
    comm.all_reduce(&mut sum, ReduceOp::Sum)?;
    let edges = comm.explain().edges;
    assert!(edges.iter().all(|edge| edge.transport == NAME));
    println!("rank {}: {} edges by {NAME}", comm.rank(), edges.len());
    comm.barrier()
}
