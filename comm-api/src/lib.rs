//! Communicators for the processes of an ML job.
//!
//! ```
//! use comm_api::ReduceOp;
//!
//! // Two ranks as threads of this process; programs started by a launcher use
//! // `Communicator::from_env()` instead.
//! let comms = comm_api::init_all(2)?;
//! std::thread::scope(|scope| {
//!     for comm in &comms {
//!         scope.spawn(move || {
//!             let mut gradients = [comm.rank() as f32; 4];
//!             comm.all_reduce(&mut gradients, ReduceOp::Sum).expect("all_reduce failed");
//!             assert_eq!(gradients, [1.0; 4]);
//!         });
//!     }
//! });
//! # Ok::<(), comm_api::Error>(())
//! ```
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `p2p` (default) | direct access between ranks that are threads of one process |
//! | `shm` (default) | shared memory between the processes of one host (Linux) |
//! | `shm-named` | shared memory with names (`COMM_SHM_NAMED=1`), for containers |
//! | `tcp` (default) | TCP between the processes of any hosts; brings `net` |
//! | `verbs` | RDMA over InfiniBand and RoCE cards (`libibverbs`, loaded at run time); brings `net` |
//! | `net` | networks of your own, see [`Builder::net_backend`] |
//!
//! A feature adds a candidate for connecting two ranks. It can change the route of a message, never
//! its content.

#![forbid(unsafe_code)]

mod communicator;
mod debug;
mod environment;
#[cfg(any(feature = "tcp", feature = "verbs"))]
mod network;
#[cfg(all(feature = "shm", target_os = "linux"))]
mod shm;
#[cfg(feature = "tcp")]
mod tcp;
mod threads;
mod transports;
mod unread;
#[cfg(feature = "verbs")]
mod verbs;
mod worker;

pub use comm_core::{
    Algorithm, AsyncWork, DType, Element, Error, ErrorKind, MemoryKind, OperationKind, PeerInfo,
    Rank, ReduceOp, Rendezvous, Result, Retry, Storage, Tensor, TensorLayout, TensorMut, Transport,
    Waited, Work, parse_byte_size,
};
pub use comm_group::{
    Allocator, ChannelOrder, ChannelWork, CollWork, Collective, CollectiveGroup, FuncWork,
    MessageKind, Piggyback, RankPath, Received, RecvOptions, Replies, RequestId, RpcWork,
    SendOptions, TensorDict, WorkerAddress,
};
pub use comm_runtime::control::rendezvous::{LocalRendezvous, RendezvousAddress, UniqueId};
pub use comm_runtime::control::{
    ControlSettings, InterfaceFilter, JobSecret, LaunchEnvironment, Launcher, ListenScope, Ports,
    ProcessOptions,
};
pub use comm_runtime::{
    Arrived, ConnectedEdge, Explanation, Frame, FrameHead, FrameOptions, FrameRef, MemStats, Plan,
    PlanConfig, Request, Setting, Settings, Source, TransportContext, WaitPolicy, variable,
};
pub use half::{bf16, f16};

pub use communicator::{Builder, Communicator};
pub use threads::{init_all, init_all_with};
pub use transports::compiled_transports;
pub use unread::unread_variables;
pub use worker::{Worker, WorkerBuilder};

/// Compiles and runs the programs of the user guide as documentation tests.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../../docs/getting-started.md")]
    struct GettingStarted;
    #[doc = include_str!("../../docs/failure-handling.md")]
    struct FailureHandling;
    #[doc = include_str!("../../docs/point-to-point.md")]
    struct PointToPoint;
}
