//! Sending and receiving one message over one edge, in steps.
//!
//! A message of `n` bytes takes `ceil(n / step_bytes)` steps, and an empty message takes one.
//!
//! # Offered messages
//!
//! Over an edge whose ends share an address space, a message that is larger than all slots together
//! is not copied into them: each step offers a slice of the sender's buffer, which the
//! receiver copies straight to its destination. The sender is done when all slices are consumed.
//! A message of that size could not complete before the receiver has come anyway, so a program that
//! works with slots works with offers; a smaller one is buffered as everywhere. The sender decides;
//! the receiver takes what comes. Between processes slots stay: they let both CPUs copy.
//!
//! Until then the buffer is offered; [`SendRun`] revokes what is left of it when it is dropped, and
//! waits for at most the one slice that is being copied.
//!
//! # Direct transfers
//!
//! Over a message edge with direct transfers a message of [`DIRECT_FROM_STEPS`] steps or more takes one
//! empty step, by which the receiver knows that its operation is the sender's, and goes from the one
//! buffer to the other without slots. Each call copies and keeps no pointer, so the operation can
//! be given up at any time.

use comm_core::Result;
use comm_core::fifo::{Offers, SLOTS, SMALL_BYTES};
use comm_core::net::Transfer;

use super::{BlockedOn, Buffers, Ends, Progress};
use crate::edge::ends::{Identity, Outgoing, SendEnd, Taken, no_offers};
use comm_kernels as kernels;

/// Length of an offered slice: long enough to make its bookkeeping cheap, short enough to be
/// waited for by a sender that gives up.
const SLICE_BYTES: usize = 512 << 10;

/// Steps of a message from which on it goes without slots, if it can. Slots let the sender of a
/// shorter one go on before the receiver has come.
const DIRECT_FROM_STEPS: usize = 4;

/// Where a direct transfer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direct {
    /// Nothing was done yet.
    Undecided,
    /// The message goes through slots.
    No,
    /// The empty step is to be sent, or received.
    Announcing,
    /// The bytes are on their way.
    Moving,
}

impl Direct {
    fn decide(len_bytes: usize, step_bytes: usize, supported: impl FnOnce() -> bool) -> Self {
        if len_bytes >= DIRECT_FROM_STEPS * step_bytes && supported() {
            Self::Announcing
        } else {
            Self::No
        }
    }
}

const fn progress_of(transfer: Transfer) -> Progress {
    match transfer {
        Transfer::Done => Progress::Done,
        Transfer::Moved => Progress::Moved,
        Transfer::Blocked => Progress::Blocked,
    }
}

/// Whether a message of this length is offered, if the edge carries offers.
const fn is_offered(len_bytes: usize, step_bytes: usize) -> bool {
    len_bytes > SLOTS * step_bytes
}

/// Blocked, or moved if part of the budget was spent.
const fn stopped(left_bytes: usize, budget_bytes: usize) -> Progress {
    if left_bytes == budget_bytes {
        Progress::Blocked
    } else {
        Progress::Moved
    }
}

/// The sending half of a message.
#[derive(Debug)]
pub(crate) struct SendRun {
    identity: Identity,
    buffers: Buffers,
    len_bytes: usize,
    step_bytes: usize,
    sent_bytes: usize,
    /// What the peer may still read of the buffer, if the message is offered.
    offers: Option<Offers>,
    direct: Direct,
}

impl SendRun {
    pub(crate) const fn new(
        identity: Identity,
        buffers: Buffers,
        len_bytes: usize,
        step_bytes: usize,
    ) -> Self {
        Self {
            identity,
            buffers,
            len_bytes,
            step_bytes,
            sent_bytes: 0,
            offers: None,
            direct: Direct::Undecided,
        }
    }

    pub(crate) fn blocked_on(&self) -> BlockedOn {
        match self.direct {
            Direct::Moving => BlockedOn::DirectSend(0),
            _ if self.offers.is_some() && self.sent_bytes == self.len_bytes => {
                BlockedOn::Acknowledgement(0)
            }
            _ => BlockedOn::Credit(0),
        }
    }

    /// Offers slices as long as there is credit, then waits until all are consumed.
    fn advance_offers(&mut self, end: &mut SendEnd) -> Result<Progress> {
        let Some(offers) = &mut self.offers else {
            return Err(no_offers(end.peer));
        };
        let mut moved = false;
        while self.sent_bytes < self.len_bytes {
            let bytes = (self.len_bytes - self.sent_bytes).min(SLICE_BYTES);
            // SAFETY: `sent_bytes` is less than the length of the buffer.
            let source = unsafe { self.buffers.input.add(self.sent_bytes) };
            // SAFETY: the slice is within the buffer, which stays valid until this operation is
            // done, which needs the step to be consumed, or dropped, which revokes it.
            if !unsafe { end.try_offer(offers, source, bytes, &self.identity) }? {
                break;
            }
            self.sent_bytes += bytes;
            moved = true;
        }
        if self.sent_bytes == self.len_bytes && end.is_acknowledged()? {
            return Ok(Progress::Done);
        }
        Ok(if moved {
            Progress::Moved
        } else {
            Progress::Blocked
        })
    }

    pub(crate) fn advance(&mut self, ends: &mut Ends, budget_bytes: usize) -> Result<Progress> {
        let end = &mut ends.send[0];
        if self.offers.is_none() && is_offered(self.len_bytes, self.step_bytes) {
            self.offers = end.offers_memory().then(|| end.offers()).flatten();
        }
        if self.offers.is_some() {
            return self.advance_offers(end);
        }
        if self.direct == Direct::Undecided {
            let supported = || end.supports_direct();
            self.direct = Direct::decide(self.len_bytes, self.step_bytes, supported);
        }
        if self.direct == Direct::Announcing {
            if end.try_reserve(0)?.is_none() {
                return Ok(Progress::Blocked);
            }
            end.publish(0, &self.identity)?;
            self.direct = Direct::Moving;
        }
        if self.direct == Direct::Moving {
            // SAFETY: the buffer has this length, stays valid, and nobody writes to it before the
            // operation is done or dropped.
            let data = unsafe { std::slice::from_raw_parts(self.buffers.input, self.len_bytes) };
            return end.send_direct(data).map(progress_of);
        }
        let mut budget = budget_bytes;
        loop {
            let bytes = (self.len_bytes - self.sent_bytes).min(self.step_bytes);
            let Some(outgoing) = end.try_reserve(bytes)? else {
                return Ok(stopped(budget, budget_bytes));
            };
            // SAFETY: `sent_bytes` is at most the length of the buffer.
            let from = unsafe { self.buffers.input.add(self.sent_bytes) };
            match outgoing {
                Outgoing::Small => {
                    let mut small = [0; SMALL_BYTES];
                    // SAFETY: `bytes` is at most `SMALL_BYTES` here and within the buffer.
                    unsafe { kernels::copy(small.as_mut_ptr(), from, bytes) };
                    end.publish_small(&small[..bytes], &self.identity)?;
                }
                Outgoing::Slot(slot) => {
                    // SAFETY: `bytes` is at most the slot's capacity and within the buffer.
                    unsafe { kernels::copy_far(slot.data.as_ptr(), from, bytes) };
                    end.publish(bytes, &self.identity)?;
                }
            }
            self.sent_bytes += bytes;
            if self.sent_bytes == self.len_bytes {
                return Ok(Progress::Done);
            }
            budget = budget.saturating_sub(bytes);
            if budget == 0 {
                return Ok(Progress::Moved);
            }
        }
    }
}

/// The receiving half of a message.
#[derive(Debug)]
pub(crate) struct RecvRun {
    identity: Identity,
    buffers: Buffers,
    len_bytes: usize,
    step_bytes: usize,
    received_bytes: usize,
    direct: Direct,
    /// Whether the message goes past the caches, which it would only sweep.
    streams: bool,
}

impl RecvRun {
    pub(crate) fn new(
        identity: Identity,
        buffers: Buffers,
        len_bytes: usize,
        step_bytes: usize,
    ) -> Self {
        Self {
            identity,
            buffers,
            len_bytes,
            step_bytes,
            received_bytes: 0,
            direct: Direct::Undecided,
            streams: len_bytes > step_bytes && len_bytes >= kernels::streaming_from_bytes(),
        }
    }

    pub(crate) fn advance(&mut self, ends: &mut Ends, budget_bytes: usize) -> Result<Progress> {
        let end = &mut ends.recv[0];
        if self.direct == Direct::Undecided {
            let supported = || end.supports_direct();
            self.direct = Direct::decide(self.len_bytes, self.step_bytes, supported);
        }
        if self.direct == Direct::Announcing {
            if end.try_take(&self.identity, 0)?.is_none() {
                return Ok(Progress::Blocked);
            }
            end.consume()?;
            self.direct = Direct::Moving;
        }
        if self.direct == Direct::Moving {
            // SAFETY: the buffer has this length, stays valid, and nobody else accesses it before
            // the operation is done or dropped.
            let data =
                unsafe { std::slice::from_raw_parts_mut(self.buffers.output, self.len_bytes) };
            return end.recv_direct(data).map(progress_of);
        }
        let mut budget = budget_bytes;
        loop {
            let left = self.len_bytes - self.received_bytes;
            let (in_slot, offered) = (left.min(self.step_bytes), left.min(SLICE_BYTES));
            let Some(taken) = end.try_take_or_offer(&self.identity, in_slot, offered)? else {
                return Ok(stopped(budget, budget_bytes));
            };
            // SAFETY: `received_bytes` is at most the length of the buffer.
            let to = unsafe { self.buffers.output.add(self.received_bytes) };
            let bytes = match taken {
                Taken::Payload(payload) => {
                    let from_bytes = if self.streams { 0 } else { usize::MAX };
                    // SAFETY: the step holds `in_slot` bytes and the buffer has room for them.
                    unsafe { kernels::copy_streaming(to, payload, in_slot, from_bytes) };
                    in_slot
                }
                Taken::Offer => {
                    // SAFETY: the buffer has room for the slice. The two do not overlap: one is
                    // borrowed by the sender's call, the other one by this one.
                    if !unsafe { end.pull(0, to, offered, self.streams) }? {
                        return Ok(stopped(budget, budget_bytes));
                    }
                    offered
                }
            };
            end.consume()?;
            self.received_bytes += bytes;
            if self.received_bytes == self.len_bytes {
                return Ok(Progress::Done);
            }
            budget = budget.saturating_sub(bytes);
            if budget == 0 {
                return Ok(Progress::Moved);
            }
        }
    }
}

impl RecvRun {
    /// What a blocked operation waits for.
    pub(crate) fn blocked_on(&self) -> BlockedOn {
        match self.direct {
            Direct::Moving => BlockedOn::DirectRecv(0),
            _ => BlockedOn::Step(0),
        }
    }
}
