//! Blocks that go straight to where they belong: everybody to everybody, to the root, or from it.
//!
//! The ranks meet in pairs: in round `r` rank `a` meets rank `r - a` (modulo the number of ranks),
//! which is the same round for both, so each round uses both directions of each pair and over all
//! rounds everybody meets everybody once (the circle method of round-robin tournaments). Nobody
//! waits for a round to end: a rank sends a chunk to every peer, and takes a chunk from every peer
//! when it has sent a few chunks ahead. So it is never more than that ahead of any of its peers,
//! and floods nobody.

use super::{Part, Primitive};

/// Chunks that a rank sends before it takes the first one.
///
/// A rank that has taken chunk `c` of a peer knows that the peer has taken its chunk
/// `c - SENDS_AHEAD - 1`, and sends chunk `c + SENDS_AHEAD + 1` next; with eight slots that never
/// waits.
const SENDS_AHEAD: usize = 3;

/// Steps of a block from which on it goes without slots, if it can.
const DIRECT_FROM_STEPS: usize = 2;

const _: () = assert!(2 * (SENDS_AHEAD + 1) <= 8);

/// With whom a rank has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peers {
    /// Nobody.
    Nobody,
    /// This rank.
    One(usize),
    /// Every other rank.
    All,
}

impl Peers {
    /// Number of peers among `size` ranks.
    const fn len(self, size: usize) -> usize {
        match self {
            Self::Nobody => 0,
            Self::One(_) => 1,
            Self::All => size - 1,
        }
    }

    /// The peer that `rank` meets as number `index`.
    fn get(self, rank: usize, size: usize, index: usize) -> usize {
        if let Self::One(peer) = self {
            return peer;
        }
        // In this round the rank would meet itself.
        let alone = 2 * rank % size;
        let round = index + usize::from(index >= alone);
        (round + size - rank) % size
    }
}

/// What one rank does in an exchange.
///
/// The block for, or from, peer `p` starts `p` strides into the buffer; a stride of 0 means that it
/// is the same block for everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    /// Number of ranks.
    pub(crate) size: usize,
    /// This rank.
    pub(crate) rank: usize,
    /// To whom it sends.
    pub(crate) sends: Peers,
    /// From whom it receives.
    pub(crate) receives: Peers,
    /// Whether it copies its own block from input to output.
    pub(crate) copies: bool,
    /// Elements from one peer's block to the next one's in the input.
    pub(crate) source_stride: usize,
    /// Elements from one peer's block to the next one's in the output.
    pub(crate) target_stride: usize,
    /// Which part of each block.
    pub(crate) part: Part,
}

impl Exchange {
    /// Whether what comes from a peer takes, in place, the place of what goes to it.
    pub(super) const fn replaces_what_it_sends(&self) -> bool {
        self.source_stride > 0 && self.target_stride > 0
    }

    /// The ranks to which it sends, in the order of its edges.
    pub(crate) fn sends_to(&self) -> impl Iterator<Item = usize> {
        self.peers(self.sends)
    }

    /// The ranks from which it receives, in the order of its edges.
    pub(crate) fn receives_from(&self) -> impl Iterator<Item = usize> {
        self.peers(self.receives)
    }

    fn peers(&self, peers: Peers) -> impl Iterator<Item = usize> {
        let (rank, size) = (self.rank, self.size);
        (0..peers.len(size)).map(move |index| peers.get(rank, size, index))
    }

    /// Whether its blocks are long enough to go without slots where that is possible.
    pub(crate) const fn is_long(&self) -> bool {
        self.part.count > 0 && self.part.count >= DIRECT_FROM_STEPS * self.part.chunk
    }

    /// Where what goes to each peer begins in the input, in the order of its edges.
    pub(crate) fn sources(&self) -> impl Iterator<Item = usize> {
        let (start, stride) = (self.part.start, self.source_stride);
        self.sends_to().map(move |peer| peer * stride + start)
    }

    /// Where what comes from each peer begins in the output, in the order of its edges.
    pub(crate) fn targets(&self) -> impl Iterator<Item = usize> {
        let (start, stride) = (self.part.start, self.target_stride);
        self.receives_from().map(move |peer| peer * stride + start)
    }

    /// Where the rank's own block begins in input and output, if it is to be copied.
    pub(crate) fn own(&self) -> Option<(usize, usize)> {
        let at = |stride| self.rank * stride + self.part.start;
        (self.copies).then(|| (at(self.source_stride), at(self.target_stride)))
    }

    /// Primitives that bring one chunk of every block on its way.
    const fn out(&self) -> usize {
        self.sends.len(self.size) + self.copies as usize
    }

    pub(super) fn len(&self) -> usize {
        self.part.chunks() * (self.out() + self.receives.len(self.size))
    }

    pub(super) fn primitive(&self, index: usize) -> Primitive {
        let (out, in_) = (self.out(), self.receives.len(self.size));
        let chunks = self.part.chunks();
        let ahead = SENDS_AHEAD.min(chunks);
        // First some chunks go out, then one goes out for each that comes in, then the rest comes.
        let prologue = ahead * out;
        let middle = (chunks - ahead) * (out + in_);
        if index < prologue {
            return self.outgoing(index / out, index % out);
        }
        let index = index - prologue;
        if index < middle {
            let (chunk, step) = (index / (out + in_), index % (out + in_));
            return if step < out {
                self.outgoing(ahead + chunk, step)
            } else {
                self.incoming(chunk, step - out)
            };
        }
        let index = index - middle;
        self.incoming(chunks - ahead + index / in_, index % in_)
    }

    fn outgoing(&self, chunk: usize, step: usize) -> Primitive {
        let (offset, count) = self.part.chunk(chunk);
        let sent = step < self.sends.len(self.size);
        let peer = if sent {
            self.sends.get(self.rank, self.size, step)
        } else {
            self.rank
        };
        Primitive {
            count,
            send: sent.then_some(step),
            source: Some(peer * self.source_stride + offset),
            target: (!sent).then_some(self.rank * self.target_stride + offset),
            ..Primitive::default()
        }
    }

    fn incoming(&self, chunk: usize, step: usize) -> Primitive {
        let (offset, count) = self.part.chunk(chunk);
        let peer = self.receives.get(self.rank, self.size, step);
        Primitive {
            count,
            receive: Some(step),
            target: Some(peer * self.target_stride + offset),
            ..Primitive::default()
        }
    }
}
