//! Schedules on double binary trees.
//!
//! The nodes of a tree are the places of the ranks, so that its edges are as near as those of a ring.
//!
//! Each tree takes half of the data. A rank is an inner node of one tree and a leaf of the other at
//! most, so both together load all ranks evenly. Source: P. Sanders, J. Speck, J. L. Träff,
//! "Two-tree algorithms for full bandwidth broadcast, reduction and scan" (2009). As there, an
//! operation with a root spans its trees over the other ranks and puts the root above both.

use comm_core::{Error, ErrorKind, Rank, Result};
use comm_graph::pattern::{DoubleTree, TreeNode, double_tree};

use super::schedule::{ALIGN_ELEMENTS, Lines, Schedule};
use super::{Flow, Method};
use crate::operation::program::{Part, Pipe, Program};

/// Chunks of a tree that are under way together, where the message is long enough.
const TREE_CHUNKS: usize = 8;

/// Channels are numbered in 64 bits, and a double tree takes two.
const MOST_TREE_PAIRS: u32 = 32;

impl Schedule<'_> {
    /// The parts of a double tree: two for each pair of trees, with chunks short enough that
    /// several are under way.
    fn tree_parts(&self) -> Vec<Part> {
        let useful = self.request.count.div_ceil(self.chunk_elements).max(2);
        let pairs = self.channels.clamp(1, MOST_TREE_PAIRS);
        let mut parts = self.parts(2 * pairs, useful);
        for part in &mut parts {
            part.chunk = (part.count / TREE_CHUNKS)
                .max(self.least_tree_chunk)
                .next_multiple_of(ALIGN_ELEMENTS)
                .min(self.chunk_elements);
        }
        parts
    }

    /// All-reduce: up each tree to its root and down again.
    pub(super) fn trees(&self) -> Result<(Vec<Flow>, Method)> {
        let mut lines = Lines::default();
        for (channel, part) in self.tree_parts().into_iter().enumerate() {
            let node = place(self.position_of(self.rank), self.world_size)?.trees[channel % 2];
            let children = node.children.into_iter().flatten();
            let children: Vec<Rank> = children.map(|child| self.rank_at(child)).collect();
            let up = Pipe {
                receives: children.len(),
                sends: 1,
                contributes: true,
                keeps: false,
                finishes: false,
                part,
            };
            match node.parent.map(|parent| self.rank_at(parent)) {
                None => {
                    let both = Pipe {
                        sends: children.len(),
                        keeps: true,
                        finishes: true,
                        ..up
                    };
                    lines.add(channel, children.clone(), children, Program::Pipe(both));
                }
                Some(parent) => {
                    let down = Pipe {
                        receives: 1,
                        sends: children.len(),
                        contributes: false,
                        keeps: true,
                        ..up
                    };
                    lines.add(channel, [parent], children.clone(), Program::Pipe(up));
                    lines.add(channel, children, [parent], Program::Pipe(down));
                }
            }
        }
        Ok(lines.done())
    }

    /// Broadcast and reduce: the trees span all ranks but the root, which is the parent of both
    /// trees' roots.
    pub(super) fn rooted_trees(&self, reduces: bool) -> Result<(Vec<Flow>, Method)> {
        let (n, root) = (self.world_size, self.position_of(self.request.root));
        // Nodes of the trees count from the place after the root's.
        let rank_of = |node: u32| self.rank_at(node + root + 1);
        let mut lines = Lines::default();
        for (channel, part) in self.tree_parts().into_iter().enumerate() {
            let tree = channel % 2;
            let (parent, children): (Vec<Rank>, Vec<Rank>) = if self.is_root() {
                (Vec::new(), vec![rank_of(tree_root(tree, n - 1)?)])
            } else {
                let node = (self.position_of(self.rank) + n - root - 1) % n;
                let node = place(node, n - 1)?.trees[tree];
                let children = node.children.into_iter().flatten().map(rank_of);
                (
                    vec![node.parent.map_or(self.request.root, rank_of)],
                    children.collect(),
                )
            };
            let at_root = self.is_root();
            let (sends_to, receives_from) = if reduces {
                (parent, children)
            } else {
                (children, parent)
            };
            let pipe = Pipe {
                receives: receives_from.len(),
                sends: sends_to.len(),
                contributes: reduces || at_root,
                keeps: if reduces {
                    at_root
                } else {
                    !at_root || self.copies()
                },
                finishes: reduces && at_root,
                part,
            };
            lines.add(channel, sends_to, receives_from, Program::Pipe(pipe));
        }
        Ok(lines.done())
    }
}

/// The place of a node in the double binary tree of Sanders, Speck and Träff (2009).
fn place(node: u32, count: u32) -> Result<DoubleTree> {
    double_tree(node, count).ok_or_else(|| {
        Error::new(ErrorKind::Internal, "a rank has no place in the trees")
            .with("node", node)
            .with("count", count)
    })
}

/// The root of a tree over `count` nodes.
fn tree_root(tree: usize, count: u32) -> Result<u32> {
    let mut node = 0;
    while let TreeNode {
        parent: Some(parent),
        ..
    } = place(node, count)?.trees[tree]
    {
        node = parent;
    }
    Ok(node)
}
