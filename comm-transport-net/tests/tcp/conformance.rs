//! The suite of network backends over IPv4 and IPv6, with one socket and with many.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use comm_core::Result;
use comm_core::net::NetBackend;
use comm_testkit::net::NetFixture;
use comm_transport_net::tcp::{TcpBackend, TcpOptions};

pub(crate) fn backends(options: &TcpOptions) -> Result<[Arc<dyn NetBackend>; 2]> {
    Ok([
        Arc::new(TcpBackend::new(options.clone())?),
        Arc::new(TcpBackend::new(options.clone())?),
    ])
}

pub(crate) fn on(address: impl Into<IpAddr>) -> TcpOptions {
    TcpOptions::new().addresses([address.into()])
}

mod over_ipv4 {
    use super::*;

    struct Tcp;

    impl NetFixture for Tcp {
        fn backends() -> Result<[Arc<dyn NetBackend>; 2]> {
            backends(&on(Ipv4Addr::LOCALHOST))
        }
    }

    comm_testkit::net_backend_conformance!(Tcp);
}

mod over_ipv6 {
    use super::*;

    struct Tcp;

    impl NetFixture for Tcp {
        fn backends() -> Result<[Arc<dyn NetBackend>; 2]> {
            backends(&on(Ipv6Addr::LOCALHOST))
        }
    }

    comm_testkit::net_backend_conformance!(Tcp);
}

mod within_one_backend {
    use super::*;

    struct Tcp;

    impl NetFixture for Tcp {
        fn backends() -> Result<[Arc<dyn NetBackend>; 2]> {
            let backend: Arc<dyn NetBackend> = Arc::new(TcpBackend::new(on(Ipv4Addr::LOCALHOST))?);
            Ok([Arc::clone(&backend), backend])
        }
    }

    // All clauses but N9, for which the two backends must differ.
    comm_testkit::net_backend_conformance! { @ Tcp:
        n1_a_connection_goes_from_connect_to_accept
        n1_every_connect_is_accepted_once
        n4_messages_arrive_in_order
        n6_a_longer_message_is_truncated
        n7_a_sender_that_is_not_received_from_is_held_up
        n11_quiesced_memory_is_left_alone
        n13_one_failed_connection_harms_no_other
        n14_a_dropped_receiver_fails_the_sender
        n14_messages_that_were_sent_before_are_received
        n15_any_thread_may_drive
        n16_an_idle_backend_lets_sleep
    }
}

mod striped_with_small_buffers {
    use super::*;

    struct Tcp;

    impl NetFixture for Tcp {
        fn backends() -> Result<[Arc<dyn NetBackend>; 2]> {
            let options = on(Ipv4Addr::LOCALHOST)
                .sockets(5)
                .stripe_bytes(100)
                .buffer_bytes(Some(4096));
            backends(&options)
        }
    }

    comm_testkit::net_backend_conformance!(Tcp);
}
