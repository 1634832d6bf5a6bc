//! The suite against its reference implementation.

use std::sync::Arc;

use comm_core::doorbell::Doorbells;
use comm_core::{HostId, ProcessId, Result};
use comm_testkit::transport::{LoopbackTransport, TestRank, TransportFixture};

struct Threads;

impl TransportFixture for Threads {
    fn ranks() -> Result<[TestRank; 2]> {
        let bells = Doorbells::local();
        let rank = |rank| {
            let transport = Arc::new(LoopbackTransport::new(Arc::clone(&bells)));
            TestRank::new(
                rank,
                HostId([1; 16]),
                ProcessId([1; 16]),
                transport,
                Arc::clone(&bells),
            )
        };
        Ok([rank(0)?, rank(1)?])
    }
}

comm_testkit::transport_conformance!(Threads);
