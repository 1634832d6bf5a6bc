//! The transport of the example and of `docs/writing-a-transport.md` against the whole contract.

#![cfg(target_os = "linux")]

#[path = "../examples/own_transport/transport.rs"]
mod transport;

use std::sync::Arc;

use comm_core::doorbell::Doorbells;
use comm_core::{HostId, ProcessId, Rank, Result};
use comm_testkit::transport::{TestRank, TransportFixture};

use transport::MemfileTransport;

/// Two ranks of one host that wait at doorbells of their own, as two processes do.
struct TwoProcesses;

impl TransportFixture for TwoProcesses {
    fn ranks() -> Result<[TestRank; 2]> {
        let rank = |rank: Rank, process: u8| {
            let doorbells = Doorbells::shared()?;
            let transport = Arc::new(MemfileTransport::new(Arc::clone(&doorbells)));
            let process = ProcessId([process; 16]);
            TestRank::new(rank, HostId([1; 16]), process, transport, doorbells)
        };
        Ok([rank(0, 1)?, rank(1, 2)?])
    }
}

comm_testkit::transport_conformance!(TwoProcesses);
