//! Algorithms as programs: pure functions from a position to a [`Primitive`].
//!
//! A program says, step by step, what one rank receives, combines, keeps and passes on. It knows
//! neither transports nor memory; [`super::ProgramRun`] carries it out. Since a program is a pure
//! function, its correctness is checked by playing all ranks' programs against each other on
//! plain vectors (see the tests).
//!
//! # Sources
//!
//! The ring all-reduce is the bandwidth-optimal one of Patarasuk and Yuan, "Bandwidth optimal
//! all-reduce algorithms for clusters of workstations" (2009), in chunks that are pipelined
//! through the ring. The barrier is the dissemination barrier of Hensgen, Finkel and Manber (1988).

/// One step of one rank. All parts that are present concern the same number of elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Primitive {
    /// Number of elements; 0 still makes a step, so both ends of an edge count alike.
    pub(crate) count: usize,
    /// Take a step from this edge (index into the plan's receiving edges).
    pub(crate) receive: Option<usize>,
    /// Pass the result to this edge (index into the plan's sending edges).
    pub(crate) send: Option<usize>,
    /// Element offset in the input.
    pub(crate) source: Option<usize>,
    /// Element offset in the output.
    pub(crate) target: Option<usize>,
    /// Reduce what was received with the source, instead of forwarding it.
    pub(crate) combine: bool,
    /// The reduction is complete: apply what comes after it (the scale of an average).
    pub(crate) finish: bool,
}

/// What one rank does on one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    RingAllReduce(RingAllReduce),
    Chain(Chain),
    FanOut(FanOut),
    Dissemination(Dissemination),
}

impl Program {
    /// Number of primitives.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::RingAllReduce(program) => program.len(),
            Self::Chain(program) => program.len(),
            Self::FanOut(program) => program.len(),
            Self::Dissemination(program) => program.len(),
        }
    }

    /// The primitive at `index`, which is smaller than [`Program::len`].
    #[inline]
    pub(crate) fn primitive(&self, index: usize) -> Primitive {
        match self {
            Self::RingAllReduce(program) => program.primitive(index),
            Self::Chain(program) => program.primitive(index),
            Self::FanOut(program) => program.primitive(index),
            Self::Dissemination(program) => program.primitive(index),
        }
    }
}

/// A contiguous part of a buffer, cut in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// First element.
    pub(crate) start: usize,
    /// Number of elements.
    pub(crate) count: usize,
    /// Elements per chunk, at most what a slot holds.
    pub(crate) chunk: usize,
}

impl Part {
    /// Chunks of a part that one rank passes on whole; an empty part still has one.
    fn chunks(&self) -> usize {
        self.count.div_ceil(self.chunk).max(1)
    }

    /// Offset and length of a chunk.
    fn chunk(&self, index: usize) -> (usize, usize) {
        let begin = (index * self.chunk).min(self.count);
        let end = ((index + 1) * self.chunk).min(self.count);
        (self.start + begin, end - begin)
    }
}

/// Loops of a ring that are in flight together.
///
/// The steps of `PIPELINE_LOOPS` loops are interleaved in a fixed order, the same on all ranks,
/// so that a rank has something to do while its neighbour works. One stage of them may still be
/// unread when the next one is sent, so twice this number must not exceed the slots of an edge.
const PIPELINE_LOOPS: usize = 4;

const _: () = assert!(2 * PIPELINE_LOOPS <= 8);

/// Reduce-scatter followed by all-gather around a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingAllReduce {
    /// Ranks in the ring; at least 2.
    pub(crate) size: usize,
    /// This rank's place in the ring.
    pub(crate) position: usize,
    /// What this channel reduces.
    pub(crate) part: Part,
}

impl RingAllReduce {
    const fn stages(&self) -> usize {
        2 * self.size - 1
    }

    fn loops(&self) -> usize {
        self.part.count.div_ceil(self.size * self.part.chunk).max(1)
    }

    fn len(&self) -> usize {
        self.loops() * self.stages()
    }

    fn primitive(&self, index: usize) -> Primitive {
        let group_len = PIPELINE_LOOPS * self.stages();
        let first_loop = index / group_len * PIPELINE_LOOPS;
        let in_flight = PIPELINE_LOOPS.min(self.loops() - first_loop);
        let within = index % group_len;
        self.stage(first_loop + within % in_flight, within / in_flight)
    }

    fn stage(&self, ring_loop: usize, stage: usize) -> Primitive {
        let n = self.size;
        // The chunk that travels at this stage starts one behind this rank and moves backwards.
        let chunk = (self.position + 2 * n - 1 - stage) % n;
        let (offset, count) = self.chunk(ring_loop, chunk);
        let received = (stage > 0).then_some(0);
        let sent = (stage < self.stages() - 1).then_some(0);
        let reducing = stage < n;
        let keeps = stage >= n - 1;
        Primitive {
            count,
            receive: received,
            send: sent,
            source: reducing.then_some(offset),
            target: keeps.then_some(offset),
            combine: reducing && stage > 0,
            finish: stage == n - 1,
        }
    }

    /// Offset and length of a rank's chunk in a loop. Chunks of the last loop are made even.
    fn chunk(&self, ring_loop: usize, chunk: usize) -> (usize, usize) {
        let begin = ring_loop * self.size * self.part.chunk;
        let left = self.part.count - begin.min(self.part.count);
        let even = left.div_ceil(self.size).next_multiple_of(EVEN_CHUNK);
        let len = self.part.chunk.min(even);
        let from = (chunk * len).min(left);
        let to = ((chunk + 1) * len).min(left);
        (self.part.start + begin + from, to - from)
    }
}

/// Chunks of a ring's last loop are multiples of this many elements where possible, so that
/// kernels work on whole vectors.
const EVEN_CHUNK: usize = 16;

/// A pipeline from the root along a line of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    /// Whether this rank receives, that is, is not the root.
    pub(crate) receives: bool,
    /// Whether this rank passes on, that is, is not the last one.
    pub(crate) sends: bool,
    /// Whether the root also copies its input to its output.
    pub(crate) copies: bool,
    /// What this channel moves.
    pub(crate) part: Part,
}

impl Chain {
    fn len(&self) -> usize {
        self.part.chunks()
    }

    fn primitive(&self, index: usize) -> Primitive {
        let (offset, count) = self.part.chunk(index);
        Primitive {
            count,
            receive: self.receives.then_some(0),
            send: self.sends.then_some(0),
            source: (!self.receives).then_some(offset),
            target: (self.receives || self.copies).then_some(offset),
            ..Primitive::default()
        }
    }
}

/// The root sends to every other rank by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FanOut {
    /// Number of ranks to which this rank sends; 0 unless it is the root.
    pub(crate) receivers: usize,
    /// Whether this rank receives.
    pub(crate) receives: bool,
    /// Whether the root also copies its input to its output.
    pub(crate) copies: bool,
    /// What is moved.
    pub(crate) part: Part,
}

impl FanOut {
    const fn per_chunk(&self) -> usize {
        if self.receives {
            1
        } else {
            self.receivers + self.copies as usize
        }
    }

    fn len(&self) -> usize {
        self.part.chunks() * self.per_chunk()
    }

    fn primitive(&self, index: usize) -> Primitive {
        let (offset, count) = self.part.chunk(index / self.per_chunk());
        let step = index % self.per_chunk();
        if self.receives {
            return Primitive {
                count,
                receive: Some(0),
                target: Some(offset),
                ..Primitive::default()
            };
        }
        Primitive {
            count,
            send: (step < self.receivers).then_some(step),
            source: Some(offset),
            target: (step == self.receivers).then_some(offset),
            ..Primitive::default()
        }
    }
}

/// In round `k` every rank tells the one `2^k` ahead of it that it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dissemination {
    /// Number of rounds: the logarithm of the number of ranks, rounded up.
    pub(crate) rounds: usize,
}

impl Dissemination {
    const fn len(&self) -> usize {
        2 * self.rounds
    }

    fn primitive(&self, index: usize) -> Primitive {
        let round = index / 2;
        if index.is_multiple_of(2) {
            Primitive {
                send: Some(round),
                ..Primitive::default()
            }
        } else {
            Primitive {
                receive: Some(round),
                ..Primitive::default()
            }
        }
    }
}

#[cfg(test)]
mod tests;
