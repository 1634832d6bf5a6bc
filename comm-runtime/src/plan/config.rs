//! The sizes and limits that steer planning.

use comm_core::Algorithm;

/// The sizes and limits that steer planning; equal on all ranks.
///
/// This is the one table of constants that decide between algorithms. Sizes of messages are those
/// of the busiest rank's whole buffer: the bytes of one rank's block times the number of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanConfig {
    /// Capacity of one slot of an edge.
    pub step_bytes: usize,
    /// Channels of ring algorithms; double trees use twice as many.
    pub channels: u32,
    /// Largest message that goes in one round, times the number of ranks. Above, one round would
    /// move too much (all-reduce), load the root with too many copies (broadcast, reduce), or use
    /// more edges than it gains.
    pub one_shot_bytes: usize,
    /// Least number of ranks for which trees are preferred to rings: below, a ring has hardly more
    /// hops.
    pub tree_ranks: u32,
    /// Largest message that goes by trees: above, a ring's hops no longer count, and its chunks
    /// load every rank alike.
    pub tree_bytes: usize,
    /// Least number of bytes in a chunk of a tree, which otherwise has as many chunks as there are
    /// slots, so that all levels work at the same time.
    pub tree_chunk_bytes: usize,
    /// Algorithms that may be chosen; empty means all.
    pub algorithms: Vec<Algorithm>,
}

impl Default for PlanConfig {
    fn default() -> Self {
        Self {
            step_bytes: 64 << 10,
            channels: 1,
            one_shot_bytes: 64 << 10,
            tree_ranks: 8,
            tree_bytes: 1 << 20,
            tree_chunk_bytes: 8 << 10,
            algorithms: Vec::new(),
        }
    }
}

impl PlanConfig {
    /// Whether an algorithm may be chosen.
    pub(super) fn allows(&self, algorithm: Algorithm) -> bool {
        self.algorithms.is_empty() || self.algorithms.contains(&algorithm)
    }
}
