//! Carries out [programs](super::program): takes, combines, keeps and passes on.
//!
//! A plan's programs advance in turn, each as far as it comes, so one that waits for a peer does
//! not hold up the others.
//!
//! # Offers
//!
//! Over an edge whose receiver reaches this rank's memory, a step of [`OFFER_FROM_BYTES`] or more that
//! is to be found in the user's memory is offered instead of copied to a slot, if the program
//! [leaves it alone](super::program::Program::keeps_what_it_sends) until the peers have it. Between
//! processes that is worth it where all ranks send and receive at the same time. Where data flows one
//! way, slots let the sender's CPU copy too, so large buffers go through them. The operation is done when
//! everything it offered is consumed. Each sender decides for itself; receivers take what comes, and
//! copy it straight to where it belongs.
//!
//! Memory that the peer's process [has mapped](crate::region) is offered whichever way data flows and however large the buffer is.
//! The peer reads it where it is, also to reduce it, and looks afterwards whether the offer stood.

use std::sync::Arc;

use comm_core::fifo::{Offers, SMALL_BYTES};
use comm_core::{Error, ErrorKind, OperationKind, Result};

use super::direct_blocks::{DirectBlocks, Taking};
use super::program::Primitive;
use super::{BlockedOn, Buffers, Ends, Progress};
use crate::edge::ends::{Identity, Outgoing, RecvEnd, Taken};
use crate::plan::{Plan, Resolved};
use crate::region::PeerBytes;
use comm_kernels as kernels;

/// From this size on a step is offered, where that is possible: below, the kernel's part of a copy
/// between processes, and the wait for it at the end, cost more than the second copy.
const OFFER_FROM_BYTES: usize = 16 << 10;

/// Up to this size a buffer that flows one way is offered to other processes: what comes through the
/// caches anyway.
const ONE_WAY_OFFER_BYTES: usize = 512 << 10;

/// A plan's programs under way.
#[derive(Debug)]
pub(crate) struct ProgramRun {
    plan: Arc<Plan>,
    context: Context,
    first: Cursor,
    /// Of the programs after the first one; usually there are none, so nothing is allocated.
    others: Vec<Cursor>,
    /// The blocks that need no steps, once the edges are known.
    direct: Option<DirectBlocks>,
}

/// What all programs of an operation have in common.
#[derive(Debug)]
struct Context {
    identity: Identity,
    buffers: Buffers,
    /// Whether steps may be offered at all.
    may_offer: bool,
    /// Whether they may be offered to peers in other processes.
    may_be_pulled: bool,
    /// Whether results go past the caches, which they would only sweep.
    streams: bool,
    /// What was offered, by sending end.
    offered: Vec<Offered>,
    /// Keeps what is read of peers' memory mapped, while a primitive is carried out.
    mapped: Vec<PeerBytes>,
}

/// What was offered over one sending end.
#[derive(Debug)]
struct Offered {
    index: usize,
    /// Whether it is memory that the peer has mapped.
    mapped: bool,
    offers: Offers,
}

/// How far one program has come.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    next: usize,
    blocked_on: Option<BlockedOn>,
}

impl ProgramRun {
    pub(crate) fn new(plan: Arc<Plan>, identity: Identity, buffers: Buffers) -> Self {
        use OperationKind::{Broadcast, Gather, Reduce, Scatter};
        let one_way = matches!(plan.request().kind, Broadcast | Gather | Reduce | Scatter);
        let block_bytes = plan.count * plan.element_bytes;
        let in_place = plan.request().in_place;
        let may_offer = plan
            .programs()
            .all(|(program, _)| program.keeps_what_it_sends(in_place));
        let start = Cursor {
            next: 0,
            blocked_on: None,
        };
        Self {
            first: start,
            others: vec![start; plan.programs().count().saturating_sub(1)],
            direct: None,
            context: Context {
                identity,
                buffers,
                may_offer,
                may_be_pulled: !one_way || block_bytes <= ONE_WAY_OFFER_BYTES,
                streams: plan.streams,
                offered: Vec::new(),
                mapped: Vec::new(),
            },
            plan,
        }
    }

    /// The same run, of whose first program this many primitives were carried out already.
    pub(crate) const fn starting_at(mut self, next: usize) -> Self {
        self.first.next = next;
        self
    }

    pub(crate) fn advance(&mut self, ends: &mut Ends, budget_bytes: usize) -> Result<Progress> {
        let mut budget = budget_bytes;
        let mut moved_at_all = false;
        let (identity, buffers) = (self.context.identity, self.context.buffers);
        let direct = self
            .direct
            .get_or_insert_with(|| DirectBlocks::new(&self.plan, buffers, ends));
        loop {
            let mut moved = false;
            if !direct.is_done() {
                // What comes must not take the place of what has not gone.
                let keeps = self.context.may_offer;
                let may_receive = keeps || cursors_done(&self.plan, &self.first, &self.others);
                moved = direct.advance(ends, &identity, may_receive, &mut budget)?;
            }
            let network_done = direct.is_done();
            let network_busy = moved && !network_done;
            let mut done = network_done;
            for (place, (program, resolved)) in self.plan.programs().enumerate() {
                let cursor = match place {
                    0 => &mut self.first,
                    other => &mut self.others[other - 1],
                };
                while cursor.next < program.len() {
                    let primitive = program.primitive(cursor.next);
                    if network_busy && primitive.is_local() {
                        // What is in the cache on its way to or from the network stays there.
                        break;
                    }
                    let bytes = primitive.count * self.plan.element_bytes;
                    cursor.blocked_on = match direct.take(&primitive, resolved) {
                        Taking::Not => self
                            .context
                            .carry_out(&primitive, &self.plan, resolved, ends)?,
                        Taking::Whole => {
                            cursor.next += 1;
                            cursor.blocked_on = None;
                            continue;
                        }
                        Taking::Unknown(index) => Some(BlockedOn::Step(index)),
                    };
                    if cursor.blocked_on.is_some() {
                        break;
                    }
                    cursor.next += 1;
                    moved = true;
                    if !network_done {
                        // The network comes first.
                        break;
                    }
                    budget = budget.saturating_sub(bytes.max(64));
                    if budget == 0 {
                        break;
                    }
                }
                done &= cursor.next == program.len();
            }
            if done {
                return self.context.acknowledged(ends);
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
            .for_each(&mut *visit);
        let all_done = cursors_done(&self.plan, &self.first, &self.others);
        if let Some(direct) = &self.direct {
            direct.blocked_on(self.context.may_offer || all_done, visit);
        }
        if all_done {
            for offered in &self.context.offered {
                visit(BlockedOn::Acknowledgement(offered.index));
            }
        }
    }
}

/// Whether all programs have come to their end.
fn cursors_done(plan: &Plan, first: &Cursor, others: &[Cursor]) -> bool {
    let cursors = std::iter::once(first).chain(others);
    plan.programs()
        .zip(cursors)
        .all(|((program, _), cursor)| cursor.next == program.len())
}

/// How a primitive's result goes to one of the edges.
#[derive(Clone, Copy, Debug)]
enum Sent {
    /// In the line.
    Small,
    /// Through this slot.
    Slot(*mut u8),
    /// Read by the peer from here, by the system or under a claim.
    Offer(*const u8),
    /// Read by the peer from where it has this mapped.
    Mapped(*const u8),
}

impl Context {
    /// Carries out one primitive, or says what it waits for.
    #[inline]
    fn carry_out(
        &mut self,
        primitive: &Primitive,
        plan: &Plan,
        resolved: &Resolved,
        ends: &mut Ends,
    ) -> Result<Option<BlockedOn>> {
        let bytes = primitive.count * plan.element_bytes;
        let source = primitive
            .source
            // SAFETY: programs stay within the input, whose length the call checked.
            .map(|offset| unsafe { self.buffers.input.add(offset * plan.element_bytes) });
        let target = primitive
            .target
            // SAFETY: as above, for the output.
            .map(|offset| unsafe { self.buffers.output.add(offset * plan.element_bytes) });
        // Where the result is in the user's memory, if it is; rather where it was already.
        let at_rest = match (source, target) {
            (Some(source), _) if !primitive.combine => Some(source),
            (_, target) => target.map(<*mut u8>::cast_const),
        };
        let at_rest = at_rest.filter(|_| self.may_offer && bytes >= OFFER_FROM_BYTES);
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
            let outgoing = ends.send[index].try_reserve(bytes)?;
            let sent = match (outgoing, at_rest) {
                (None, _) => return Ok(Some(BlockedOn::Credit(index))),
                (Some(Outgoing::Small), _) => Sent::Small,
                (Some(Outgoing::Slot(slot)), Some(at)) => self
                    .offer_of(index, at, bytes, ends)
                    .unwrap_or(Sent::Slot(slot.data.as_ptr())),
                (Some(Outgoing::Slot(slot)), None) => Sent::Slot(slot.data.as_ptr()),
            };
            *reserved = Some((index, sent));
        }
        let mut taken = [None; 2];
        for (taken, edge) in taken
            .iter_mut()
            .zip([primitive.receive, primitive.also_receive])
        {
            let Some(edge) = edge else { break };
            let index = resolved.recv[edge];
            let step = ends.recv[index].try_take_or_offer(&self.identity, bytes, bytes)?;
            *taken = match step {
                None => return Ok(Some(BlockedOn::Step(index))),
                Some(step) => Some((index, step)),
            };
        }

        if primitive.count > 0 {
            // Two small steps are the same bytes.
            let small = small.as_mut_ptr();
            let data = Data {
                source,
                target,
                sent: reserved.map(|reserved| match reserved? {
                    (_, Sent::Small) => Some(small),
                    (_, Sent::Slot(slot)) => Some(slot),
                    (_, Sent::Offer(_) | Sent::Mapped(_)) => None,
                }),
            };
            let mut received = [None; 2];
            for (received, taken) in received.iter_mut().zip(taken) {
                let Some((index, step)) = taken else { break };
                let payload = match step {
                    Taken::Payload(payload) => Some(payload),
                    Taken::Offer => {
                        self.reach(&data, &mut ends.recv[index], primitive.combine, bytes)?
                    }
                };
                // A sender that gives up makes the step one that never arrives.
                let Some(payload) = payload else {
                    return Ok(Some(BlockedOn::Step(index)));
                };
                *received = Some(payload);
            }
            data.compute(received, primitive, plan, self.streams);
            if !self.mapped.is_empty()
                && let Some(void) = self.void(taken.iter().flatten(), ends)
            {
                return Ok(Some(BlockedOn::Step(void)));
            }
        }

        for (index, sent) in reserved.into_iter().flatten() {
            match sent {
                Sent::Small => ends.send[index].publish_small(&small[..bytes], &self.identity)?,
                Sent::Slot(_) => ends.send[index].publish(bytes, &self.identity)?,
                Sent::Offer(at) => self.offer(index, at, false, bytes, ends)?,
                Sent::Mapped(at) => self.offer(index, at, true, bytes, ends)?,
            }
        }
        for (index, _) in taken.into_iter().flatten() {
            ends.recv[index].consume()?;
        }
        Ok(None)
    }

    /// How the peer of a sending end gets at what is to be sent, if it can without a slot.
    #[cold]
    fn offer_of(&mut self, index: usize, at: *const u8, bytes: usize, ends: &Ends) -> Option<Sent> {
        let end = &ends.send[index];
        let mapped = end.is_readable_by_peer(at, bytes);
        let reached = mapped || end.offers_memory() || (self.may_be_pulled && end.is_pulled());
        if !reached {
            return None;
        }
        let known = |offered: &Offered| (offered.index, offered.mapped) == (index, mapped);
        if !self.offered.iter().any(known) {
            let offers = if mapped {
                end.region_offers()
            } else {
                end.offers()
            };
            self.offered.push(Offered {
                index,
                mapped,
                offers: offers?,
            });
        }
        Some(if mapped {
            Sent::Mapped(at)
        } else {
            Sent::Offer(at)
        })
    }

    /// Offers a step for which there is credit.
    fn offer(
        &mut self,
        index: usize,
        at: *const u8,
        mapped: bool,
        bytes: usize,
        ends: &mut Ends,
    ) -> Result<()> {
        let mut offered = self.offered.iter_mut();
        let offered = offered.find(|offered| (offered.index, offered.mapped) == (index, mapped));
        let end = &mut ends.send[index];
        let offered = match offered {
            None => false,
            Some(Offered { offers, .. }) if mapped => {
                // SAFETY: the bytes are the user's, who leaves them alone until the operation is done,
                // which needs the step to be consumed, or dropped, which revokes it. The program
                // leaves them alone too, else it would not be allowed to offer.
                unsafe { end.try_offer_readable(offers, at, bytes, &self.identity) }?
            }
            Some(Offered { offers, .. }) => {
                // SAFETY: as above.
                unsafe { end.try_offer(offers, at, bytes, &self.identity) }?
            }
        };
        if offered {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Internal,
            "a reserved step had no credit",
        ))
    }

    /// Where what a step offers can be read: in the sender's memory, or where it was copied to.
    #[cold]
    fn reach(
        &mut self,
        data: &Data,
        end: &mut RecvEnd,
        combine: bool,
        bytes: usize,
    ) -> Result<Option<*const u8>> {
        match end.offered_bytes(bytes)? {
            Some(mapped) => {
                let payload = mapped.as_ptr();
                end.note_read(bytes);
                self.mapped.push(mapped);
                Ok(Some(payload))
            }
            None => data.pull(end, combine, bytes),
        }
    }

    /// The receiving end whose peer has taken back what was read of its memory, if there is one.
    #[cold]
    fn void<'a>(
        &mut self,
        taken: impl Iterator<Item = &'a (usize, Taken)>,
        ends: &Ends,
    ) -> Option<usize> {
        self.mapped.clear();
        taken
            .filter(|(_, step)| matches!(step, Taken::Offer))
            .map(|(index, _)| *index)
            .find(|index| {
                let end = &ends.recv[*index];
                !end.takes_offers() && !end.offer_stands()
            })
    }

    /// Done once the peers have everything that was offered.
    fn acknowledged(&self, ends: &mut Ends) -> Result<Progress> {
        for offered in &self.offered {
            if !ends.send[offered.index].is_acknowledged()? {
                return Ok(Progress::Blocked);
            }
        }
        Ok(Progress::Done)
    }
}

/// Where the elements of one primitive come from and go to.
struct Data {
    source: Option<*const u8>,
    target: Option<*mut u8>,
    sent: [Option<*mut u8>; 2],
}

impl Data {
    /// Copies what a step offers to where it belongs, or to a place from which it is reduced; where it
    /// is then, or `None` if it was revoked.
    fn pull(&self, end: &mut RecvEnd, combine: bool, bytes: usize) -> Result<Option<*const u8>> {
        let mut destinations = self
            .target
            .into_iter()
            .chain(self.sent.into_iter().flatten());
        match destinations.next().filter(|_| !combine) {
            None => end.pull_to_scratch(bytes),
            Some(to) => {
                // SAFETY: targets and slots hold the primitive's elements. What is offered belongs to
                // the caller of another rank, and slots to nobody.
                let stands = unsafe { end.pull(to, bytes, false) }?;
                Ok(stands.then_some(to.cast_const()))
            }
        }
    }

    fn compute(
        &self,
        received: [Option<*const u8>; 2],
        primitive: &Primitive,
        plan: &Plan,
        streams: bool,
    ) {
        let (count, bytes) = (primitive.count, primitive.count * plan.element_bytes);
        let mut destinations = self
            .target
            .into_iter()
            .chain(self.sent.into_iter().flatten());
        let Some(first) = destinations.next() else {
            return;
        };
        // In each arm, all pointers cover `count` elements: steps were checked to hold that many bytes,
        // slots to take them, and programs stay within the buffers. `first` is `own` or overlaps none
        // of the others.
        match (self.source, received, &plan.reducer) {
            // One pass for a result that is kept and sent.
            (Some(own), [Some(received), None], Some(reducer))
                if primitive.combine && !(primitive.finish && plan.average_of > 1) =>
            {
                match destinations.next() {
                    // SAFETY: see above; the slot overlaps nothing.
                    Some(second) => unsafe {
                        reducer.reduce2(first, second, own, received, count);
                    },
                    // SAFETY: see above.
                    None => unsafe { reducer.reduce(first, own, received, count) },
                }
            }
            (Some(own), [Some(received), also], Some(reducer)) if primitive.combine => {
                let ranks = if primitive.finish {
                    plan.average_of.max(1)
                } else {
                    1
                };
                let sources = [own, received, also.unwrap_or(received)];
                let sources = &sources[..2 + usize::from(also.is_some())];
                // SAFETY: see above.
                unsafe { reducer.reduce_many_scaled(first, sources, count, ranks) };
            }
            (own, [received, _], _) => {
                let Some(from) = received.or(own) else {
                    return;
                };
                let is_there = std::ptr::eq(first.cast_const(), from);
                if is_there {
                    // Nothing is to be moved.
                } else if received.is_none() && Some(first) == self.target && !plan.is_far {
                    // SAFETY: as above; the two ranges are equal (excluded here) or disjoint.
                    unsafe { kernels::copy(first, from, bytes) };
                } else {
                    // A slot is read soon.
                    let past_caches = streams && Some(first) == self.target;
                    let from_bytes = if past_caches { 0 } else { usize::MAX };
                    // SAFETY: as above.
                    unsafe { kernels::copy_streaming(first, from, bytes, from_bytes) };
                }
            }
        }
        for destination in destinations {
            if destination != first {
                // SAFETY: as above; slots overlap neither each other nor the user's memory.
                unsafe { kernels::copy_far(destination, first.cast_const(), bytes) };
            }
        }
    }
}
