//! The conformance suite between threads of one process, with one set of doorbells and with two.

use std::sync::Arc;

use comm_core::doorbell::Doorbells;
use comm_core::{HostId, ProcessId, Rank, Result};
use comm_testkit::transport::{TestRank, TransportFixture};
use comm_transport_p2p::P2pTransport;

fn rank(rank: Rank, doorbells: &Arc<Doorbells>) -> Result<TestRank> {
    let transport = Arc::new(P2pTransport::new(Arc::clone(doorbells)));
    let (host, process) = (HostId([1; 16]), ProcessId([2; 16]));
    TestRank::new(rank, host, process, transport, Arc::clone(doorbells))
}

mod one_set_of_doorbells {
    use super::*;

    struct Threads;

    impl TransportFixture for Threads {
        fn ranks() -> Result<[TestRank; 2]> {
            let doorbells = Doorbells::local();
            Ok([rank(0, &doorbells)?, rank(1, &doorbells)?])
        }
    }

    comm_testkit::transport_conformance!(Threads);
}

mod separate_doorbells {
    use super::*;

    struct Separate;

    impl TransportFixture for Separate {
        fn ranks() -> Result<[TestRank; 2]> {
            Ok([rank(0, &Doorbells::local())?, rank(1, &Doorbells::local())?])
        }
    }

    comm_testkit::transport_conformance!(Separate);
}
