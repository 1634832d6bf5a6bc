//! The one-shot reduction of a single chunk between two ranks: send, receive, combine.
//!
//! # Contract
//!
//! * As for every [operation](super). It sends what [`OneShotReduce`] sends and computes what that
//!   computes, which can go on from any point.

use std::sync::Arc;

use comm_core::Result;

use super::{Buffers, Ends, Fold, HostOperation, OneShotReduce, Progress};
use crate::edge::ends::{Identity, Taken};
use crate::plan::Plan;

/// Such a reduction under way.
#[derive(Debug)]
pub(crate) struct PairFold<'a> {
    plan: &'a Plan,
    fold: Fold,
    identity: Identity,
    buffers: Buffers,
    bytes: usize,
    sent: bool,
}

impl<'a> PairFold<'a> {
    #[inline]
    pub(crate) const fn new(
        plan: &'a Plan,
        fold: Fold,
        identity: Identity,
        buffers: Buffers,
    ) -> Self {
        Self {
            plan,
            fold,
            identity,
            buffers,
            bytes: plan.count * plan.element_bytes,
            sent: false,
        }
    }

    /// What this rank has of what `peer` reduces.
    #[inline]
    const fn source(&self, peer: u32) -> *const u8 {
        let offset = peer as usize * self.fold.source_stride * self.plan.element_bytes;
        self.buffers.input.wrapping_add(offset)
    }

    #[inline]
    pub(crate) fn advance(&mut self, ends: &mut Ends) -> Result<Progress> {
        let edges = self.plan.edges(0);
        if !self.sent {
            if let [index] = edges.send[..] {
                let end = &mut ends.send[index];
                let from = self.source(end.peer);
                // SAFETY: the input holds the plan's count for each stride.
                if !unsafe { end.try_send(from, self.bytes, &self.identity) }? {
                    return Ok(Progress::Blocked);
                }
            }
            self.sent = true;
        }
        let [index] = edges.recv[..] else {
            return Ok(Progress::Done);
        };
        let end = &mut ends.recv[index];
        let received = match end.try_take_or_offer(&self.identity, self.bytes, self.bytes)? {
            None => return Ok(Progress::Blocked),
            Some(Taken::Payload(received)) => received,
            // For somebody who knows what to do with it.
            Some(Taken::Offer) => return Ok(Progress::Moved),
        };
        self.combine(received, end.peer);
        end.consume()?;
        Ok(Progress::Done)
    }

    /// Reduces in rank order, so that both ranks get bitwise equal results.
    #[inline]
    fn combine(&self, received: *const u8, peer: u32) {
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
            // SAFETY: the step was checked to hold `count` elements and is not consumed yet; the output
            // covers them, and is the own input or overlaps nothing.
            unsafe {
                reducer.reduce_many_scaled(target, &[first, second], count, self.plan.average_of);
            }
        } else {
            // SAFETY: as above.
            unsafe { reducer.reduce(target, first, second, count) };
        }
    }

    /// The same operation, at the same point, as one that can be handed on.
    pub(crate) fn keeping(self, plan: Arc<Plan>) -> HostOperation {
        let run = OneShotReduce::new(plan, self.fold, self.identity, self.buffers);
        let sent = usize::from(self.sent);
        HostOperation::OneShotReduce(run.having_sent(sent))
    }
}
