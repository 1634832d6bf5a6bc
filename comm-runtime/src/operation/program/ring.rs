//! All-reduce, reduce-scatter and all-gather around a ring.
//!
//! The bandwidth-optimal ring of Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
//! clusters of workstations" (2009): a reduce-scatter is followed by an all-gather, each of which
//! is also an operation by itself. Chunks are pipelined through the ring.

use super::{Part, Primitive};
use crate::plan::RankOrder;

/// Loops of a ring that are in flight together.
///
/// The steps of `PIPELINE_LOOPS` loops are interleaved in a fixed order, the same on all ranks,
/// so that a rank has something to do while its neighbour works. One stage of them may still be
/// unread when the next one is sent, so twice this number must not exceed the slots of an edge.
const PIPELINE_LOOPS: usize = 4;

const _: () = assert!(2 * PIPELINE_LOOPS <= 8);

/// Chunks of an all-reduce's last loop are multiples of this many elements where possible, so that
/// kernels work on whole vectors.
const EVEN_CHUNK: usize = 16;

/// Which half of the way around the ring an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phases {
    /// Both, on one buffer that is cut in a chunk for each rank again and again.
    AllReduce,
    /// The first, on a block for each rank in the input and one block in the output.
    ReduceScatter,
    /// The second, on one block in the input and a block for each rank in the output.
    AllGather,
}

/// What one rank does in a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ring {
    pub(crate) phases: Phases,
    /// Ranks in the ring; at least 2.
    pub(crate) size: usize,
    /// This rank's place in the ring.
    pub(crate) position: usize,
    /// Whose blocks belong to which place.
    pub(crate) order: RankOrder,
    /// Which part of the buffer, or of each block.
    pub(crate) part: Part,
    /// Elements of a whole block; not used by an all-reduce.
    pub(crate) block: usize,
}

impl Ring {
    const fn stages(&self) -> usize {
        match self.phases {
            Phases::AllReduce => 2 * self.size - 1,
            Phases::ReduceScatter | Phases::AllGather => self.size,
        }
    }

    fn loops(&self) -> usize {
        match self.phases {
            Phases::AllReduce => self.part.count.div_ceil(self.size * self.part.chunk).max(1),
            Phases::ReduceScatter | Phases::AllGather => self.part.chunks(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.loops() * self.stages()
    }

    pub(super) fn primitive(&self, index: usize) -> Primitive {
        let group_len = PIPELINE_LOOPS * self.stages();
        let first_loop = index / group_len * PIPELINE_LOOPS;
        let in_flight = PIPELINE_LOOPS.min(self.loops() - first_loop);
        let within = index % group_len;
        self.stage(first_loop + within % in_flight, within / in_flight)
    }

    fn stage(&self, ring_loop: usize, stage: usize) -> Primitive {
        let n = self.size;
        // The stage of a whole all-reduce; an all-gather starts where the reduction is complete.
        let whole = match self.phases {
            Phases::AllReduce | Phases::ReduceScatter => stage,
            Phases::AllGather => n - 1 + stage,
        };
        // What travels at this stage starts one behind this rank and moves backwards.
        let owner = (self.position + 2 * n - 1 - whole) % n;
        let reducing = self.phases != Phases::AllGather && whole < n;
        let (own, in_all, count) = match self.phases {
            Phases::AllReduce => {
                let (offset, count) = self.even_chunk(ring_loop, owner);
                (offset, offset, count)
            }
            Phases::ReduceScatter | Phases::AllGather => {
                let (offset, count) = self.part.chunk(ring_loop);
                (
                    offset,
                    self.order.rank_at(owner) * self.block + offset,
                    count,
                )
            }
        };
        let (source, target) = match self.phases {
            Phases::ReduceScatter => (in_all, own),
            Phases::AllReduce | Phases::AllGather => (own, in_all),
        };
        Primitive {
            count,
            receive: (stage > 0).then_some(0),
            send: (stage < self.stages() - 1).then_some(0),
            source: (reducing || stage == 0).then_some(source),
            target: (whole >= n - 1).then_some(target),
            combine: reducing && stage > 0,
            finish: reducing && whole == n - 1,
            ..Primitive::default()
        }
    }

    /// Offset and length of a rank's chunk in a loop of an all-reduce. Chunks of the last loop are
    /// made even.
    fn even_chunk(&self, ring_loop: usize, chunk: usize) -> (usize, usize) {
        let begin = ring_loop * self.size * self.part.chunk;
        let left = self.part.count - begin.min(self.part.count);
        let even = left.div_ceil(self.size).next_multiple_of(EVEN_CHUNK);
        let len = self.part.chunk.min(even);
        let from = (chunk * len).min(left);
        let to = ((chunk + 1) * len).min(left);
        (self.part.start + begin + from, to - from)
    }
}
