//! Communication patterns that depend on counts alone: trees, rings, rounds.
//!
//! # Contract
//!
//! * Every function answers for one rank in constant or logarithmic time and memory (except where
//!   a whole ring is asked for), so plans of very large jobs need no tables.
//! * The answers are equal to NCCL's.

mod double_tree;
mod p2p;
mod ring;

pub use double_tree::{DoubleTree, TreeNode, double_tree};
pub use p2p::{P2pRound, P2pSchedule};
pub use ring::ring_order;
