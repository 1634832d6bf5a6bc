//! TCP as a network: [`TcpBackend`], a [`NetBackend`](comm_core::net::NetBackend) on non-blocking
//! sockets.
//!
//! # Contract
//!
//! Beside the clauses N1 to N18 of [`comm_core::net`]:
//!
//! * **Sockets.** A connection has [`TcpOptions::sockets`] sockets. Messages of at least two
//!   [`TcpOptions::stripe_bytes`] are split over them in equal parts, all others use the first
//!   one. `TCP_NODELAY` and keep-alive are set.
//! * **Within a host** sockets use Reno as congestion control, whatever the system prefers: nothing is
//!   lost there, and an algorithm that sends at a measured rate only pauses in vain. Between hosts the
//!   system's choice stays.
//! * **Several addresses.** A sender tries the receiver's addresses in order, the next one a quarter of a
//!   second after the one before if that is silent, and takes the first that answers as the receiver.
//! * **Small messages** take one write, and one read if they have come whole.
//! * **Inline progress.** `isend` writes and `test` reads at once, so that a thread that waits for
//!   one connection polls its socket and nothing else. The event set (epoll on Linux) serves
//!   sleepers and set-up; it knows a socket's wish only after a call found the socket wanting, so
//!   the data path makes no system calls for it.
//! * **Memory.** Nothing is allocated for a message. Kernel buffers aside, each receiving end has
//!   8 KiB of its own.
//! * **Who gets in.** A handle contains the addresses of the receiver and two random 128-bit
//!   tokens of its listener. A connection that does not show the one is closed, logged and
//!   forgotten, whatever it sends; a receiver that does not answer with the other one is not the
//!   right one. Contents are not encrypted: the network must be trusted as far as that goes.
//! * **Failure.** A receiver that a message does not fit tells the sender so before it hangs up.
//!   A host that vanishes while data is on its way is noticed when the system gives up
//!   retransmitting, see [`TcpOptions::user_timeout`].

mod acceptor;
mod backend;
mod dial;
mod greeting;
mod listener;
mod memory;
mod options;
mod owner;
mod poller;
mod recv;
mod requests;
mod send;
mod shared;
mod socket;
mod staging;
mod stranger;
mod stripes;
mod wire;

pub use backend::TcpBackend;
pub use options::TcpOptions;
