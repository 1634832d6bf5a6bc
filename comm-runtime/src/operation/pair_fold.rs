//! The one-shot reduction of a single chunk between two ranks: send, receive, combine.
//!
//! # Contract
//!
//! * As for every [operation](super). It sends what [`OneShotReduce`] sends and computes what that
//!   computes, which can go on from any point.

use std::sync::Arc;

use comm_core::fifo::SMALL_BYTES;
use comm_core::{Rank, Result};

use super::{Buffers, Ends, Fold, HostOperation, OneShotReduce, Progress};
use crate::edge::ends::{Identity, Taken};
use crate::plan::{Plan, Resolved};

/// Such a reduction under way.
#[derive(Debug)]
pub(crate) struct PairFold<'a> {
    plan: &'a Plan,
    fold: Fold,
    edges: &'a Resolved,
    identity: &'a Identity,
    buffers: Buffers,
    bytes: usize,
    sent: bool,
    /// Private copy of a small step's payload.
    small: [u64; SMALL_BYTES / size_of::<u64>()],
}

impl<'a> PairFold<'a> {
    #[inline]
    pub(crate) const fn new(
        plan: &'a Plan,
        fold: Fold,
        edges: &'a Resolved,
        identity: &'a Identity,
        buffers: Buffers,
    ) -> Self {
        Self {
            plan,
            fold,
            edges,
            identity,
            buffers,
            bytes: plan.count * plan.element_bytes,
            sent: false,
            small: [0; SMALL_BYTES / size_of::<u64>()],
        }
    }

    /// What this rank has of what `peer` reduces.
    #[inline]
    const fn source(&self, peer: Rank) -> *const u8 {
        let offset = peer as usize * self.fold.source_stride * self.plan.element_bytes;
        self.buffers.input.wrapping_add(offset)
    }

    #[inline]
    pub(crate) fn advance(&mut self, ends: &mut Ends) -> Result<Progress> {
        if !self.sent {
            if let [index] = self.edges.send[..] {
                let end = &mut ends.send[index];
                let from = self.source(end.peer);
                // SAFETY: the input holds the plan's count for each stride.
                if !unsafe { end.try_send(from, self.bytes, self.identity) }? {
                    return Ok(Progress::Blocked);
                }
            }
            self.sent = true;
        }
        let [index] = self.edges.recv[..] else {
            return Ok(Progress::Done);
        };
        let end = &mut ends.recv[index];
        if self.bytes <= SMALL_BYTES {
            let small = self.small.as_mut_ptr().cast::<u8>();
            // SAFETY: `small` is long enough.
            if !unsafe { end.try_recv(small, self.bytes, self.identity) }? {
                return Ok(Progress::Blocked);
            }
            self.combine(small, end.peer);
            return Ok(Progress::Done);
        }
        match end.try_take_or_offer(self.identity, self.bytes, self.bytes)? {
            None => Ok(Progress::Blocked),
            Some(Taken::Payload(received)) => {
                self.combine(received, end.peer);
                end.consume()?;
                Ok(Progress::Done)
            }
            // For somebody who knows what to do with it.
            Some(Taken::Offer) => Ok(Progress::Moved),
        }
    }

    /// Reduces in rank order, so that both ranks get bitwise equal results.
    #[inline]
    fn combine(&self, received: *const u8, peer: Rank) {
        let Some(reducer) = &self.plan.reducer else {
            return;
        };
        let (target, count) = (self.buffers.output, self.plan.count);
        let own = self.source(self.plan.rank);
        let (first, second) = if self.plan.rank < peer {
            (own, received)
        } else {
            (received, own)
        };
        if self.plan.average_of > 1 {
            let sources = [first, second];
            // SAFETY: what was received was checked to hold `count` elements and stays until it was
            // read; the output covers them, and is the own input or overlaps nothing.
            unsafe {
                reducer.reduce_many_scaled(target, &sources, count, self.plan.average_of);
            }
        } else {
            // SAFETY: as above.
            unsafe { reducer.reduce(target, first, second, count) };
        }
    }

    /// The same operation, at the same point, as one that can be handed on.
    pub(crate) fn keeping(self, plan: Arc<Plan>) -> HostOperation {
        let run = OneShotReduce::new(plan, self.fold, *self.identity, self.buffers);
        let sent = usize::from(self.sent);
        HostOperation::OneShotReduce(run.having_sent(sent))
    }
}
