//! Control plane and rendezvous: how the ranks of a job find each other and stay in touch.
//!
//! # Contract
//!
//! * Everything here is set-up and failure handling; no payload of an operation passes through.
//! * One listener set, one descriptor socket and one thread per process ([`Process`]), however
//!   many ranks and communicators it has.
//! * After the join no rank is special: links of a rank lead to rank + 1, 2, 4, ..., allgather and
//!   barrier take ceil(log2 n) rounds over them, failures are flooded over them.
//! * Nobody gets in without the job secret, and nothing that arrives from outside the job can
//!   disturb it.
//! * Every wait has a deadline, and every error names who is concerned.

mod allgather;
mod core;
mod dial;
mod environment;
mod failure;
mod fd_socket;
mod ffi;
mod frame;
mod hello;
pub(crate) mod host;
mod interfaces;
mod join;
mod limits;
mod link;
mod listener;
mod liveness;
mod member;
mod plane;
mod process;
pub mod rendezvous;
mod secret;
mod settings;

pub use environment::{LaunchEnvironment, Launcher};
pub use failure::Failure;
pub(crate) use failure::WireFailure;
pub use fd_socket::MAX_FDS;
pub use interfaces::InterfaceFilter;
pub use join::{DEFAULT_JOIN_TIMEOUT, JoinOptions};
pub use listener::Ports;
pub use liveness::Heartbeat;
pub use plane::{ControlHandler, ControlPlane, Message};
pub use process::{LINGER_LIMIT, ListenScope, Process, ProcessOptions};
pub use secret::JobSecret;
pub use settings::ControlSettings;
