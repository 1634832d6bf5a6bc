//! The connected edges of one lane, and how they come about.
//!
//! [`ends`] presents memory and message connections to the operations in one shape;
//! [`candidates`] says which transports may serve an edge, from the exchanged facts alone;
//! [`connect`] marks, sets up, exchanges, connects and proves edges over the control plane.

pub(crate) mod candidates;
pub(crate) mod connect;
pub(crate) mod ends;
mod prove;
