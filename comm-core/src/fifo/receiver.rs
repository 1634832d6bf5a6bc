//! The reading end of a step FIFO.

use std::fmt;

use super::{
    Claim, DESCRIPTOR_WORDS, FifoMemory, MAPPED_FLAG, OFFER_FLAG, SLOT_FLAG, SLOTS, SMALL_BYTES,
    offer, protocol_violation, stamp_hash, stamp_is_of,
};
use crate::doorbell::{Doorbell, RingTarget};
use crate::sync::atomic::Ordering;
use crate::{Armed, Error, ErrorKind, Result, StepHeader, StepRead};

/// The reading end of a step FIFO; see [`crate::fifo`] for the contract.
pub struct FifoReceiver {
    pub(super) memory: FifoMemory,
    /// The doorbells of the writing process.
    sender: RingTarget,
    /// The step to be consumed next, from 1.
    pub(super) next: u64,
}

/// A step that has arrived and was not consumed yet.
#[derive(Clone, Copy, Debug)]
pub enum Arrived {
    /// The payload is in the line: read it with [`FifoReceiver::read_small`]. Its length is not
    /// transmitted; equal signatures imply equal lengths.
    Small {
        /// The lower 31 bits of the hash of the sender's signature.
        signature_hash: u32,
    },
    /// The payload is in a slot.
    Slot(StepRead),
    /// The sender offers its own memory: to be used under a [`FifoReceiver::claim`], looked up
    /// ([`FifoReceiver::mapped_offer`]) or [pulled](FifoReceiver::pull).
    Offer(StepHeader),
}

impl Arrived {
    /// The lower 31 bits of the hash of the sender's signature.
    #[must_use]
    #[inline]
    pub const fn signature_hash(&self) -> u32 {
        match self {
            Self::Small { signature_hash } => *signature_hash,
            Self::Slot(step) => step.header.signature_hash,
            Self::Offer(header) => header.signature_hash,
        }
    }
}

impl FifoReceiver {
    pub(super) const fn new(memory: FifoMemory, sender: RingTarget) -> Self {
        Self {
            memory,
            sender,
            next: 1,
        }
    }

    /// Capacity of one slot.
    #[must_use]
    #[inline]
    pub const fn step_bytes(&self) -> usize {
        self.memory.layout().step_bytes()
    }

    /// Steps consumed so far.
    #[must_use]
    #[inline]
    pub const fn consumed(&self) -> u64 {
        self.next - 1
    }

    /// The next step, or `None` if it has not arrived.
    ///
    /// Calling it again before [`FifoReceiver::consume`] yields the same step, except for an offer
    /// that the sender has revoked meanwhile: from then on it counts as not arrived, for good.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::PeerDied`] if the sender is gone and all its steps were consumed,
    /// [`ErrorKind::Protocol`] if the shared words make no sense.
    #[inline]
    pub fn try_step(&mut self) -> Result<Option<Arrived>> {
        // Acquire: pairs with the sender's Release store of the stamp.
        let stamp = self.memory.line(self.next).stamp.load(Ordering::Acquire);
        if stamp_is_of(stamp, self.next) {
            self.arrived(stamp)
        } else {
            self.not_arrived(stamp)
        }
    }

    /// Copies the first bytes of the small step that [`FifoReceiver::try_step`] found.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] for more than [`SMALL_BYTES`] bytes.
    #[inline]
    pub fn read_small(&self, into: &mut [u8]) -> Result<()> {
        if into.len() > SMALL_BYTES {
            return Err(too_much(into.len()));
        }
        let mut words = self.memory.line(self.next).words.iter();
        let mut chunks = into.chunks_exact_mut(size_of::<u64>());
        for (chunk, word) in chunks.by_ref().zip(words.by_ref()) {
            // Relaxed: ordered by the Acquire load of the stamp in `try_step`.
            chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        let rest = chunks.into_remainder();
        if let (false, Some(word)) = (rest.is_empty(), words.next()) {
            // Relaxed: as above.
            let bytes = word.load(Ordering::Relaxed).to_ne_bytes();
            rest.copy_from_slice(&bytes[..rest.len()]);
        }
        Ok(())
    }

    /// Whether this end may use addresses that the sender offers, since both are of one process.
    #[must_use]
    pub const fn carries_offers(&self) -> bool {
        self.memory.allows_offers()
    }

    /// Makes the memory that the next step offers the caller's for the life of the claim.
    ///
    /// `None` if the next step is no offer that has arrived, was revoked, or is claimed already.
    #[must_use]
    pub fn claim(&self) -> Option<Claim<'_>> {
        let line = self.memory.line(self.next);
        // Acquire: pairs with the sender's Release store of the stamp.
        let stamp = line.stamp.load(Ordering::Acquire);
        // Relaxed: ordered by the load of the stamp.
        let is_offer = || line.words[0].load(Ordering::Relaxed) & OFFER_FLAG != 0;
        let arrived = stamp_is_of(stamp, self.next) && stamp & SLOT_FLAG != 0 && is_offer();
        (arrived && self.memory.allows_offers())
            .then(|| Claim::take(&self.memory, self.next))
            .flatten()
    }

    /// Copies what the next step offers from the sender's process, from `offset` bytes on; `false` if
    /// the sender has revoked the offer meanwhile, and what was copied is void.
    ///
    /// For ends in different processes; ends of one process use [`FifoReceiver::claim`]. The step must
    /// be the offer that [`FifoReceiver::try_step`] found, and stays until it is consumed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] if this end cannot read the sender's process, and those of
    /// [`PeerMemory::read`](super::PeerMemory::read).
    ///
    /// # Safety
    ///
    /// `target` must be valid for writing `bytes` bytes.
    pub unsafe fn pull(&self, offset: usize, target: *mut u8, bytes: usize) -> Result<bool> {
        let Some(peer) = self.memory.peer() else {
            return Err(protocol_violation("an offer over an edge without"));
        };
        let source = self.offered_address().wrapping_add(offset as u64);
        // SAFETY: the caller's promise.
        let read = unsafe { peer.read(source, target, bytes) };
        // A sender that has given up may also have unmapped what it offered.
        if self.offer_stands() {
            read.map(|()| true)
        } else {
            Ok(false)
        }
    }

    /// The address, in the sender's process, of what the next step offers, if the sender says that
    /// this end has it mapped.
    ///
    /// Whoever reads the memory looks afterwards whether the [offer
    /// stands](FifoReceiver::offer_stands); if not, what was read is void. The step must be the offer
    /// that [`FifoReceiver::try_step`] found. The address is a number from another process, to be
    /// looked up and never to be used.
    #[must_use]
    pub fn mapped_offer(&self) -> Option<u64> {
        // Relaxed: ordered by the Acquire load of the stamp in `try_step`.
        let bytes = self.memory.line(self.next).words[0].load(Ordering::Relaxed);
        (self.memory.can_look_up() && bytes & MAPPED_FLAG != 0).then(|| self.offered_address())
    }

    /// Whether the sender has not revoked the offer at hand; what was read before is what was offered
    /// then.
    ///
    /// For offers between processes.
    #[must_use]
    pub fn offer_stands(&self) -> bool {
        let word = self.memory.claim(self.next);
        let offered = offer::offered(self.next);
        // AcqRel: what was read comes before a revocation that is ordered behind this. A store of the
        // same value, since a load would not order the reads before it.
        word.compare_exchange(offered, offered, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    fn offered_address(&self) -> u64 {
        // Relaxed: ordered by the Acquire load of the stamp in `try_step`.
        self.memory.line(self.next).words[DESCRIPTOR_WORDS].load(Ordering::Relaxed)
    }

    /// Whether this end has a way to memory that is offered like this.
    const fn reaches(&self, flags: u64) -> bool {
        if flags & MAPPED_FLAG != 0 {
            self.memory.can_look_up()
        } else {
            self.memory.allows_offers() || self.memory.can_pull()
        }
    }

    /// Gives the step that [`FifoReceiver::try_step`] found back to the sender.
    ///
    /// Nothing may read the step's slot, or use what it offered, afterwards. To consume a step that has not arrived is a
    /// bug of the caller, which the sender reports as [`ErrorKind::Protocol`].
    #[inline]
    pub fn consume(&mut self) {
        // Release: the reads of the slot come before its reuse by the sender's Acquire load.
        self.memory
            .control()
            .head
            .0
            .store(self.next, Ordering::Release);
        self.next += 1;
        self.wake_sender();
    }

    /// Asks for `doorbell` to be rung when a step arrives or the sender goes away.
    ///
    /// The ticket for [`Doorbell::wait`] must have been taken before. One ring answers one call;
    /// a ring that was asked for and is no longer needed does no harm.
    ///
    /// # Errors
    ///
    /// As for [`FifoReceiver::try_step`].
    pub fn arm(&mut self, doorbell: &Doorbell) -> Result<Armed> {
        // AcqRel: pairs with the swap in `FifoSender::wake_receiver`.
        self.memory
            .control()
            .receiver_waiter
            .0
            .swap(doorbell.number(), Ordering::AcqRel);
        Ok(if self.try_step()?.is_some() {
            Armed::Ready
        } else {
            Armed::WillRing
        })
    }

    /// Takes back what [`FifoReceiver::arm`] asked for.
    ///
    /// A ring that is already on its way may still come.
    pub fn disarm(&mut self) {
        // Relaxed: nobody looks at anything because of it. A swap and not a store: it must not
        // break the release sequence that the next `arm` synchronises with.
        self.memory
            .control()
            .receiver_waiter
            .0
            .swap(0, Ordering::Relaxed);
    }

    #[inline]
    fn arrived(&self, stamp: u64) -> Result<Option<Arrived>> {
        let signature_hash = stamp_hash(stamp);
        if stamp & SLOT_FLAG == 0 {
            return Ok(Some(Arrived::Small { signature_hash }));
        }
        let words = &self.memory.line(self.next).words;
        // Relaxed: ordered by the Acquire load of the stamp in `try_step`.
        let [bytes, signature @ ..]: [u64; DESCRIPTOR_WORDS] =
            std::array::from_fn(|index| words[index].load(Ordering::Relaxed));
        let is_offer = bytes & OFFER_FLAG != 0 && self.reaches(bytes);
        if bytes > self.step_bytes() as u64 && !is_offer {
            return Err(protocol_violation("length of a step"));
        }
        let header = StepHeader {
            bytes: (bytes & !(OFFER_FLAG | MAPPED_FLAG)) as usize,
            signature_hash,
            signature,
        };
        if is_offer {
            return self.arrived_offer(header);
        }
        Ok(Some(Arrived::Slot(StepRead {
            data: self.memory.slot(self.next),
            header,
        })))
    }

    fn arrived_offer(&self, header: StepHeader) -> Result<Option<Arrived>> {
        // Acquire: what a sender did before it revoked an offer comes before what follows here.
        let claim = self.memory.claim(self.next).load(Ordering::Acquire);
        if claim == offer::revoked(self.next) {
            return self.nothing_yet();
        }
        Ok(Some(Arrived::Offer(header)))
    }

    #[inline]
    fn not_arrived(&self, stamp: u64) -> Result<Option<Arrived>> {
        // The line still holds the step of the previous round, or nothing in the first one.
        let previous = self.next.saturating_sub(SLOTS as u64);
        if !stamp_is_of(stamp, previous) {
            return Err(protocol_violation("number of a step"));
        }
        self.nothing_yet()
    }

    #[inline]
    fn nothing_yet(&self) -> Result<Option<Arrived>> {
        // Acquire: pairs with the Release store in `FifoSender`'s drop.
        if self
            .memory
            .control()
            .sender_closed
            .0
            .load(Ordering::Acquire)
            == 0
        {
            return Ok(None);
        }
        self.last_look()
    }

    /// The sender is gone; it may have published this very step just before.
    #[cold]
    #[inline(never)]
    fn last_look(&self) -> Result<Option<Arrived>> {
        // Acquire: as in `try_step`.
        let stamp = self.memory.line(self.next).stamp.load(Ordering::Acquire);
        // Acquire: as in `arrived_offer`.
        let claim = self.memory.claim(self.next).load(Ordering::Acquire);
        if stamp_is_of(stamp, self.next) && claim != offer::revoked(self.next) {
            return self.arrived(stamp);
        }
        Err(Error::new(
            ErrorKind::PeerDied,
            "the sending end of the edge was closed",
        ))
    }

    #[inline]
    fn wake_sender(&self) {
        // AcqRel: pairs with the swap in `FifoSender::arm`.
        let waiter = self
            .memory
            .control()
            .sender_waiter
            .0
            .swap(0, Ordering::AcqRel);
        if waiter != 0 {
            self.sender.ring(waiter);
        }
    }
}

impl Drop for FifoReceiver {
    fn drop(&mut self) {
        // Release: pairs with the sender's Acquire load in `refresh_credit`.
        self.memory
            .control()
            .receiver_closed
            .0
            .store(1, Ordering::Release);
        self.wake_sender();
    }
}

impl fmt::Debug for FifoReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FifoReceiver")
            .field("consumed", &self.consumed())
            .field("step_bytes", &self.step_bytes())
            .finish_non_exhaustive()
    }
}

#[cold]
#[inline(never)]
fn too_much(bytes: usize) -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        "a small step holds fewer bytes than asked for",
    )
    .with("bytes", bytes)
    .with("capacity_bytes", SMALL_BYTES)
}
