//! The suite of transports over TCP.

use std::sync::Arc;

use comm_core::doorbell::Doorbells;
use comm_core::{HostId, ProcessId, Result};
use comm_testkit::transport::{TestRank, TransportFixture};
use comm_transport_net::tcp::{TcpBackend, TcpOptions};
use comm_transport_net::{NetOptions, NetTransport};

/// More than the kernel lets a socket have for sending and receiving.
const KERNEL_BYTES: usize = 64 << 20;

fn ranks(options: &TcpOptions) -> Result<[TestRank; 2]> {
    let rank = |rank: u32| {
        let backend = Arc::new(TcpBackend::new(options.clone())?);
        let transport = Arc::new(NetTransport::new(backend, NetOptions::default())?);
        // Two processes of one host, as far as the transport can tell.
        let (host, process) = (HostId([1; 16]), ProcessId([rank as u8; 16]));
        TestRank::new(rank, host, process, transport, Doorbells::local())
    };
    Ok([rank(0)?, rank(1)?])
}

mod with_one_socket {
    use super::*;

    struct OverTcp;

    impl TransportFixture for OverTcp {
        fn ranks() -> Result<[TestRank; 2]> {
            ranks(&TcpOptions::new())
        }

        fn network_buffer_bytes() -> usize {
            KERNEL_BYTES
        }
    }

    comm_testkit::transport_conformance!(OverTcp);
}

mod striped {
    use super::*;

    struct OverTcp;

    impl TransportFixture for OverTcp {
        fn ranks() -> Result<[TestRank; 2]> {
            let options = TcpOptions::new().sockets(3).stripe_bytes(1000);
            ranks(&options.buffer_bytes(Some(16 << 10)))
        }

        fn network_buffer_bytes() -> usize {
            KERNEL_BYTES
        }
    }

    comm_testkit::transport_conformance!(OverTcp);
}
