//! Ordered point-to-point messages between the workers of a job.
//!
//! From a call to the wire, the modules are, in this order: [`worker`] and [`collective`] (who sends
//! to whom), [`group`] (order, completion, failures), [`message`] (what a value becomes), and the
//! frames of [`comm_runtime`], which carry it. [`compression`] is what may happen to its tensors on the
//! way. [`work`] is what asynchronous calls are made of.
//!
//! This crate knows no transport; `comm-api` brings them in.

#![forbid(unsafe_code)]

pub mod address;
pub mod collective;
pub mod compression;
mod connector;
pub mod group;
pub mod message;
mod options;
mod pool;
pub mod work;
pub mod worker;

pub use address::{RankPath, WorkerAddress};
pub use collective::Collective;
pub use comm_codec::{CodecChoice, CompressionBuilder, CompressionSettings};
pub use compression::CompressionStats;
pub use connector::TransportHook;
pub use group::CollectiveGroup;
pub use message::{MAX_PIGGYBACK_BYTES, MessageKind, Piggyback, Received, TensorDict};
pub use options::{Allocator, RecvOptions, SendOptions};
pub use work::{ChannelOrder, ChannelWork, CollWork, FuncWork, Replies, RequestId, RpcWork};
pub use worker::{DEFAULT_RECEIVE_POOL_BYTES, Worker, WorkerBuilder};
