//! The NET transport over the mock network keeps the contract of transports.
#![cfg(target_os = "linux")]

use std::sync::Arc;

use comm_core::doorbell::Doorbells;
use comm_core::{HostId, ProcessId, Result};
use comm_testkit::net::{MockConfig, MockFabric};
use comm_testkit::transport::{TestRank, TransportFixture};
use comm_transport_net::{NetOptions, NetTransport};

/// Two ranks with a card each.
struct OverMock;

impl TransportFixture for OverMock {
    fn ranks() -> Result<[TestRank; 2]> {
        let fabric = MockFabric::new(MockConfig::default())?;
        let rank = |rank| {
            let card = Arc::new(fabric.card()?);
            let transport = Arc::new(NetTransport::new(card, NetOptions::default())?);
            // The mock network reaches ranks of one process only.
            let (host, process) = (HostId([1; 16]), ProcessId([1; 16]));
            TestRank::new(rank, host, process, transport, Doorbells::local())
        };
        Ok([rank(0)?, rank(1)?])
    }
}

comm_testkit::transport_conformance!(OverMock);
