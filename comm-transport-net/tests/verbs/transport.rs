//! The suite of transports over RDMA.

use std::sync::Arc;

use comm_core::doorbell::Doorbells;
use comm_core::{HostId, ProcessId, Result};
use comm_testkit::transport::{TestRank, TransportFixture};
use comm_transport_net::verbs::{VerbsBackend, VerbsOptions};
use comm_transport_net::{NetOptions, NetTransport};

struct OverVerbs;

impl TransportFixture for OverVerbs {
    fn ranks() -> Result<[TestRank; 2]> {
        let rank = |rank: u32| {
            let backend = Arc::new(VerbsBackend::new(VerbsOptions::new())?);
            let transport = Arc::new(NetTransport::new(backend, NetOptions::default())?);
            // Two processes of one host, as far as the transport can tell.
            let (host, process) = (HostId([1; 16]), ProcessId([rank as u8; 16]));
            TestRank::new(rank, host, process, transport, Doorbells::local())
        };
        Ok([rank(0)?, rank(1)?])
    }

    fn step_bytes() -> Vec<usize> {
        // A soft card moves some 20 MB/s.
        vec![4096, 64, 64 * 1024]
    }

    fn unavailable() -> Option<String> {
        crate::lacking()
    }
}

comm_testkit::transport_conformance!(OverVerbs);
