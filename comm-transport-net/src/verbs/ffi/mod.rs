//! libibverbs: its structures, and the library loaded at run time.
//!
//! All of the unsafe code that talks to the library is here and in the files below. What is handed
//! out are owners ([`Context`], [`Queue`], [`Registration`]) whose methods are safe except where
//! they are given memory.

mod abi;
mod context;
mod library;
mod queue;

pub(crate) use abi::{Completion, Gid, PortAttributes, Status};
pub(crate) use context::{Context, Registration};
pub(crate) use library::Library;
pub(crate) use queue::{Attachment, Peer, Queue, Work};

#[cfg(test)]
pub(crate) mod layout;
