//! The TCP backend: its contract, and the NET transport over it.
#![cfg(feature = "tcp")]

mod conformance;
mod connecting;
mod processes;
mod striping;
mod transport;
