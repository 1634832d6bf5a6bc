//! A node of a line or tree through which chunks flow.
//!
//! One program for many places: the ends and the middle of a line, the root, the inner nodes and
//! the leaves of a tree, upwards (a reduction) and downwards (a broadcast). An inner node combines
//! what its two children send with its own chunk in one step, so partial sums go straight into the
//! parent's slot and need no memory of their own.
//!
//! In an all-reduce on a tree the upward and the downward flow of a node are two programs, which
//! advance independently: the pipeline upwards does not wait for results to come down. Only the
//! root's program does both. The result of a chunk can't reach a node before the node has sent its
//! own part of it, so working in place is safe.

use super::{Part, Primitive};

/// What one rank does in a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pipe {
    /// Number of edges from which it receives; 2 only if it contributes.
    pub(crate) receives: usize,
    /// Number of edges to which it sends; at most 2.
    pub(crate) sends: usize,
    /// Whether its input flows in: alone at a source, combined with what is received elsewhere.
    pub(crate) contributes: bool,
    /// Whether what leaves it is also kept in its output.
    pub(crate) keeps: bool,
    /// Whether a reduction is complete here.
    pub(crate) finishes: bool,
    /// What flows.
    pub(crate) part: Part,
}

impl Pipe {
    pub(super) fn len(&self) -> usize {
        self.part.chunks()
    }

    pub(super) fn primitive(&self, index: usize) -> Primitive {
        let (offset, count) = self.part.chunk(index);
        Primitive {
            count,
            receive: (self.receives > 0).then_some(0),
            also_receive: (self.receives > 1).then_some(1),
            send: (self.sends > 0).then_some(0),
            also_send: (self.sends > 1).then_some(1),
            source: self.contributes.then_some(offset),
            target: self.keeps.then_some(offset),
            combine: self.contributes && self.receives > 0,
            finish: self.finishes,
        }
    }
}
