//! Carrying out one [`Primitive`]: through slots, or by offers of the user's memory.
//!
//! # Offers
//!
//! Over an edge whose receiver reaches this rank's memory, a step of [`OFFER_FROM_BYTES`] or more that
//! is to be found in the user's memory is offered instead of copied to a slot, if the program
//! [leaves it alone](super::program::Program::keeps_what_it_sends) until the peers have it. Between
//! processes that is worth it where all ranks send and receive at the same time. Where data flows one
//! way, slots let the sender's CPU copy too, so large buffers go through them, and small ones, for which
//! the peer need not be waited for in the end. The operation is done when
//! everything it offered is consumed. Each sender decides for itself; receivers take what comes, and
//! copy it straight to where it belongs. The blocks of an exchange are offered
//! [whole](super::offered_blocks), by what is here too.
//!
//! Memory that the peer's process [has mapped](crate::region) is offered whichever way data flows and however large the buffer is.
//! The peer reads it where it is, also to reduce it, and looks afterwards whether the offer stood.

use std::ops::RangeInclusive;

use comm_core::fifo::{Offers, SMALL_BYTES};
use comm_core::{Error, ErrorKind, Result};

use super::data::Data;
use super::program::Primitive;
use super::{BlockedOn, Buffers, Ends, Progress};
use crate::edge::ends::{Identity, Outgoing, RecvEnd, Taken};
use crate::plan::{Plan, Resolved};
use crate::region::PeerBytes;

/// From this size on a step is offered, where that is possible: below, the wait for the peer at the end
/// costs more than the second copy.
pub(crate) const OFFER_FROM_BYTES: usize = 16 << 10;

/// From this size on a block that all ranks exchange is offered to other processes, to be copied by the
/// system. Below, slots lose less with old data than they win with data that was just written, which the
/// system's copy does not ask for ahead.
pub(super) const PULLED_FROM_BYTES: usize = 128 << 10;

/// Sizes of a block that flows one way and is offered to other processes, to be copied by the system.
/// Below as above; beyond, both CPUs are needed.
pub(super) const ONE_WAY_PULLS_BYTES: RangeInclusive<usize> = 128 << 10..=512 << 10;

/// What all programs of an operation have in common.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) identity: Identity,
    pub(super) buffers: Buffers,
    /// Whether steps may be offered at all.
    pub(super) may_offer: bool,
    /// Whether they may be offered to peers in other processes.
    pub(super) may_be_pulled: bool,
    /// Whether results go past the caches, which they would only sweep.
    pub(super) streams: bool,
    /// What was offered, by sending end.
    pub(super) offered: Vec<Offered>,
    /// Keeps what is read of peers' memory mapped, while a primitive is carried out.
    pub(super) mapped: Vec<PeerBytes>,
}

/// What was offered over one sending end.
#[derive(Debug)]
pub(super) struct Offered {
    pub(super) index: usize,
    /// Whether it is memory that the peer has mapped.
    mapped: bool,
    offers: Offers,
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
    pub(super) fn carry_out(
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

    /// Offers a block in one step; whether the peer can reach it, or `None` if there is no credit now.
    pub(super) fn offer_whole(
        &mut self,
        index: usize,
        at: *const u8,
        bytes: usize,
        ends: &mut Ends,
    ) -> Result<Option<bool>> {
        let Some(sent) = self.offer_of(index, at, bytes, ends) else {
            return Ok(Some(false));
        };
        if ends.send[index].try_reserve(bytes)?.is_none() {
            return Ok(None);
        }
        self.offer(index, at, matches!(sent, Sent::Mapped(_)), bytes, ends)?;
        Ok(Some(true))
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
        match end.offered_bytes(0, bytes)? {
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
    pub(super) fn acknowledged(&self, ends: &mut Ends) -> Result<Progress> {
        for offered in &self.offered {
            if !ends.send[offered.index].is_acknowledged()? {
                return Ok(Progress::Blocked);
            }
        }
        Ok(Progress::Done)
    }
}
