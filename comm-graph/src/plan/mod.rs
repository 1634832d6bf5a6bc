//! Channels over several hosts: who is next to whom, for every rank and channel.
//!
//! # Contract
//!
//! * A [`Plan`] is computed from the hosts' systems and the ranks on them alone; ranks that hold
//!   the same facts hold equal plans, which [`Plan::fingerprint`] lets them compare.
//! * Hosts may differ in everything. Equal hosts are searched once; memory is linear in ranks (a
//!   few bytes each), neighbours are computed when asked for.
//! * Neighbours agree on both ends: if `b` is `a`'s next, `a` is `b`'s previous; if `b` is a child
//!   of `a`, `a` is `b`'s parent. [`Plan::validate`] proves it for all ranks in one linear pass.
//! * A *node* is a connectivity domain (see [`path`](crate::path)): usually a host, part of a host
//!   where devices reach each other only through the network.

mod align;
mod check;
mod duplicate;
mod host;
mod nodes;
mod view;

pub use align::CommonGraph;
pub use host::{HostPlan, RankFacts, plan_for_hosts};
pub use nodes::{DomainClass, HostRanks, Plan};
pub use view::{ChannelView, RingView, TreeView};
