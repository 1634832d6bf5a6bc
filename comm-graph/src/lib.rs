//! Pure functions from a machine's topology to the channels of its communicators.
//!
//! # Contract
//!
//! * Everything here is a function of its arguments: no environment, clock, file or thread state
//!   is read. Equal inputs give equal results on every rank, so ranks that exchanged their facts
//!   need no leader to agree on a plan.
//! * Any input ends in a value or an [`Error`](comm_core::Error); malformed files and absurd
//!   numbers never panic.
//! * Bandwidths are GB/s (1e9 bytes per second), times are microseconds, unless a name says
//!   otherwise.
#![forbid(unsafe_code)]

pub mod model;
mod options;
pub mod path;
pub mod pattern;
pub mod plan;
pub mod report;
pub mod search;
pub mod tuning;
pub mod xml;

pub use options::{CrossNic, NetDevsPolicy, Options};
