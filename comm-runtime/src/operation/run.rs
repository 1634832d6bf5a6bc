//! Carries out [programs](super::program): takes, combines, keeps and passes on.

use std::sync::Arc;

use comm_core::Result;
use comm_core::fifo::SMALL_BYTES;

use super::program::Primitive;
use super::{BlockedOn, Buffers, Ends, Progress};
use crate::edge::ends::{Identity, Outgoing};
use crate::kernels;
use crate::plan::{Plan, Resolved};

/// A plan's programs, one per channel, under way.
#[derive(Debug)]
pub(crate) struct ProgramRun {
    plan: Arc<Plan>,
    identity: Identity,
    buffers: Buffers,
    first: Cursor,
    /// Channels after the first one; usually none, so that nothing is allocated.
    others: Vec<Cursor>,
}

/// How far one channel has come.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    next: usize,
    blocked_on: Option<BlockedOn>,
}

impl ProgramRun {
    pub(crate) fn new(plan: Arc<Plan>, identity: Identity, buffers: Buffers) -> Self {
        let start = Cursor {
            next: 0,
            blocked_on: None,
        };
        Self {
            first: start,
            others: vec![start; plan.channels.len().saturating_sub(1)],
            plan,
            identity,
            buffers,
        }
    }

    pub(crate) fn advance(&mut self, ends: &mut Ends, budget_bytes: usize) -> Result<Progress> {
        let mut budget = budget_bytes;
        let mut moved_at_all = false;
        loop {
            let mut moved = false;
            let mut done = true;
            for (channel, (program, resolved)) in self.plan.channels().enumerate() {
                let cursor = match channel {
                    0 => &mut self.first,
                    other => &mut self.others[other - 1],
                };
                while cursor.next < program.len() {
                    let primitive = program.primitive(cursor.next);
                    let bytes = primitive.count * self.plan.element_bytes;
                    cursor.blocked_on = carry_out(
                        &primitive,
                        &self.plan,
                        resolved,
                        &self.identity,
                        self.buffers,
                        ends,
                    )?;
                    if cursor.blocked_on.is_some() {
                        break;
                    }
                    cursor.next += 1;
                    moved = true;
                    budget = budget.saturating_sub(bytes.max(64));
                    if budget == 0 {
                        break;
                    }
                }
                done &= cursor.next == program.len();
            }
            if done {
                return Ok(Progress::Done);
            }
            if budget == 0 {
                return Ok(Progress::Moved);
            }
            if !moved {
                return Ok(if moved_at_all {
                    Progress::Moved
                } else {
                    Progress::Blocked
                });
            }
            moved_at_all = true;
        }
    }

    pub(crate) fn blocked_on(&self, visit: &mut dyn FnMut(BlockedOn)) {
        let cursors = std::iter::once(&self.first).chain(&self.others);
        cursors
            .filter_map(|cursor| cursor.blocked_on)
            .for_each(visit);
    }
}

/// Carries out one primitive, or says what it waits for.
#[inline]
fn carry_out(
    primitive: &Primitive,
    plan: &Plan,
    resolved: &Resolved,
    identity: &Identity,
    buffers: Buffers,
    ends: &mut Ends,
) -> Result<Option<BlockedOn>> {
    let bytes = primitive.count * plan.element_bytes;
    let outgoing = match primitive.send {
        None => None,
        Some(edge) => {
            let index = resolved.send[edge];
            match ends.send[index].try_reserve(bytes)? {
                None => return Ok(Some(BlockedOn::Credit(index))),
                Some(outgoing) => Some((index, outgoing)),
            }
        }
    };
    let incoming = match primitive.receive {
        None => None,
        Some(edge) => {
            let index = resolved.recv[edge];
            match ends.recv[index].try_take(identity, bytes)? {
                None => return Ok(Some(BlockedOn::Step(index))),
                Some(payload) => Some((index, payload)),
            }
        }
    };

    let mut small = [0_u8; SMALL_BYTES];
    let sent = outgoing.as_ref().map(|(_, outgoing)| match outgoing {
        Outgoing::Small => small.as_mut_ptr(),
        Outgoing::Slot(slot) => slot.data.as_ptr(),
    });
    let data = Data {
        received: incoming.map(|(_, payload)| payload),
        // SAFETY: programs stay within the plan's count, which is the length of the buffers.
        source: primitive
            .source
            .map(|offset| unsafe { buffers.input.add(offset * plan.element_bytes) }),
        target: primitive
            .target
            // SAFETY: as above.
            .map(|offset| unsafe { buffers.output.add(offset * plan.element_bytes) }),
        sent,
    };
    if primitive.count > 0 {
        data.compute(primitive, plan);
    }

    if let Some((index, outgoing)) = outgoing {
        match outgoing {
            Outgoing::Small => ends.send[index].publish_small(&small[..bytes], identity)?,
            Outgoing::Slot(_) => ends.send[index].publish(bytes, identity)?,
        }
    }
    if let Some((index, _)) = incoming {
        ends.recv[index].consume()?;
    }
    Ok(None)
}

/// Where the elements of one primitive come from and go to.
struct Data {
    received: Option<*const u8>,
    source: Option<*const u8>,
    target: Option<*mut u8>,
    sent: Option<*mut u8>,
}

impl Data {
    fn compute(&self, primitive: &Primitive, plan: &Plan) {
        let bytes = primitive.count * plan.element_bytes;
        let Some(first) = self.target.or(self.sent) else {
            return;
        };
        let (from, reduced_with) = match (self.received, self.source) {
            (Some(received), Some(source)) if primitive.combine => (source, Some(received)),
            (Some(received), _) => (received, None),
            (None, Some(source)) => (source, None),
            (None, None) => return,
        };
        match (reduced_with, &plan.reducer) {
            (Some(other), Some(reducer)) => {
                // SAFETY: all pointers cover `count` elements: steps were checked to
                // hold that many bytes, slots to take them, buffers by the plan's count. `first`
                // equals `from` at most exactly (in place).
                unsafe { reducer.reduce(first, from, other, primitive.count) };
                if primitive.finish && plan.average_of > 0 {
                    // SAFETY: as above.
                    unsafe { reducer.scale(first, primitive.count, plan.average_of) };
                }
            }
            _ => {
                if !std::ptr::eq(first.cast_const(), from) {
                    // SAFETY: as above; the two ranges are equal (excluded here) or disjoint.
                    unsafe { kernels::copy(first, from, bytes) };
                }
            }
        }
        if let (Some(target), Some(sent)) = (self.target, self.sent) {
            // SAFETY: as above; a slot never overlaps the user's memory.
            unsafe { kernels::copy(sent, target.cast_const(), bytes) };
        }
    }
}
