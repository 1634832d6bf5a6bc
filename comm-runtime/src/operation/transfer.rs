//! Sending and receiving one message over one edge, in steps.
//!
//! A message of `n` bytes takes `ceil(n / step_bytes)` steps, and an empty message takes one.

use comm_core::Result;
use comm_core::fifo::SMALL_BYTES;

use super::{Buffers, Ends, Progress};
use crate::edge::ends::{Identity, Outgoing};
use crate::kernels;

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
        }
    }

    pub(crate) fn advance(&mut self, ends: &mut Ends, budget_bytes: usize) -> Result<Progress> {
        let end = &mut ends.send[0];
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
                    unsafe { kernels::copy(slot.data.as_ptr(), from, bytes) };
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
}

impl RecvRun {
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
            received_bytes: 0,
        }
    }

    pub(crate) fn advance(&mut self, ends: &mut Ends, budget_bytes: usize) -> Result<Progress> {
        let end = &mut ends.recv[0];
        let mut budget = budget_bytes;
        loop {
            let bytes = (self.len_bytes - self.received_bytes).min(self.step_bytes);
            let Some(payload) = end.try_take(&self.identity, bytes)? else {
                return Ok(stopped(budget, budget_bytes));
            };
            // SAFETY: `received_bytes` is at most the length of the buffer.
            let to = unsafe { self.buffers.output.add(self.received_bytes) };
            // SAFETY: the step holds `bytes` bytes and the buffer has room for them.
            unsafe { kernels::copy(to, payload, bytes) };
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
