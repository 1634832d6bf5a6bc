//! The connected edges of one lane, and how they come about.
//!
//! [`ends`] presents memory and message connections to the operations in one shape;
//! [`connect`] marks, sets up, exchanges, connects and proves edges over the control plane.

pub(crate) mod connect;
pub(crate) mod ends;
mod prove;
