//! Long reductions between two ranks over an edge with direct transfers.
//!
//! Each rank sends what the other one reduces straight from its input, as direct transfers of
//! [`SLICE_BYTES`] each. The other one's slices it receives into its output, and adds its own ones there
//! while they are in the cache; in place it receives them into memory of the edge. One empty step
//! announces all of it: by its signature both ranks know that they mean the same elements before the
//! first of them is written anywhere.
//!
//! # Contract
//!
//! * Whether a reduction goes this way is a pure function of its length and of the edge, so both ends
//!   agree.
//! * The result is the one of [`OneShotReduce`](super::OneShotReduce), bit for bit: a fold in the order
//!   of the ranks.
//! * **In place** a slice of the result is written when the same slice of the input has been sent. A
//!   rank that holds a slice back has a peer that has sent it, and so may go on: nobody waits in a
//!   circle.
//! * Nothing but a call of [`DirectFold::advance`] touches the user's memory, so the operation can be
//!   given up at any time.

use std::sync::Arc;

use comm_core::{Rank, Result};

use super::{BlockedOn, Buffers, Ends, Fold, Progress, transferred};
use crate::edge::ends::Identity;
use crate::plan::Plan;

/// Length of a slice: few calls of the system, and with its part of the input and of the output still
/// a part of a second-level cache only.
const SLICE_BYTES: usize = 256 << 10;

/// Steps of a reduction from which on it goes this way.
const DIRECT_FROM_STEPS: usize = 4;

/// A reduction under way.
#[derive(Debug)]
pub(crate) struct DirectFold {
    plan: Arc<Plan>,
    fold: Fold,
    identity: Identity,
    buffers: Buffers,
    /// Elements of a slice.
    slice: usize,
    sending: Stage,
    /// Elements that have been sent.
    sent: usize,
    receiving: Stage,
    /// Elements of the result that are complete.
    done: usize,
}

/// Where one direction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The announcement is to be sent, or received.
    Announcing,
    /// A slice is on its way.
    Moving,
    /// A slice has left or arrived whole.
    Whole,
    /// There is nothing (more) to be done.
    Done,
}

impl DirectFold {
    /// Whether a fold of `count` elements is one between two ranks, and long enough.
    pub(crate) fn is_long_enough(world_size: u32, count: usize, chunk_elements: usize) -> bool {
        world_size == 2 && count >= DIRECT_FROM_STEPS * chunk_elements.max(1)
    }

    /// Whether a fold, whose edges are known, is to go this way.
    pub(crate) fn suits(plan: &Plan, ends: &Ends) -> bool {
        let edges = plan.edges(0);
        let (send, recv) = (&edges.send, &edges.recv);
        Self::is_long_enough(plan.world_size, plan.count, plan.chunk_elements)
            && send.iter().all(|index| ends.send[*index].supports_direct())
            && recv.iter().all(|index| ends.recv[*index].supports_direct())
    }

    pub(crate) fn new(plan: Arc<Plan>, fold: Fold, identity: Identity, buffers: Buffers) -> Self {
        let begin = |edges: &[usize]| match edges {
            [] => Stage::Done,
            _ => Stage::Announcing,
        };
        let edges = plan.edges(0);
        let (sending, receiving) = (begin(&edges.send), begin(&edges.recv));
        Self {
            slice: (SLICE_BYTES / plan.element_bytes.max(1)).max(1),
            fold,
            identity,
            buffers,
            sending,
            sent: 0,
            receiving,
            done: 0,
            plan,
        }
    }

    pub(crate) fn advance(&mut self, ends: &mut Ends, budget_bytes: usize) -> Result<Progress> {
        let mut budget = budget_bytes;
        let mut moved_at_all = false;
        loop {
            let moved = self.send(ends, &mut budget)? | self.receive(ends, &mut budget)?;
            if (self.sending, self.receiving) == (Stage::Done, Stage::Done) {
                return Ok(Progress::Done);
            }
            moved_at_all |= moved;
            if budget == 0 || (moved_at_all && !moved) {
                return Ok(Progress::Moved);
            }
            if !moved {
                return Ok(Progress::Blocked);
            }
        }
    }

    /// Sends what the network takes of one slice.
    fn send(&mut self, ends: &mut Ends, budget: &mut usize) -> Result<bool> {
        let Some(index) = self.plan.edges(0).send.first() else {
            return Ok(false);
        };
        let end = &mut ends.send[*index];
        if self.sending == Stage::Announcing {
            if end.try_reserve(0)?.is_none() {
                return Ok(false);
            }
            end.publish(0, &self.identity)?;
            self.sending = Stage::Moving;
        }
        if self.sending != Stage::Moving {
            return Ok(false);
        }
        let count = self.slice_at(self.sent);
        let from = self.source(end.peer, self.sent);
        // SAFETY: the slice is within the input, which stays valid; in place it is written only when
        // it has been sent.
        let data = unsafe { std::slice::from_raw_parts(from, count * self.plan.element_bytes) };
        let moved = transferred(
            end.send_direct(data)?,
            &mut self.sending,
            Stage::Whole,
            budget,
        );
        if self.sending == Stage::Whole {
            self.sent += count;
            self.sending = self.after(self.sent);
        }
        Ok(moved)
    }

    /// Receives what has come of one slice, and reduces it when it is whole.
    fn receive(&mut self, ends: &mut Ends, budget: &mut usize) -> Result<bool> {
        let Some(index) = self.plan.edges(0).recv.first() else {
            return Ok(false);
        };
        let end = &mut ends.recv[*index];
        if self.receiving == Stage::Announcing {
            if end.try_take(&self.identity, 0)?.is_none() {
                return Ok(false);
            }
            end.consume()?;
            self.receiving = Stage::Moving;
        }
        let (count, in_place) = (self.slice_at(self.done), self.plan.request().in_place);
        let mut moved = false;
        if self.receiving == Stage::Moving {
            let bytes = count * self.plan.element_bytes;
            let transfer = if in_place {
                end.recv_direct_to_scratch(bytes)?
            } else {
                // SAFETY: the slice is within the output, which stays valid, and nobody else accesses
                // it before the operation is done or dropped.
                let data = unsafe { std::slice::from_raw_parts_mut(self.target(), bytes) };
                end.recv_direct(data)?
            };
            moved = transferred(transfer, &mut self.receiving, Stage::Whole, budget);
        }
        let held = in_place && self.sent <= self.done && self.sending != Stage::Done;
        if self.receiving != Stage::Whole || held {
            return Ok(moved);
        }
        let (peer, theirs) = if in_place {
            (end.peer, end.scratch())
        } else {
            (end.peer, self.target().cast_const())
        };
        self.reduce(peer, theirs, count);
        self.done += count;
        self.receiving = self.after(self.done);
        Ok(true)
    }

    /// The stage of a direction in which so many elements are complete.
    fn after(&self, elements: usize) -> Stage {
        if elements == self.plan.count {
            Stage::Done
        } else {
            Stage::Moving
        }
    }

    /// Length of the slice that begins here.
    fn slice_at(&self, begin: usize) -> usize {
        (self.plan.count - begin).min(self.slice)
    }

    /// What this rank has of `peer`'s part, from an element on.
    fn source(&self, peer: Rank, begin: usize) -> *const u8 {
        let offset = peer as usize * self.fold.source_stride + begin;
        // SAFETY: the input holds the plan's count for each stride, of which `begin` is less.
        unsafe { self.buffers.input.add(offset * self.plan.element_bytes) }
    }

    /// Where the slice under way belongs in the output.
    fn target(&self) -> *mut u8 {
        // SAFETY: `done` is at most the plan's count, which is the length of the output.
        unsafe { self.buffers.output.add(self.done * self.plan.element_bytes) }
    }

    /// Reduces a slice of the peer's with the own one.
    fn reduce(&self, peer: Rank, theirs: *const u8, count: usize) {
        let Some(reducer) = &self.plan.reducer else {
            return;
        };
        let mut sources = [self.source(self.plan.rank, self.done), theirs];
        if peer < self.plan.rank {
            sources.reverse();
        }
        let (target, ranks) = (self.target(), self.plan.average_of.max(1));
        // Input, output and what was received hold the slice's elements; the output is the own input, or
        // what was received, or overlaps neither.
        if ranks == 1 {
            // SAFETY: see above.
            unsafe { reducer.reduce(target, sources[0], sources[1], count) };
        } else {
            // SAFETY: see above.
            unsafe { reducer.reduce_many_scaled(target, &sources, count, ranks) };
        }
    }

    /// Names the edges for which it waits.
    pub(crate) fn blocked_on(&self, visit: &mut dyn FnMut(BlockedOn)) {
        let edges = self.plan.edges(0);
        for index in &edges.send {
            match self.sending {
                Stage::Announcing => visit(BlockedOn::Credit(*index)),
                Stage::Moving | Stage::Whole => visit(BlockedOn::DirectSend(*index)),
                Stage::Done => {}
            }
        }
        for index in &edges.recv {
            match self.receiving {
                Stage::Announcing => visit(BlockedOn::Step(*index)),
                Stage::Moving => visit(BlockedOn::DirectRecv(*index)),
                // Held back until more has been sent.
                Stage::Whole | Stage::Done => {}
            }
        }
    }
}
