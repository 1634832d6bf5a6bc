//! Control plane, communicator life, planner and execution of the `comm` library.
//!
//! The runtime knows transports as `dyn Transport` only; `comm-api` composes it with concrete ones.
//! From a call to the wire, the modules are, in this order: [`communicator`] (calls), `plan`
//! (algorithm and pieces), `lane` (order), `drive` and `wait` (who moves it, and how it waits),
//! `operation` (what is moved), `edge` (over which connection). [`control`] is how the ranks find
//! each other and learn of failures.
//!
//! ```
//! use comm_runtime::WaitPolicy;
//!
//! // Four ranks on two CPUs never spin: they give the CPU to each other.
//! assert_eq!(WaitPolicy::for_load(4, 2).spins, 0);
//! ```

mod abort;
mod at_once;
mod blocked;
mod call;
pub mod communicator;
pub mod control;
mod drive;
mod edge;
mod fork;
mod history;
mod lane;
mod operation;
mod plan;
mod region;
mod settings;
mod wait;
mod worker;

pub use communicator::frames::{Arrived, Frame, FrameHead, FrameOptions, FrameRef};
pub use communicator::{
    Caller, Communicator, CommunicatorBuilder, Explanation, TransportContext, TransportFactory,
    TransportTable,
};
pub use edge::connect::ConnectedEdge;
pub use plan::{Plan, PlanConfig, Request};
pub use region::MemStats;
pub use settings::{Setting, Settings, Source, variable};
pub use wait::WaitPolicy;
