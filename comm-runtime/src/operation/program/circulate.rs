//! All-to-all around a ring: every block travels as many edges as its receiver is away.
//!
//! Only neighbours are connected, at the price of `n / 2` times the traffic of a direct exchange:
//! a rank sends `n (n - 1) / 2` blocks instead of `n - 1`. The blocks for distance `d` and for distance `n - d` travel
//! together: the place of the one that arrives is that of the one that has left, so the operation
//! can work in place.

use super::{Part, Primitive};
use crate::plan::RankOrder;

/// What one rank does while blocks circulate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Circulate {
    /// Number of ranks; at least 2.
    pub(crate) size: usize,
    /// This rank's place in the ring.
    pub(crate) position: usize,
    /// Whose blocks belong to which place.
    pub(crate) order: RankOrder,
    /// Whether it copies its own block from input to output.
    pub(crate) copies: bool,
    /// Elements of a whole block.
    pub(crate) block: usize,
    /// Which part of each block.
    pub(crate) part: Part,
}

impl Circulate {
    /// Primitives for one chunk of every block: for each pair of distances one for every edge on
    /// the way and one more each, the same for half-way around, and the copy.
    const fn per_chunk(&self) -> usize {
        let n = self.size;
        let pairs = (n - 1) / 2 * (n + 2);
        let half_way = if n.is_multiple_of(2) { n / 2 + 1 } else { 0 };
        pairs + half_way + self.copies as usize
    }

    pub(super) fn len(&self) -> usize {
        self.part.chunks() * self.per_chunk()
    }

    pub(super) fn primitive(&self, index: usize) -> Primitive {
        let n = self.size;
        let (offset, count) = self.part.chunk(index / self.per_chunk());
        let index = index % self.per_chunk();
        if self.copies && index == self.per_chunk() - 1 {
            let own = self.order.rank_at(self.position) * self.block + offset;
            return Primitive {
                count,
                source: Some(own),
                target: Some(own),
                ..Primitive::default()
            };
        }
        let (pair, index) = (index / (n + 2), index % (n + 2));
        let near = pair + 1;
        let (distance, stage) = if 2 * near == n {
            (near, index)
        } else if index < 2 * (near + 1) {
            // Both are on their way.
            let distance = if index.is_multiple_of(2) {
                near
            } else {
                n - near
            };
            (distance, index / 2)
        } else {
            // The near one has arrived.
            (n - near, index - (near + 1))
        };
        let arrives = stage == distance;
        let to = self.order.rank_at((self.position + distance) % n);
        let from = self.order.rank_at((self.position + n - distance) % n);
        Primitive {
            count,
            receive: (stage > 0).then_some(0),
            send: (!arrives).then_some(0),
            source: (stage == 0).then_some(to * self.block + offset),
            target: arrives.then_some(from * self.block + offset),
            ..Primitive::default()
        }
    }
}
