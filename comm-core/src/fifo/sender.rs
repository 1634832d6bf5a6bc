//! The writing end of a step FIFO.

use std::fmt;

use super::{FifoMemory, SLOT_FLAG, SLOTS, SMALL_BYTES, protocol_violation, stamp};
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
        let line = self.memory.line(self.next);
        let [first, second, third] = header.signature;
        for (word, value) in line
            .words
            .iter()
            .zip([header.bytes as u64, first, second, third])
        {
            // Relaxed: published by the Release store of the stamp.
            word.store(value, Ordering::Relaxed);
        }
        self.publish_stamp(stamp(self.next, header.signature_hash, SLOT_FLAG));
        Ok(())
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
        // AcqRel: pairs with the swap in `FifoReceiver::wake_sender`.
        self.memory
            .control()
            .sender_waiter
            .0
            .swap(doorbell.number(), Ordering::AcqRel);
        Ok(if self.has_credit()? {
            Armed::Ready
        } else {
            Armed::WillRing
        })
    }

    /// Takes back what [`FifoSender::arm`] asked for.
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
        let control = self.memory.control();
        // Acquire: pairs with the receiver's Release store of `head`.
        let head = control.head.0.load(Ordering::Acquire);
        if head < self.credit || head >= self.next {
            return Err(protocol_violation("credit"));
        }
        self.credit = head;
        if self.next - self.credit <= SLOTS as u64 {
            return Ok(true);
        }
        // Acquire: pairs with the Release store in `FifoReceiver`'s drop.
        if control.receiver_closed.0.load(Ordering::Acquire) != 0 {
            return Err(receiver_closed());
        }
        Ok(false)
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
fn receiver_closed() -> Error {
    Error::new(
        ErrorKind::PeerDied,
        "the receiving end of the edge was closed before it took all steps",
    )
}
