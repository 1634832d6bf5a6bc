//! Search for channels inside one connectivity domain.
//!
//! # Contract
//!
//! * [`search`] places as many channels of one pattern as it can at the highest speed it can,
//!   reserving bandwidth on every link a channel uses: no link carries more than it has, except in
//!   the last resort (one channel in system order at 0.1 GB/s when nothing fits).
//! * The search is bounded by step counts, not by time, so every rank finds the same channels.
//! * Objective: `channels x bw_intra`, then fewer hops. The order in which candidates are tried
//!   follows NCCL 2.30, whose results are therefore reached.

mod budget;
mod candidate;
mod compute;
mod nets;
mod order;
mod place;
mod ports;
mod reserve;
mod speeds;
mod survey;

pub use candidate::{ChannelGraph, Graph, Pattern};
pub use compute::{Limits, MAX_CHANNELS, search};
