//! Reductions in one round: everybody sends what a rank is to reduce to that rank.
//!
//! In an all-reduce that is the whole input, to everybody; in a reduce-scatter each rank's block of
//! the input; in a reduce the whole input to the root. A rank folds the inputs in rank order in
//! the accumulator type and rounds once, so all ranks get bitwise equal results whatever the number
//! of elements. One round costs one hop of latency, and for an all-reduce `n - 1` times the
//! traffic, which is right for small messages.
//!
//! # Two ranks
//!
//! Between two ranks one round is right for all sizes. Out of place, chunks of middling buffers are
//! offered instead of sent, if the peer reaches this rank's memory: each rank then copies the other
//! one's chunk straight into its output and adds its own one there. The operation is done when the peer
//! has everything. In place nothing is offered: a sum could not be written before the peer has read
//! what it takes the place of, and waiting for that costs more than a slot. Large buffers go through
//! slots too, and their sums are written past the caches.
//!
//! Memory that the peer's process [has mapped](crate::region) is offered whatever its size, in a
//! reduce-scatter also in place, where a rank writes over no block but its own. The peer reduces it from
//! where it is, looks afterwards whether the offer stood, and has a void chunk if it did not.

use std::ops::Deref;
use std::sync::Arc;

use comm_core::fifo::{Offers, SMALL_BYTES};
use comm_core::{Rank, Result};

use super::carry_out::OFFER_FROM_BYTES;
use super::{BlockedOn, Buffers, Ends, Progress};
use crate::edge::ends::{Identity, Outgoing, RecvEnd, SendEnd, Taken};
use crate::plan::Plan;
use crate::region::PeerBytes;
use comm_kernels as kernels;

/// What one rank does in a one-shot reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fold {
    /// Elements from what one rank reduces to what the next one does in the input; 0 if all ranks
    /// reduce the same elements.
    pub(crate) source_stride: usize,
    /// Whether this rank reduces, and not only sends.
    pub(crate) folds: bool,
}

/// A one-shot reduction under way.
///
/// `P` leads to the plan: a reference as long as the call only looks at its edges, a counted one if the
/// operation may be handed on.
#[derive(Debug)]
pub(crate) struct OneShotReduce<P = Arc<Plan>> {
    plan: P,
    fold: Fold,
    identity: Identity,
    buffers: Buffers,
    /// Elements that are complete.
    done: usize,
    /// Peers that got their part of the current chunk.
    sent: usize,
    /// Payloads of the current chunk by rank; null until they arrive.
    payloads: Payloads,
    arrived: usize,
    /// What was offered; the operation is done when all of it is consumed.
    offers: Option<(OfferOf, Offers)>,
    /// How the payloads of the current chunk came.
    arrival: Arrival,
    /// Keeps what is read of a peer's memory mapped.
    mapped: Vec<PeerBytes>,
    /// Whether all chunks are done.
    complete: bool,
}

/// How the payloads of a chunk came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Arrival {
    /// Through slots or lines, to be consumed when they are reduced.
    #[default]
    Sent,
    /// It was copied from where it was offered, and its step consumed.
    Pulled,
    /// It is read where it is offered, and may turn out to be void.
    Mapped,
}

/// How a chunk is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfferOf {
    /// Memory that the peer asks the system for.
    Plain,
    /// A region, which the peer has mapped.
    Region,
}

/// Bytes of the smallest result whose operands other processes copy by the system: below, slots lose less
/// with old data than they win with data that was just written.
const PULLED_FROM_BYTES: usize = 256 << 10;

/// Up to this size of the whole buffer chunks are offered: what the second-level caches hold.
const OFFER_TO_BYTES: usize = 1 << 20;

/// One pointer per rank, without an allocation for worlds of usual size on one host.
#[derive(Debug)]
struct Payloads {
    few: [*const u8; FEW],
    many: Vec<*const u8>,
    len: usize,
}

const FEW: usize = 16;

impl Payloads {
    fn new(len: usize) -> Self {
        let many = if len > FEW {
            vec![std::ptr::null(); len]
        } else {
            Vec::new()
        };
        Self {
            few: [std::ptr::null(); FEW],
            many,
            len,
        }
    }

    fn all(&self) -> &[*const u8] {
        if self.len > FEW {
            &self.many
        } else {
            &self.few[..self.len]
        }
    }

    fn all_mut(&mut self) -> &mut [*const u8] {
        if self.len > FEW {
            &mut self.many
        } else {
            &mut self.few[..self.len]
        }
    }

    fn get(&self, rank: usize) -> *const u8 {
        self.all()[rank]
    }

    fn set(&mut self, rank: usize, payload: *const u8) {
        self.all_mut()[rank] = payload;
    }

    fn clear(&mut self) {
        self.all_mut().fill(std::ptr::null());
    }
}

// SAFETY: the payload pointers belong to the lane's edges, which are used by whoever advances the
// operation, one thread at a time.
unsafe impl<P: Send> Send for OneShotReduce<P> {}

impl<P: Deref<Target = Plan>> OneShotReduce<P> {
    #[inline]
    pub(crate) fn new(plan: P, fold: Fold, identity: Identity, buffers: Buffers) -> Self {
        let payloads = Payloads::new(plan.world_size as usize);
        Self {
            plan,
            fold,
            identity,
            buffers,
            done: 0,
            sent: 0,
            payloads,
            arrived: 0,
            offers: None,
            arrival: Arrival::Sent,
            mapped: Vec::new(),
            complete: false,
        }
    }

    /// The same operation, at the same point, with another way to the same plan.
    pub(crate) fn keeping<Q>(self, plan: Q) -> OneShotReduce<Q> {
        OneShotReduce {
            plan,
            fold: self.fold,
            identity: self.identity,
            buffers: self.buffers,
            done: self.done,
            sent: self.sent,
            payloads: self.payloads,
            arrived: self.arrived,
            offers: self.offers,
            arrival: self.arrival,
            mapped: self.mapped,
            complete: self.complete,
        }
    }

    /// The same operation, of which this many peers got their part of the first chunk already.
    pub(crate) const fn having_sent(mut self, sent: usize) -> Self {
        self.sent = sent;
        self
    }

    fn chunk(&self) -> usize {
        (self.plan.count - self.done).min(self.plan.chunk_elements)
    }

    /// What this rank has of the current chunk of `peer`'s part.
    fn source(&self, peer: Rank) -> *const u8 {
        let offset = peer as usize * self.fold.source_stride + self.done;
        // SAFETY: the input holds the plan's count for each stride, of which `done` are complete.
        unsafe { self.buffers.input.add(offset * self.plan.element_bytes) }
    }

    pub(crate) fn advance(&mut self, ends: &mut Ends, budget_bytes: usize) -> Result<Progress> {
        let mut budget = budget_bytes;
        loop {
            if self.complete {
                return self.acknowledged(ends);
            }
            if !self.send_chunk(ends)? | !self.receive_chunk(ends)? {
                return Ok(Progress::Blocked);
            }
            let count = self.chunk();
            if self.fold.folds && !self.reduce_chunk(ends, count)? {
                return Ok(Progress::Blocked);
            }
            self.done += count;
            if self.done == self.plan.count {
                self.complete = true;
                return self.acknowledged(ends);
            }
            self.sent = 0;
            budget = budget.saturating_sub(count * self.plan.element_bytes);
            if budget == 0 {
                return Ok(Progress::Moved);
            }
        }
    }

    /// Done once the peer has everything that was offered.
    #[inline]
    fn acknowledged(&self, ends: &mut Ends) -> Result<Progress> {
        Ok(if self.offers.is_none() || self.is_acknowledged(ends)? {
            Progress::Done
        } else {
            Progress::Blocked
        })
    }

    fn is_acknowledged(&self, ends: &mut Ends) -> Result<bool> {
        for index in &self.plan.edges(0).send {
            if !ends.send[*index].is_acknowledged()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the own part of the input is where the output is.
    fn is_in_place(&self) -> bool {
        std::ptr::eq(self.source(self.plan.rank), self.target())
    }

    fn target(&self) -> *mut u8 {
        // SAFETY: `done` is at most the plan's count, which is the length of the output.
        unsafe { self.buffers.output.add(self.done * self.plan.element_bytes) }
    }

    /// Whether, and how, a chunk is offered over this edge: see the module's documentation.
    #[cold]
    fn offer_of(&self, end: &SendEnd, from: *const u8, bytes: usize) -> Option<OfferOf> {
        let in_place = self.plan.request().in_place;
        if in_place && self.fold.folds && self.fold.source_stride == 0 {
            return None;
        }
        if end.is_readable_by_peer(from, bytes) {
            return Some(OfferOf::Region);
        }
        let whole_bytes = self.plan.count * self.plan.element_bytes;
        let from_bytes = if end.is_pulled() {
            PULLED_FROM_BYTES
        } else {
            OFFER_FROM_BYTES
        };
        let offers = !in_place && (from_bytes..=OFFER_TO_BYTES).contains(&whole_bytes);
        offers.then_some(OfferOf::Plain)
    }

    fn send_chunk(&mut self, ends: &mut Ends) -> Result<bool> {
        let bytes = self.chunk() * self.plan.element_bytes;
        let may_offer = bytes >= OFFER_FROM_BYTES && self.plan.world_size == 2;
        while let Some(&index) = self.plan.edges(0).send.get(self.sent) {
            let end = &mut ends.send[index];
            let from = self.source(end.peer);
            match end.try_reserve(bytes)? {
                None => return Ok(false),
                Some(Outgoing::Small) => {
                    let mut small = [0; SMALL_BYTES];
                    // SAFETY: `bytes` is at most `SMALL_BYTES` here and within the input.
                    unsafe { kernels::copy(small.as_mut_ptr(), from, bytes) };
                    end.publish_small(&small[..bytes], &self.identity)?;
                }
                Some(Outgoing::Slot(slot)) => {
                    let offer = if may_offer {
                        self.offer_of(&ends.send[index], from, bytes)
                    } else {
                        None
                    };
                    let end = &mut ends.send[index];
                    let offered = match offer {
                        Some(of) => self.try_offer(end, of, from, bytes)?,
                        None => false,
                    };
                    if !offered {
                        // SAFETY: a chunk fits a slot and is within the input.
                        unsafe { kernels::copy_far(slot.data.as_ptr(), from, bytes) };
                        end.publish(bytes, &self.identity)?;
                    }
                }
            }
            self.sent += 1;
        }
        Ok(true)
    }

    /// Offers a chunk for which there is credit; `false` if the peer cannot reach it.
    #[cold]
    fn try_offer(
        &mut self,
        end: &mut SendEnd,
        of: OfferOf,
        from: *const u8,
        bytes: usize,
    ) -> Result<bool> {
        if self.offers.is_none() {
            let offers = match of {
                OfferOf::Plain => end.offers(),
                OfferOf::Region => end.region_offers(),
            };
            self.offers = offers.map(|offers| (of, offers));
        }
        match &mut self.offers {
            // SAFETY: the chunk is within the input, which stays valid and as it is (it is not in what
            // is written) until this operation is done, which needs the step to be consumed, or
            // dropped, which revokes it.
            Some((OfferOf::Plain, offers)) if of == OfferOf::Plain => unsafe {
                end.try_offer(offers, from, bytes, &self.identity)
            },
            // SAFETY: as above.
            Some((OfferOf::Region, offers)) if of == OfferOf::Region => unsafe {
                end.try_offer_readable(offers, from, bytes, &self.identity)
            },
            _ => Ok(false),
        }
    }

    fn receive_chunk(&mut self, ends: &mut Ends) -> Result<bool> {
        let bytes = self.chunk() * self.plan.element_bytes;
        let expected = self.plan.edges(0).recv.len();
        if self.arrived == expected {
            return Ok(true);
        }
        for place in 0..expected {
            let index = self.plan.edges(0).recv[place];
            let end = &mut ends.recv[index];
            let peer = end.peer as usize;
            if !self.payloads.get(peer).is_null() {
                continue;
            }
            let payload = match end.try_take_or_offer(&self.identity, bytes, bytes)? {
                None => continue,
                Some(Taken::Payload(payload)) => payload,
                Some(Taken::Offer) => match self.pull(end, bytes)? {
                    Some(payload) => payload,
                    None => continue,
                },
            };
            self.payloads.set(peer, payload);
            self.arrived += 1;
        }
        Ok(self.arrived == expected)
    }

    /// Looks where what the peer offers can be read, or copies it and tells the peer so; where it is
    /// then, or `None` if it was revoked.
    #[cold]
    fn pull(&mut self, end: &mut RecvEnd, bytes: usize) -> Result<Option<*const u8>> {
        if let Some(mapped) = end.offered_bytes(0, bytes)? {
            let payload = mapped.as_ptr();
            end.note_read(bytes);
            self.arrival = Arrival::Mapped;
            self.mapped.push(mapped);
            return Ok(Some(payload));
        }
        let payload = if self.is_in_place() {
            end.pull_to_scratch(0, bytes)?
        } else {
            let to = self.target();
            // SAFETY: the output covers the chunk; what is offered belongs to the peer's caller.
            let stands = unsafe { end.pull(0, to, bytes, false) }?;
            stands.then_some(to.cast_const())
        };
        if payload.is_some() {
            end.consume()?;
            self.arrival = Arrival::Pulled;
        }
        Ok(payload)
    }

    /// Reduces a chunk of which everything has come; `false` if a part of it was void.
    fn reduce_chunk(&mut self, ends: &mut Ends, count: usize) -> Result<bool> {
        let own = self.source(self.plan.rank);
        self.payloads.set(self.plan.rank as usize, own);
        let target = self.target();
        if let Some(reducer) = &self.plan.reducer {
            let ranks = self.plan.average_of.max(1);
            // Every payload was checked to hold `count` elements and is not consumed yet; the output
            // covers the chunk and is the own input, holds what was pulled, or overlaps nothing.
            match *self.payloads.all() {
                // Of two sources, one step in the accumulator type is the whole fold.
                [first, second] if ranks == 1 => {
                    if self.plan.streams && !self.plan.request().in_place {
                        // SAFETY: see above.
                        unsafe { reducer.reduce_streaming(target, first, second, count) };
                    } else {
                        // SAFETY: see above.
                        unsafe { reducer.reduce(target, first, second, count) };
                    }
                }
                ref all => {
                    // SAFETY: see above.
                    unsafe { reducer.reduce_many_scaled(target, all, count, ranks) };
                }
            }
        }
        let arrival = std::mem::take(&mut self.arrival);
        if arrival == Arrival::Mapped && !self.stands(ends) {
            return Ok(false);
        }
        if arrival != Arrival::Pulled {
            for index in &self.plan.edges(0).recv {
                ends.recv[*index].consume()?;
            }
        }
        self.payloads.clear();
        self.arrived = 0;
        Ok(true)
    }

    /// Whether what was read of the peer's memory was still offered then; else it counts as something
    /// that has not come, and now never will.
    #[cold]
    fn stands(&mut self, ends: &Ends) -> bool {
        self.mapped.clear();
        let mut edges = self.plan.edges(0).recv.iter();
        if edges.all(|index| ends.recv[*index].offer_stands()) {
            return true;
        }
        self.payloads.clear();
        self.arrived = 0;
        false
    }

    pub(crate) fn blocked_on(&self, visit: &mut dyn FnMut(BlockedOn)) {
        let edges = self.plan.edges(0);
        if self.complete {
            for index in &edges.send {
                visit(BlockedOn::Acknowledgement(*index));
            }
        } else {
            if let Some(index) = edges.send.get(self.sent) {
                visit(BlockedOn::Credit(*index));
            }
            for (index, peer) in edges.recv.iter().zip(self.plan.receives_from(0)) {
                if self.payloads.get(*peer as usize).is_null() {
                    visit(BlockedOn::Step(*index));
                }
            }
        }
    }
}
