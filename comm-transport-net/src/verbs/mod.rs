//! RDMA as a network: [`VerbsBackend`], a [`NetBackend`](comm_core::net::NetBackend) on reliable
//! connections of InfiniBand and RoCE cards.
//!
//! # Contract
//!
//! Beside the clauses N1 to N17 of [`comm_core::net`]:
//!
//! * **Loaded at run time.** rdma-core's `libibverbs.so.1` is looked for when a backend is made;
//!   nothing of it is needed to build. Without it, or without a card, [`VerbsBackend::new`] says
//!   which of the two is [`Unavailable`](comm_core::ErrorKind::Unavailable).
//! * **One queue pair for each connection**, with a completion queue of its own, so that one
//!   connection costs no other one anything. All of a device share one completion channel.
//! * **Set-up goes over TCP**: the listener's handle has the address of a socket and a token, the
//!   two sides tell each other their queues there. The socket stays open: its end is how the death
//!   of the peer's process is noticed at once, long before the card gives up retransmitting.
//! * **Back-pressure is the card's**: a message without a receive is asked for again and again by
//!   the card until there is one. Nothing is buffered.
//! * **Quiesce** destroys the queue pair, which returns when the card has left its memory. So the
//!   answer is always [`Quiesced`](comm_core::net::Quiesce::Quiesced).
//! * **Put** is an RDMA write. A window is a registration of its own, so that only memory for which
//!   one was asked can be written to.
//! * **Who gets in.** Who does not show the listener's token is closed. Contents are not encrypted
//!   and a card does not ask who it is that writes to it: the network must be trusted.

mod backend;
mod device;
mod dial;
mod ffi;
mod greeting;
mod link;
mod listener;
mod options;
mod ports;
mod requests;
mod shared;

pub use backend::VerbsBackend;
pub use options::VerbsOptions;
