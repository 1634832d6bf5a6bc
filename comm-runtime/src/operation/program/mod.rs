//! Algorithms as programs: pure functions from a position to a [`Primitive`].
//!
//! A program says, step by step, what one rank receives, combines, keeps and passes on. It knows
//! neither transports nor memory; [`super::ProgramRun`] carries it out. Since a program is a pure
//! function, its correctness is checked by playing all ranks' programs against each other on
//! plain vectors (see the tests).
//!
//! # Contract
//!
//! * The primitives of one program are carried out strictly in order. Programs of one operation
//!   are independent of each other: none waits for another one of the same rank, except through
//!   the peers.
//! * Both ends of an edge count its steps alike, in the same order and with the same lengths; an
//!   empty step is a step.
//! * No program needs more than the eight slots of an edge to come to its end.
//!
//! | program | algorithm | operations |
//! |---|---|---|
//! | [`Ring`] | ring | all_reduce, reduce_scatter, all_gather |
//! | [`Pipe`] | ring, double tree | broadcast, reduce; all_reduce on trees; a single rank |
//! | [`Relay`] | ring | gather, scatter |
//! | [`Circulate`] | ring | all_to_all |
//! | [`Exchange`] | one-shot | broadcast, all_gather, all_to_all, gather, scatter |
//! | [`Dissemination`] | dissemination | barrier |
//!
//! One-shot reductions fold all inputs at once and are no programs, see
//! [`OneShotReduce`](super::OneShotReduce).

mod barrier;
mod circulate;
mod exchange;
mod pipe;
mod relay;
mod ring;

pub(crate) use barrier::Dissemination;
pub(crate) use circulate::Circulate;
pub(crate) use exchange::{Exchange, Peers};
pub(crate) use pipe::Pipe;
pub(crate) use relay::Relay;
pub(crate) use ring::{Phases, Ring};

/// One step of one rank. All parts that are present concern the same number of elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Primitive {
    /// Number of elements; 0 still makes a step, so both ends of an edge count alike.
    pub(crate) count: usize,
    /// Take a step from this edge (index into the channel's receiving edges).
    pub(crate) receive: Option<usize>,
    /// Take one from this edge as well; only when combining.
    pub(crate) also_receive: Option<usize>,
    /// Pass the result to this edge (index into the channel's sending edges).
    pub(crate) send: Option<usize>,
    /// Pass it to this edge as well.
    pub(crate) also_send: Option<usize>,
    /// Element offset in the input.
    pub(crate) source: Option<usize>,
    /// Element offset in the output.
    pub(crate) target: Option<usize>,
    /// Reduce what was received with the source, instead of forwarding it.
    pub(crate) combine: bool,
    /// The reduction is complete: apply what comes after it (the scale of an average).
    pub(crate) finish: bool,
}

impl Primitive {
    /// Whether it concerns no peer.
    #[inline]
    pub(crate) const fn is_local(&self) -> bool {
        self.send.is_none() && self.receive.is_none()
    }
}

/// What one rank does on one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Ring(Ring),
    Pipe(Pipe),
    Relay(Relay),
    Circulate(Circulate),
    Exchange(Exchange),
    Dissemination(Dissemination),
}

impl Program {
    /// Number of primitives.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Ring(program) => program.len(),
            Self::Pipe(program) => program.len(),
            Self::Relay(program) => program.len(),
            Self::Circulate(program) => program.len(),
            Self::Exchange(program) => program.len(),
            Self::Dissemination(program) => program.len(),
        }
    }

    /// Whether the user's memory that a step is sent from stays as it is until the peer has the step,
    /// also when input and output are the same memory.
    ///
    /// It does where the only thing that is written over it is a result that needs the step to have
    /// been taken: the reduction, or the block, in question itself.
    pub(crate) const fn keeps_what_it_sends(&self, in_place: bool) -> bool {
        match self {
            Self::Ring(_) | Self::Pipe(_) => true,
            // In an all-to-all, a peer's block takes the place of the one for that peer.
            Self::Exchange(program) => !in_place || !program.replaces_what_it_sends(),
            // Blocks take the place of blocks that may still be on their way.
            Self::Relay(_) | Self::Circulate(_) | Self::Dissemination(_) => false,
        }
    }

    /// Whether it is an exchange of blocks that may go without slots, see
    /// [`DirectBlocks`](super::direct_blocks).
    pub(crate) const fn is_long_exchange(&self) -> bool {
        matches!(self, Self::Exchange(program) if program.is_long())
    }

    /// The primitive at `index`, which is smaller than [`Program::len`].
    #[inline]
    pub(crate) fn primitive(&self, index: usize) -> Primitive {
        match self {
            Self::Ring(program) => program.primitive(index),
            Self::Pipe(program) => program.primitive(index),
            Self::Relay(program) => program.primitive(index),
            Self::Circulate(program) => program.primitive(index),
            Self::Exchange(program) => program.primitive(index),
            Self::Dissemination(program) => program.primitive(index),
        }
    }
}

/// A contiguous part of a buffer, or of each block of a buffer, cut in chunks.
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

#[cfg(test)]
mod tests;
