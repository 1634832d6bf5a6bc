//! Gather and scatter along a line of ranks that ends, or begins, at the root.
//!
//! Every rank passes on what belongs to the ranks behind it, so only neighbours are connected. The
//! edge at the root carries as much as all of the root's edges would; the others carry less.

use super::{Part, Primitive};
use crate::plan::RankOrder;

/// What one rank does in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Relay {
    /// Whether blocks flow to the root (gather) or from it (scatter).
    pub(crate) to_root: bool,
    /// Number of ranks; at least 2.
    pub(crate) size: usize,
    /// The place of the rank to which, or from which, the blocks flow.
    pub(crate) root: usize,
    /// Whose blocks belong to which place.
    pub(crate) order: RankOrder,
    /// Edges between this rank and the root; 0 on the root.
    pub(crate) distance: usize,
    /// Whether the root copies its own block.
    pub(crate) copies: bool,
    /// Elements of a whole block.
    pub(crate) block: usize,
    /// Which part of each block.
    pub(crate) part: Part,
}

impl Relay {
    /// Primitives for one chunk of every block.
    const fn per_chunk(&self) -> usize {
        match self.distance {
            0 => self.size - 1 + self.copies as usize,
            distance => self.size - distance,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.part.chunks() * self.per_chunk()
    }

    pub(super) fn primitive(&self, index: usize) -> Primitive {
        let (offset, count) = self.part.chunk(index / self.per_chunk());
        let step = index % self.per_chunk();
        let base = Primitive {
            count,
            ..Primitive::default()
        };
        if self.distance == 0 {
            self.at_root(base, offset, step)
        } else if self.to_root {
            // The own block goes first, then those of the ranks behind, nearest first.
            Primitive {
                receive: (step > 0).then_some(0),
                send: Some(0),
                source: (step == 0).then_some(offset),
                ..base
            }
        } else {
            // The farthest rank's block comes first, the own one last.
            let own = step == self.per_chunk() - 1;
            Primitive {
                receive: Some(0),
                send: (!own).then_some(0),
                target: own.then_some(offset),
                ..base
            }
        }
    }

    fn at_root(&self, base: Primitive, offset: usize, step: usize) -> Primitive {
        let own = self.order.rank_at(self.root) * self.block + offset;
        if step == self.size - 1 {
            let (source, target) = if self.to_root {
                (offset, own)
            } else {
                (own, offset)
            };
            return Primitive {
                source: Some(source),
                target: Some(target),
                ..base
            };
        }
        if self.to_root {
            // Data flows to higher places; the nearest rank is the one below the root.
            let owner = (self.root + self.size - 1 - step) % self.size;
            Primitive {
                receive: Some(0),
                target: Some(self.order.rank_at(owner) * self.block + offset),
                ..base
            }
        } else {
            // The farthest rank is the one below the root, and its block goes first.
            let owner = (self.root + self.size - 1 - step) % self.size;
            Primitive {
                send: Some(0),
                source: Some(self.order.rank_at(owner) * self.block + offset),
                ..base
            }
        }
    }
}
