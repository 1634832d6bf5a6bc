//! Paths between all endpoints, CPUs and networks, and the connectivity domains they form.
//!
//! # Contract
//!
//! * A [`Path`] has a kind, a bandwidth (the smallest on the way) and its links. Better means:
//!   nearer kind, then more bandwidth, then fewer hops.
//! * [`Topology::domains`] is the whole chain NCCL runs: best paths, rewriting where direct access is
//!   refused, network relays, and the split into domains whose ranks reach each other
//!   without a network. Each domain is a "node" to everything that follows.
//! * Paths are directed: sending to a network may be relayed where receiving is not.

mod compute;
mod kind;
mod local;
mod rules;
mod table;
mod topology;

pub use kind::PathKind;
pub use local::LocalNets;
pub use table::{Path, Paths};
pub use topology::Topology;

pub(crate) use local::nearest;
