//! Edges whose first transport fails: the next one is taken, with the reason in `explain()`, and what
//! was planned for the first one works all the same.

#![cfg(all(feature = "p2p", feature = "shm", target_os = "linux"))]

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use comm_api::{Algorithm, DType, Error, ErrorKind, OperationKind, ReduceOp, Result, Transport};
use comm_core::doorbell::{Doorbells, RingTarget};
use comm_core::fifo::{FifoLayout, FifoMemory};
use comm_core::{
    Capabilities, ConnInfo, ConnectHandle, Edge, RecvSetup, SendSetup, Verdict, async_trait,
};
use comm_runtime::control::rendezvous::LocalRendezvous;
use comm_runtime::{Communicator, CommunicatorBuilder, Request, Settings};
use comm_transport_p2p::P2pTransport;
use comm_transport_shm::ShmTransport;

/// How long a test may take before it counts as stuck.
const WATCHDOG: Duration = Duration::from_secs(120);

/// How the edge from rank 0 to rank 1 goes wrong.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The sender writes to memory that the receiver does not read.
    Lost,
    /// Another page arrives than was sent.
    Changed,
    /// The sending end cannot be set up.
    Refused,
    /// Setting the sending end up panics.
    Panics,
}

/// The transport between threads, apart from one edge.
#[derive(Debug)]
struct Faulty {
    inner: P2pTransport,
    fault: Fault,
}

#[derive(Debug)]
struct FaultySend {
    inner: Box<dyn SendSetup>,
    fault: Fault,
}

#[async_trait]
impl Transport for Faulty {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn facts(&self) -> Result<bytes::Bytes> {
        self.inner.facts()
    }

    fn can_connect(&self, edge: &Edge<'_>) -> Verdict {
        self.inner.can_connect(edge)
    }

    async fn setup_send(&self, edge: &Edge<'_>, deadline: Instant) -> Result<Box<dyn SendSetup>> {
        let inner = self.inner.setup_send(edge, deadline).await?;
        if (edge.sender.rank, edge.receiver.rank) != (0, 1) {
            return Ok(inner);
        }
        match self.fault {
            Fault::Refused => {
                return Err(Error::new(ErrorKind::Unavailable, "the fault of the test"));
            }
            Fault::Panics => panic!("the fault of the test"),
            Fault::Lost | Fault::Changed => {}
        }
        let fault = self.fault;
        Ok(Box::new(FaultySend { inner, fault }))
    }

    async fn setup_recv(&self, edge: &Edge<'_>, deadline: Instant) -> Result<Box<dyn RecvSetup>> {
        self.inner.setup_recv(edge, deadline).await
    }
}

#[async_trait]
impl SendSetup for FaultySend {
    fn handle(&mut self) -> Result<ConnectHandle> {
        self.inner.handle()
    }

    async fn connect(
        self: Box<Self>,
        remote: ConnectHandle,
        deadline: Instant,
    ) -> Result<ConnInfo> {
        let conn = self.inner.connect(remote, deadline).await?;
        let ConnInfo::MemorySend(mut real) = conn else {
            return Err(Error::new(ErrorKind::Internal, "not an edge of memory"));
        };
        if let Fault::Changed = self.fault {
            // A step of somebody else's comes first.
            real.try_send_small(&[1, 2, 3], 7)?;
            return Ok(ConnInfo::MemorySend(real));
        }
        let bells = RingTarget::Local(Doorbells::local());
        let memory = FifoMemory::heap(FifoLayout::new(64 << 10)?);
        let (sender, receiver) = memory.into_ends(bells.clone(), bells);
        // Nobody may learn from a closed end that something is wrong.
        std::mem::forget((real, receiver));
        Ok(ConnInfo::MemorySend(sender))
    }
}

/// Joins three ranks, whose edge from 0 to 1 fails over the first transport, as threads, and runs
/// `body` on each.
fn on_three_ranks(fault: Fault, body: fn(&Communicator) -> Result<()>) {
    let table = Arc::new(LocalRendezvous::new());
    let (sender, results) = mpsc::channel();
    for rank in 0..3 {
        let (table, sender) = (Arc::clone(&table), sender.clone());
        thread::spawn(move || {
            let joined = join(rank, fault, table);
            let result = joined.and_then(|comm| body(&comm).map(|()| comm));
            // Every rank keeps its communicator until all are done.
            sender.send(result).expect("the test waits");
        });
    }
    drop(sender);
    let results: Vec<_> = (0..3)
        .map(|_| {
            results
                .recv_timeout(WATCHDOG)
                .expect("a rank panicked or is stuck")
        })
        .collect();
    for result in results {
        result.unwrap();
    }
}

fn join(rank: u32, fault: Fault, table: Arc<LocalRendezvous>) -> Result<Communicator> {
    let mut settings = Settings::default();
    if let Fault::Lost = fault {
        // The edge that is lost takes all of it; every other one must be connected by then.
        settings.connect_timeout = Duration::from_secs(5);
    }
    CommunicatorBuilder::new()
        .settings(settings)
        .rank(rank, 3)
        .rendezvous(table)
        .transport("p2p", move |context| {
            Ok(Arc::new(Faulty {
                inner: P2pTransport::new(Arc::clone(&context.doorbells)),
                fault,
            }))
        })
        .transport("shm", |context| {
            Ok(Arc::new(ShmTransport::new(Arc::clone(&context.doorbells))))
        })
        .build()
}

/// Rank 0 passed `p2p` over on its way to rank 1, for this reason, and nowhere else.
fn passed_over_with(comm: &Communicator, reason: &str) {
    let edges = comm.explain().edges;
    for edge in &edges {
        let faulty = (comm.rank() == 0 && edge.sends && edge.peer == 1)
            || (comm.rank() == 1 && !edge.sends && edge.peer == 0);
        assert_eq!(
            edge.transport,
            if faulty { "shm" } else { "p2p" },
            "{edges:?}"
        );
        if faulty && edge.sends {
            let [(name, why)] = &edge.passed_over[..] else {
                panic!("{edges:?}")
            };
            assert!(name == "p2p" && why.contains(reason), "{why}");
        }
    }
}

#[test]
fn an_edge_that_loses_its_page_is_connected_by_the_next_transport() {
    on_three_ranks(Fault::Lost, |comm| {
        comm.all_reduce(&mut [1_u32; 4], ReduceOp::Sum)?;
        passed_over_with(comm, "before the deadline");
        comm.barrier()
    });
}

#[test]
fn an_edge_over_which_something_else_arrives_is_connected_by_the_next_transport() {
    on_three_ranks(Fault::Changed, |comm| {
        comm.all_reduce(&mut [1_u32; 4], ReduceOp::Sum)?;
        passed_over_with(comm, "could not prove the edge");
        comm.barrier()
    });
}

#[test]
fn an_edge_that_cannot_be_set_up_is_connected_by_the_next_transport() {
    on_three_ranks(Fault::Refused, |comm| {
        comm.all_reduce(&mut [1_u32; 4], ReduceOp::Sum)?;
        passed_over_with(comm, "the fault of the test");
        comm.barrier()
    });
}

#[test]
fn a_reduction_planned_on_shared_memory_works_where_an_edge_does_not_lead_there() {
    on_three_ranks(Fault::Refused, |comm| {
        const COUNT: usize = 1_000_003;
        let request = Request {
            kind: OperationKind::AllReduce,
            dtype: Some(DType::U32),
            op: Some(ReduceOp::Sum),
            root: 0,
            count: COUNT,
            in_place: true,
        };
        // The facts say that all ranks are threads of one process.
        let plan = comm.plan(&request)?;
        assert_eq!(plan.algorithm(), Algorithm::DirectShared);
        assert!(plan.to_string().contains("or by ring"), "{plan}");
        for round in 1..4 {
            let mut values: Vec<u32> = (0..COUNT as u32)
                .map(|at| at * round + comm.rank())
                .collect();
            comm.all_reduce(&mut values, ReduceOp::Sum)?;
            for (at, sum) in values.iter().enumerate() {
                assert_eq!(*sum, 3 * (at as u32 * round) + 3, "element {at}");
            }
        }
        comm.barrier()
    });
}

#[test]
fn a_transport_that_panics_ends_the_operation_that_waits_for_it_on_every_rank() {
    on_three_ranks(Fault::Panics, |comm| {
        let error = comm.barrier().unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
        Ok(())
    });
}
