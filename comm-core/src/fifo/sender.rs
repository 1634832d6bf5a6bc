//! The writing end of a step FIFO.

use std::fmt;

use super::{
    FifoMemory, MAPPED_FLAG, OFFER_FLAG, Offer, Offers, SLOT_FLAG, SLOTS, SMALL_BYTES, offer,
    protocol_violation, stamp,
};
use crate::doorbell::{Doorbell, RingTarget};
use crate::sync::atomic::Ordering;
use crate::{Armed, Error, ErrorKind, Result, SlotWrite, StepHeader};

/// The writing end of a step FIFO; see [`crate::fifo`] for the contract.
pub struct FifoSender {
    pub(super) memory: FifoMemory,
    /// The doorbells of the reading process.
    receiver: RingTarget,
    /// The step to be published next, from 1.
    pub(super) next: u64,
    /// The receiver's `head` as last seen.
    pub(super) credit: u64,
}

impl FifoSender {
    pub(super) const fn new(memory: FifoMemory, receiver: RingTarget) -> Self {
        Self {
            memory,
            receiver,
            next: 1,
            credit: 0,
        }
    }

    /// Capacity of one slot.
    #[must_use]
    #[inline]
    pub const fn step_bytes(&self) -> usize {
        self.memory.layout().step_bytes()
    }

    /// Steps published so far.
    #[must_use]
    #[inline]
    pub const fn published(&self) -> u64 {
        self.next - 1
    }

    /// Publishes `data` in the step's line; `false` if there is no credit now.
    ///
    /// The lower 31 bits of `signature_hash` travel.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] for more than [`SMALL_BYTES`] bytes,
    /// [`ErrorKind::PeerDied`] if the receiver is gone and its credit is used up,
    /// [`ErrorKind::Protocol`] if the shared words make no sense.
    #[inline]
    pub fn try_send_small(&mut self, data: &[u8], signature_hash: u32) -> Result<bool> {
        if data.len() > SMALL_BYTES {
            return Err(too_long(data.len(), SMALL_BYTES));
        }
        if !self.has_credit()? {
            return Ok(false);
        }
        let line = self.memory.line(self.next);
        let mut words = line.words.iter();
        let mut chunks = data.chunks_exact(size_of::<u64>());
        for (chunk, word) in chunks.by_ref().zip(words.by_ref()) {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(chunk);
            // Relaxed: published by the Release store of the stamp.
            word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
        let rest = chunks.remainder();
        if let (false, Some(word)) = (rest.is_empty(), words.next()) {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            // Relaxed: as above.
            word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
        self.publish_stamp(stamp(self.next, signature_hash, 0));
        Ok(true)
    }

    /// The slot of the next step, or `None` if there is no credit now.
    ///
    /// Calling it again before [`FifoSender::publish`] yields the same slot.
    ///
    /// # Errors
    ///
    /// As for [`FifoSender::try_send_small`].
    #[inline]
    pub fn try_slot(&mut self) -> Result<Option<SlotWrite>> {
        if !self.has_credit()? {
            return Ok(None);
        }
        Ok(Some(SlotWrite {
            data: self.memory.slot(self.next),
            capacity_bytes: self.step_bytes(),
        }))
    }

    /// Publishes the slot that [`FifoSender::try_slot`] handed out.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if `header.bytes` exceeds the slot's capacity or there was
    /// no credit for a slot; as for [`FifoSender::try_send_small`] otherwise. Nothing was published
    /// then, and the end can still be used.
    #[inline]
    pub fn publish(&mut self, header: StepHeader) -> Result<()> {
        if header.bytes > self.step_bytes() {
            return Err(too_long(header.bytes, self.step_bytes()));
        }
        if !self.has_credit()? {
            return Err(not_handed_out());
        }
        let [first, second, third] = header.signature;
        self.publish_words(
            [header.bytes as u64, first, second, third],
            header.signature_hash,
        );
        Ok(())
    }

    /// Whether the receiver may use addresses of this end's memory, since both are of one process.
    #[must_use]
    pub const fn carries_offers(&self) -> bool {
        self.memory.allows_offers()
    }

    /// Whether the receiver, of another process, has said that it pulls.
    #[must_use]
    pub fn is_pulled(&self) -> bool {
        self.memory.receiver_pulls()
    }

    /// What keeps track of the offers of one operation, or `None` if the edge carries none: the
    /// receiver is of another process and has not said that it pulls.
    #[must_use]
    pub fn offers(&self) -> Option<Offers> {
        (self.memory.allows_offers() || self.memory.receiver_pulls())
            .then(|| Offers::new(self.memory.another(), self.next))
    }

    /// As [`FifoSender::offers`], for memory that the receiver has mapped; `None` if it has not said
    /// that it looks there.
    #[must_use]
    pub fn mapped_offers(&self) -> Option<Offers> {
        self.takes_mapped_offers()
            .then(|| Offers::new(self.memory.another(), self.next))
    }

    /// Whether the receiver takes offers of memory that it has mapped.
    #[must_use]
    #[inline]
    pub fn takes_mapped_offers(&self) -> bool {
        !self.memory.allows_offers() && self.memory.receiver_maps()
    }

    /// Publishes an offer of `header.bytes` bytes of this process's memory as the next step;
    /// `false` if there is no credit now.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if `offers` is of another FIFO, or the receiver can't read any
    /// memory ([`FifoSender::offers`]); as for [`FifoSender::try_send_small`] otherwise.
    ///
    /// # Safety
    ///
    /// Until the step is [consumed](FifoSender::is_acknowledged) or `offers` was
    /// [revoked](Offers::revoke) or dropped, `offer.source` must be valid for reading and
    /// `offer.target`, unless null, for writing `header.bytes` bytes by another thread, at the
    /// places that the two ends agreed on.
    pub unsafe fn try_offer(
        &mut self,
        offers: &mut Offers,
        offer: Offer,
        header: StepHeader,
    ) -> Result<bool> {
        if !self.memory.allows_offers() && !self.memory.receiver_pulls() {
            return Err(not_reached());
        }
        self.publish_offer(offers, offer, 0, header)
    }

    /// As [`FifoSender::try_offer`], for memory that the receiver has mapped: `source` is its address
    /// in this process.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if `offers` is of another FIFO or the receiver does not look
    /// addresses up; as for [`FifoSender::try_send_small`] otherwise.
    ///
    /// # Safety
    ///
    /// As for [`FifoSender::try_offer`]. The receiver must have confirmed that it has mapped the whole
    /// range, else it reports the offer as a breach of the protocol.
    pub unsafe fn try_offer_mapped(
        &mut self,
        offers: &mut Offers,
        source: *const u8,
        header: StepHeader,
    ) -> Result<bool> {
        if !self.takes_mapped_offers() {
            return Err(not_reached());
        }
        let offer = Offer {
            source,
            target: std::ptr::null_mut(),
        };
        self.publish_offer(offers, offer, MAPPED_FLAG, header)
    }

    fn publish_offer(
        &mut self,
        offers: &mut Offers,
        offer: Offer,
        flag: u64,
        header: StepHeader,
    ) -> Result<bool> {
        if !offers.are_of(&self.memory) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "memory was offered over another edge than the one that keeps track of it",
            ));
        }
        if !self.has_credit()? {
            return Ok(false);
        }
        // Relaxed: published by the Release store of the stamp.
        self.memory
            .claim(self.next)
            .store(offer::offered(self.next), Ordering::Relaxed);
        offers.extend_to(self.next);
        let [first, second, third] = header.signature;
        let [source, target] = offer.to_words();
        self.publish_words(
            [
                header.bytes as u64 | OFFER_FLAG | flag,
                first,
                second,
                third,
                source,
                target,
            ],
            header.signature_hash,
        );
        Ok(true)
    }

    /// Whether the receiver has consumed every step published so far.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::PeerDied`] if it has not and is gone, [`ErrorKind::Protocol`] if the shared
    /// words make no sense.
    pub fn is_acknowledged(&mut self) -> Result<bool> {
        // The credit of a receiver that is gone is final: looked at after that, it is the last.
        // Acquire: pairs with the Release store in `FifoReceiver`'s drop.
        let closed = self
            .memory
            .control()
            .receiver_closed
            .0
            .load(Ordering::Acquire)
            != 0;
        self.load_credit()?;
        if self.credit == self.published() {
            return Ok(true);
        }
        if closed {
            return Err(receiver_closed());
        }
        Ok(false)
    }

    /// Asks for `doorbell` to be rung when the receiver consumes a step or goes away; ready once
    /// [all are consumed](FifoSender::is_acknowledged).
    ///
    /// As for [`FifoSender::arm`]; the two exclude each other, since an end has one waiter.
    ///
    /// # Errors
    ///
    /// As for [`FifoSender::is_acknowledged`].
    pub fn arm_acknowledged(&mut self, doorbell: &Doorbell) -> Result<Armed> {
        self.swap_waiter(doorbell);
        Ok(if self.is_acknowledged()? {
            Armed::Ready
        } else {
            Armed::WillRing
        })
    }

    /// Asks for `doorbell` to be rung when credit comes back or the receiver goes away.
    ///
    /// The ticket for [`Doorbell::wait`] must have been taken before. One ring answers one call;
    /// a ring that was asked for and is no longer needed does no harm.
    ///
    /// # Errors
    ///
    /// As for [`FifoSender::try_send_small`].
    pub fn arm(&mut self, doorbell: &Doorbell) -> Result<Armed> {
        self.swap_waiter(doorbell);
        Ok(if self.has_credit()? {
            Armed::Ready
        } else {
            Armed::WillRing
        })
    }

    fn swap_waiter(&self, doorbell: &Doorbell) {
        // AcqRel: pairs with the swap in `FifoReceiver::wake_sender`.
        self.memory
            .control()
            .sender_waiter
            .0
            .swap(doorbell.number(), Ordering::AcqRel);
    }

    /// Takes back what [`FifoSender::arm`] or [`FifoSender::arm_acknowledged`] asked for.
    ///
    /// A ring that is already on its way may still come.
    pub fn disarm(&mut self) {
        // Relaxed: nobody looks at anything because of it. A swap and not a store: it must not
        // break the release sequence that the next `arm` synchronises with.
        self.memory
            .control()
            .sender_waiter
            .0
            .swap(0, Ordering::Relaxed);
    }

    /// Publishes the next step with a descriptor.
    #[inline]
    fn publish_words<const N: usize>(&mut self, values: [u64; N], signature_hash: u32) {
        let line = self.memory.line(self.next);
        for (word, value) in line.words.iter().zip(values) {
            // Relaxed: published by the Release store of the stamp.
            word.store(value, Ordering::Relaxed);
        }
        self.publish_stamp(stamp(self.next, signature_hash, SLOT_FLAG));
    }

    #[inline]
    fn publish_stamp(&mut self, stamp: u64) {
        let line = self.memory.line(self.next);
        // Release: pairs with the receiver's Acquire load of the stamp.
        line.stamp.store(stamp, Ordering::Release);
        self.next += 1;
        self.wake_receiver();
    }

    #[inline]
    fn wake_receiver(&self) {
        // AcqRel: pairs with the swap in `FifoReceiver::arm`.
        let waiter = self
            .memory
            .control()
            .receiver_waiter
            .0
            .swap(0, Ordering::AcqRel);
        if waiter != 0 {
            self.receiver.ring(waiter);
        }
    }

    #[inline]
    fn has_credit(&mut self) -> Result<bool> {
        if self.next - self.credit <= SLOTS as u64 {
            return Ok(true);
        }
        self.refresh_credit()
    }

    #[inline]
    fn refresh_credit(&mut self) -> Result<bool> {
        self.load_credit()?;
        if self.next - self.credit <= SLOTS as u64 {
            return Ok(true);
        }
        let control = self.memory.control();
        // Acquire: pairs with the Release store in `FifoReceiver`'s drop.
        if control.receiver_closed.0.load(Ordering::Acquire) != 0 {
            return self.last_credit();
        }
        Ok(false)
    }

    /// The receiver is gone; it may have given credit just before.
    #[cold]
    #[inline(never)]
    fn last_credit(&mut self) -> Result<bool> {
        self.load_credit()?;
        if self.next - self.credit <= SLOTS as u64 {
            return Ok(true);
        }
        Err(receiver_closed())
    }

    #[inline]
    fn load_credit(&mut self) -> Result<()> {
        // Acquire: pairs with the receiver's Release store of `head`.
        let head = self.memory.control().head.0.load(Ordering::Acquire);
        if head < self.credit || head >= self.next {
            return Err(protocol_violation("credit"));
        }
        self.credit = head;
        Ok(())
    }
}

impl Drop for FifoSender {
    fn drop(&mut self) {
        // Release: pairs with the receiver's Acquire load, which then sees every published step.
        self.memory
            .control()
            .sender_closed
            .0
            .store(1, Ordering::Release);
        self.wake_receiver();
    }
}

impl fmt::Debug for FifoSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FifoSender")
            .field("published", &self.published())
            .field("credit", &self.credit)
            .field("step_bytes", &self.step_bytes())
            .finish_non_exhaustive()
    }
}

#[cold]
#[inline(never)]
fn too_long(bytes: usize, capacity_bytes: usize) -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        "the payload of a step exceeds its capacity",
    )
    .with("bytes", bytes)
    .with("capacity_bytes", capacity_bytes)
}

#[cold]
#[inline(never)]
fn not_handed_out() -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        "a slot was published that try_slot had not handed out",
    )
}

#[cold]
#[inline(never)]
fn not_reached() -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        "memory was offered to a receiver that does not reach it",
    )
}

#[cold]
#[inline(never)]
fn receiver_closed() -> Error {
    Error::new(
        ErrorKind::PeerDied,
        "the receiving end of the edge was closed before it took all steps",
    )
}
