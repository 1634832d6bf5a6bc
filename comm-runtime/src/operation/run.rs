//! Carries out [programs](super::program): takes, combines, keeps and passes on.
//!
//! A plan's programs advance in turn, each as far as it comes, so one that waits for a peer does
//! not hold up the others.

use std::sync::Arc;

use comm_core::Result;
use comm_core::fifo::SMALL_BYTES;

use super::program::Primitive;
use super::{BlockedOn, Buffers, Ends, Progress};
use crate::edge::ends::{Identity, Outgoing};
use crate::plan::{Plan, Resolved};
use comm_kernels as kernels;

/// A plan's programs under way.
#[derive(Debug)]
pub(crate) struct ProgramRun {
    plan: Arc<Plan>,
    identity: Identity,
    buffers: Buffers,
    first: Cursor,
    /// Of the programs after the first one; usually there are none, so nothing is allocated.
    others: Vec<Cursor>,
}

/// How far one program has come.
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
            others: vec![start; plan.programs().count().saturating_sub(1)],
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
            for (place, (program, resolved)) in self.plan.programs().enumerate() {
                let cursor = match place {
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
    // Asking twice for a slot or a step gives the same one, so whatever is missing in the end, the
    // primitive can be tried again from the start.
    let mut small = [0_u8; SMALL_BYTES];
    let mut reserved = [None; 2];
    for (reserved, edge) in reserved
        .iter_mut()
        .zip([primitive.send, primitive.also_send])
    {
        let Some(edge) = edge else { break };
        let index = resolved.send[edge];
        *reserved = match ends.send[index].try_reserve(bytes)? {
            None => return Ok(Some(BlockedOn::Credit(index))),
            Some(Outgoing::Small) => Some((index, None)),
            Some(Outgoing::Slot(slot)) => Some((index, Some(slot.data.as_ptr()))),
        };
    }
    let mut taken = [None; 2];
    for (taken, edge) in taken
        .iter_mut()
        .zip([primitive.receive, primitive.also_receive])
    {
        let Some(edge) = edge else { break };
        let index = resolved.recv[edge];
        *taken = match ends.recv[index].try_take(identity, bytes)? {
            None => return Ok(Some(BlockedOn::Step(index))),
            Some(payload) => Some((index, payload)),
        };
    }

    if primitive.count > 0 {
        // Two small steps are the same bytes.
        let small = small.as_mut_ptr();
        let data = Data {
            received: taken.map(|taken| taken.map(|(_, payload)| payload)),
            source: primitive
                .source
                // SAFETY: programs stay within the input, whose length the call checked.
                .map(|offset| unsafe { buffers.input.add(offset * plan.element_bytes) }),
            target: primitive
                .target
                // SAFETY: as above, for the output.
                .map(|offset| unsafe { buffers.output.add(offset * plan.element_bytes) }),
            sent: reserved.map(|reserved| reserved.map(|(_, slot)| slot.unwrap_or(small))),
        };
        data.compute(primitive, plan);
    }

    for (index, slot) in reserved.into_iter().flatten() {
        match slot {
            None => ends.send[index].publish_small(&small[..bytes], identity)?,
            Some(_) => ends.send[index].publish(bytes, identity)?,
        }
    }
    for (index, _) in taken.into_iter().flatten() {
        ends.recv[index].consume()?;
    }
    Ok(None)
}

/// Where the elements of one primitive come from and go to.
struct Data {
    received: [Option<*const u8>; 2],
    source: Option<*const u8>,
    target: Option<*mut u8>,
    sent: [Option<*mut u8>; 2],
}

impl Data {
    fn compute(&self, primitive: &Primitive, plan: &Plan) {
        let (count, bytes) = (primitive.count, primitive.count * plan.element_bytes);
        let mut destinations = self
            .target
            .into_iter()
            .chain(self.sent.into_iter().flatten());
        let Some(first) = destinations.next() else {
            return;
        };
        match (self.source, self.received, &plan.reducer) {
            (Some(own), [Some(received), also], Some(reducer)) if primitive.combine => {
                let ranks = if primitive.finish {
                    plan.average_of.max(1)
                } else {
                    1
                };
                // In each arm, all pointers cover `count` elements: steps were checked to hold
                // that many bytes, slots to take them, and programs stay within the buffers.
                // `first` is `own` or overlaps none of the others.
                match also {
                    None if ranks == 1 => {
                        // SAFETY: see above.
                        unsafe { reducer.reduce(first, own, received, count) };
                    }
                    None => {
                        // SAFETY: see above.
                        unsafe {
                            reducer.reduce_many_scaled(first, &[own, received], count, ranks)
                        };
                    }
                    Some(also) => {
                        let sources = [own, received, also];
                        // SAFETY: see above.
                        unsafe { reducer.reduce_many_scaled(first, &sources, count, ranks) };
                    }
                }
            }
            (own, [received, _], _) => {
                let Some(from) = received.or(own) else {
                    return;
                };
                if !std::ptr::eq(first.cast_const(), from) {
                    // SAFETY: as above; the two ranges are equal (excluded here) or disjoint.
                    unsafe { kernels::copy(first, from, bytes) };
                }
            }
        }
        for destination in destinations {
            if destination != first {
                // SAFETY: as above; slots overlap neither each other nor the user's memory.
                unsafe { kernels::copy(destination, first.cast_const(), bytes) };
            }
        }
    }
}
