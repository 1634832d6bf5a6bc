//! The NET transport: edges between processes over any [`NetBackend`](comm_core::net::NetBackend).
//!
//! # Contract
//!
//! * [`NetTransport`] is a [`Transport`](comm_core::Transport). Each edge is one connection of the
//!   backend and carries steps as messages: a 64-byte header (little-endian: magic and version,
//!   step number, length, hash and packed signature) and the payload. A short step is a short
//!   message.
//! * **Memory.** Each end owns 8 registered slots of `step_bytes` and a header. The receiving end
//!   keeps all its free slots posted; that and the backend's back-pressure are the credit, so
//!   nothing grows. [`NetTransport::mem_stats`] counts what there is.
//! * **Driving.** A backend has one engine per process: whoever waits drives it, under a lock that
//!   nobody waits for. A thread of its own ("comm-net-engine") stands in while all who wait are
//!   asleep or nobody waits; it sleeps on the backend's descriptor and rings the doorbells of the
//!   ends that can go on. Only for backends without a descriptor does it look every now and then,
//!   and only while somebody is asleep.
//! * **Set-up** never blocks a thread: its futures are woken by the engine and end by their
//!   deadline.
//! * **Failure.** An error names the edge, the peer, the backend and the device. Steps that had
//!   arrived before are still handed out.
//! * **Dropping** an end returns at once. The engine goes on sending what was published for
//!   [`NetOptions::linger`], then withdraws the rest. Memory that the network may still touch
//!   after that is *quarantined*: leaked and counted, never handed back.

mod closing;
mod end;
mod engine;
mod facts;
mod handle;
mod header;
mod place;
mod pool;
mod recv;
mod send;
mod setup;
mod stats;
#[cfg(feature = "tcp")]
pub mod tcp;
mod transport;
#[cfg(feature = "verbs")]
pub mod verbs;

pub use stats::MemStats;
pub use transport::{NetOptions, NetTransport};
