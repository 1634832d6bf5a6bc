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

use comm_core::Error;

/// Marks errors of a join that an earlier start of the same rank or job may explain.
pub(crate) const EARLIER_START: &str = "earlier_start";

/// Whether a join failed over something that an earlier start of the same ranks may have left: a
/// place that is taken by a process of which it is not known that it lives, or an address at which
/// the member is not any more.
#[must_use]
pub fn may_be_an_earlier_start(error: &Error) -> bool {
    error.context().any(|(key, _)| key == EARLIER_START)
}

pub use environment::{LaunchEnvironment, Launcher};
pub use failure::Failure;
pub(crate) use failure::{FAILED_RANK, WireFailure};
pub use fd_socket::MAX_FDS;
pub use interfaces::InterfaceFilter;
pub(crate) use join::WORLD;
pub use join::{DEFAULT_JOIN_TIMEOUT, JoinOptions};
pub use listener::Ports;
pub use liveness::Heartbeat;
pub use plane::{ControlHandler, ControlPlane, Message};
pub use process::{LINGER_LIMIT, ListenScope, Process, ProcessOptions};
pub use secret::JobSecret;
pub use settings::ControlSettings;
pub(crate) use settings::LONGEST_WAIT;
