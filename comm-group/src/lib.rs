//! Ordered point-to-point messages between workers.

#![forbid(unsafe_code)]

pub mod address;
pub mod message;
pub mod work;

pub use address::{RankPath, WorkerAddress};
pub use message::{MAX_PIGGYBACK_BYTES, MessageKind, Piggyback, Received, TensorDict};
pub use work::{ChannelOrder, ChannelWork, CollWork, FuncWork, Replies, RequestId, RpcWork};
