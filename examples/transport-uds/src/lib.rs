//! A network of one's own: messages over Unix-domain sockets, for the processes of one Linux host.
//!
//! This crate is an example to read and to copy; `docs/writing-a-transport.md` goes through it step
//! by step. It implements [`NetBackend`](comm_core::net::NetBackend) and needs nothing of the
//! library but `comm-core`. A program registers it with the builder:
//!
//! ```rust,ignore
//! let comm = Builder::from_env()?
//!     .net_backend(transport_uds::NAME, |_| Ok(Arc::new(UdsBackend::new()?)))
//!     .build()?;
//! ```
//!
//! # Contract
//!
//! Beside the clauses N1 to N17 of [`comm_core::net`]:
//!
//! * **One stream socket per connection**, in the sending direction only. A message is its length
//!   in 8 bytes (little-endian), then its contents.
//! * **Inline progress.** `isend`, `irecv` and `test` do the system calls for their own connection;
//!   an epoll set serves those who sleep, and reports a socket only after a call found it wanting.
//! * **Who gets in.** A listener has a random name in the abstract namespace of the kernel, so
//!   nothing is left behind when a process is killed. The kernel tells both ends whose process the
//!   other is; those of other users are turned away. Processes of the same user are trusted, as
//!   they could read each other's memory anyway.
//! * **Memory.** Nothing is allocated for a message. A receiver reads no more than was posted for,
//!   so a sender that nobody receives from fills the kernel's buffers of one socket and then waits.
//! * **Failure.** A peer that sends a longer message than was posted for, or hangs up, fails its
//!   own connection and nothing else.

#![cfg(target_os = "linux")]

mod backend;
mod endpoint;
mod listener;
mod memory;
mod poller;
mod recv;
mod requests;
mod send;

pub use backend::{NAME, UdsBackend};
