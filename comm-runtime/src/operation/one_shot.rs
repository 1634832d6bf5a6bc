//! All-reduce in one round: everybody sends its whole input to everybody.
//!
//! Each rank folds the inputs in rank order in the accumulator type and rounds once, so all ranks
//! get bitwise equal results whatever the number of elements. One round costs one hop of latency
//! and `n - 1` times the traffic, which is right for small messages.

use std::sync::Arc;

use comm_core::Result;
use comm_core::fifo::SMALL_BYTES;

use super::{BlockedOn, Buffers, Ends, Progress};
use crate::edge::ends::{Identity, Outgoing};
use crate::kernels;
use crate::plan::Plan;

/// A one-shot all-reduce under way.
#[derive(Debug)]
pub(crate) struct OneShotReduce {
    plan: Arc<Plan>,
    identity: Identity,
    buffers: Buffers,
    /// Elements that are complete.
    done: usize,
    /// Peers that got the current chunk.
    sent: usize,
    /// Payloads of the current chunk by rank; null until they arrive.
    payloads: Vec<*const u8>,
    arrived: usize,
}

// SAFETY: the payload pointers belong to the lane's edges, which are used by whoever advances the
// operation, one thread at a time.
unsafe impl Send for OneShotReduce {}

impl OneShotReduce {
    pub(crate) fn new(plan: Arc<Plan>, identity: Identity, buffers: Buffers) -> Self {
        let payloads = vec![std::ptr::null(); plan.world_size as usize];
        Self { plan, identity, buffers, done: 0, sent: 0, payloads, arrived: 0 }
    }

    fn chunk(&self) -> usize {
        (self.plan.count - self.done).min(self.plan.chunk_elements)
    }

    pub(crate) fn advance(&mut self, ends: &mut Ends, budget_bytes: usize) -> Result<Progress> {
        let mut budget = budget_bytes;
        loop {
            if !self.send_chunk(ends)? | !self.receive_chunk(ends)? {
                return Ok(Progress::Blocked);
            }
            let count = self.chunk();
            self.reduce_chunk(ends, count)?;
            self.done += count;
            if self.done == self.plan.count {
                return Ok(Progress::Done);
            }
            budget = budget.saturating_sub(count * self.plan.element_bytes);
            if budget == 0 {
                return Ok(Progress::Moved);
            }
        }
    }

    fn send_chunk(&mut self, ends: &mut Ends) -> Result<bool> {
        let bytes = self.chunk() * self.plan.element_bytes;
        let plan = Arc::clone(&self.plan);
        let Some((_, resolved)) = plan.channels().next() else { return Ok(true) };
        // SAFETY: `done` is at most the plan's count, which is the length of the input.
        let from = unsafe { self.buffers.input.add(self.done * self.plan.element_bytes) };
        while let Some(index) = resolved.send.get(self.sent) {
            let end = &mut ends.send[*index];
            match end.try_reserve(bytes)? {
                None => return Ok(false),
                Some(Outgoing::Small) => {
                    let mut small = [0; SMALL_BYTES];
                    // SAFETY: `bytes` is at most `SMALL_BYTES` here and within the input.
                    unsafe { kernels::copy(small.as_mut_ptr(), from, bytes) };
                    end.publish_small(&small[..bytes], &self.identity)?;
                }
                Some(Outgoing::Slot(slot)) => {
                    // SAFETY: a chunk fits a slot and is within the input.
                    unsafe { kernels::copy(slot.data.as_ptr(), from, bytes) };
                    end.publish(bytes, &self.identity)?;
                }
            }
            self.sent += 1;
        }
        Ok(true)
    }

    fn receive_chunk(&mut self, ends: &mut Ends) -> Result<bool> {
        let bytes = self.chunk() * self.plan.element_bytes;
        let plan = Arc::clone(&self.plan);
        let Some((_, resolved)) = plan.channels().next() else { return Ok(true) };
        if self.arrived < resolved.recv.len() {
            for index in &resolved.recv {
                let end = &mut ends.recv[*index];
                let peer = end.peer as usize;
                if self.payloads[peer].is_null()
                    && let Some(payload) = end.try_take(&self.identity, bytes)?
                {
                    self.payloads[peer] = payload;
                    self.arrived += 1;
                }
            }
        }
        Ok(self.arrived == resolved.recv.len())
    }

    fn reduce_chunk(&mut self, ends: &mut Ends, count: usize) -> Result<()> {
        let offset = self.done * self.plan.element_bytes;
        // SAFETY: `done` is at most the plan's count, which is the length of the input.
        let own = unsafe { self.buffers.input.add(offset) };
        // SAFETY: as above, for the output.
        let target = unsafe { self.buffers.output.add(offset) };
        self.payloads[self.plan.rank as usize] = own;
        if let (Some((dtype, op)), true) = (self.plan.reduction, count > 0) {
            // SAFETY: every payload was checked to hold `count` elements and is not consumed yet;
            // the output covers the chunk and equals the input at most exactly.
            unsafe { kernels::reduce_many(dtype, op, target, &self.payloads, count) };
            if self.plan.average_of > 0 {
                // SAFETY: as above.
                unsafe { kernels::scale(dtype, target, count, self.plan.average_of) };
            }
        }
        let plan = Arc::clone(&self.plan);
        if let Some((_, resolved)) = plan.channels().next() {
            for index in &resolved.recv {
                ends.recv[*index].consume()?;
            }
        }
        self.payloads.fill(std::ptr::null());
        self.arrived = 0;
        self.sent = 0;
        Ok(())
    }

    pub(crate) fn blocked_on(&self, visit: &mut dyn FnMut(BlockedOn)) {
        let Some((_, resolved)) = self.plan.channels().next() else { return };
        if let Some(index) = resolved.send.get(self.sent) {
            visit(BlockedOn::Credit(*index));
        }
        for (index, peer) in resolved.recv.iter().zip(&self.plan.receives_from) {
            if self.payloads[*peer as usize].is_null() {
                visit(BlockedOn::Step(*index));
            }
        }
    }
}
