//! The conformance suite over shared memory: between threads, and as between processes.

#![cfg(target_os = "linux")]

use std::sync::Arc;

use comm_core::doorbell::Doorbells;
use comm_core::{HostId, ProcessId, Rank, Result};
use comm_testkit::transport::{TestRank, TransportFixture};
use comm_transport_shm::ShmTransport;

fn rank(rank: Rank, process: u8, doorbells: &Arc<Doorbells>) -> Result<TestRank> {
    let transport = Arc::new(ShmTransport::new(Arc::clone(doorbells)));
    let process = ProcessId([process; 16]);
    TestRank::new(
        rank,
        HostId([1; 16]),
        process,
        transport,
        Arc::clone(doorbells),
    )
}

mod threads_of_one_process {
    use super::*;

    struct Threads;

    impl TransportFixture for Threads {
        fn ranks() -> Result<[TestRank; 2]> {
            let doorbells = Doorbells::shared()?;
            Ok([rank(0, 1, &doorbells)?, rank(1, 1, &doorbells)?])
        }
    }

    comm_testkit::transport_conformance!(Threads);
}

/// Each rank has its own doorbells, so each rings the other one's through a mapping.
mod separate_doorbells {
    use super::*;

    struct Processes;

    impl TransportFixture for Processes {
        fn ranks() -> Result<[TestRank; 2]> {
            Ok([
                rank(0, 1, &Doorbells::shared()?)?,
                rank(1, 2, &Doorbells::shared()?)?,
            ])
        }
    }

    comm_testkit::transport_conformance!(Processes);
}

/// The weaker promise is still the whole contract of transports.
#[cfg(feature = "named")]
mod named_segments {
    use comm_transport_shm::NamedDoorbells;

    use super::*;

    struct Named;

    impl TransportFixture for Named {
        fn ranks() -> Result<[TestRank; 2]> {
            let doorbells = NamedDoorbells::of_process("conformance")?;
            let rank = |rank: Rank, process: u8| {
                let transport = Arc::new(ShmTransport::named(doorbells.clone(), "conformance"));
                let process = ProcessId([process; 16]);
                let bells = Arc::clone(doorbells.doorbells());
                TestRank::new(rank, HostId([1; 16]), process, transport, bells)
            };
            Ok([rank(0, 1)?, rank(1, 2)?])
        }
    }

    comm_testkit::transport_conformance!(Named);
}
