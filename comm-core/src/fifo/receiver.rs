//! The reading end of a step FIFO.

use std::fmt;

use super::{
    FifoMemory, LINE_WORDS, SLOT_FLAG, SLOTS, SMALL_BYTES, protocol_violation, stamp_hash,
};
use crate::doorbell::{Doorbell, RingTarget};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use crate::{Armed, Error, ErrorKind, Result, StepHeader, StepRead};

/// The reading end of a step FIFO; see [`crate::fifo`] for the contract.
pub struct FifoReceiver {
    memory: Arc<FifoMemory>,
    sender: RingTarget,
    /// The step to be consumed next, from 1.
    next: u64,
}

/// A step that has arrived and was not consumed yet.
#[derive(Clone, Copy, Debug)]
pub enum Arrived {
    /// The payload is in the line: read it with [`FifoReceiver::read_small`]. Its length is not
    /// transmitted; equal signatures imply equal lengths.
    Small {
        /// Hash of the sender's signature.
        signature_hash: u32,
    },
    /// The payload is in a slot.
    Slot(StepRead),
}

impl Arrived {
    /// Hash of the sender's signature.
    #[must_use]
    #[inline]
    pub const fn signature_hash(&self) -> u32 {
        match self {
            Self::Small { signature_hash } => *signature_hash,
            Self::Slot(step) => step.header.signature_hash,
        }
    }
}

impl FifoReceiver {
    /// The reading end of `memory`; `sender` are the doorbells of the writing process.
    ///
    /// There must be one reading end per FIFO.
    #[must_use]
    pub const fn new(memory: Arc<FifoMemory>, sender: RingTarget) -> Self {
        Self { memory, sender, next: 1 }
    }

    /// Capacity of one slot.
    #[must_use]
    #[inline]
    pub fn step_bytes(&self) -> usize {
        self.memory.layout().step_bytes()
    }

    /// Steps consumed so far.
    #[must_use]
    pub const fn consumed(&self) -> u64 {
        self.next - 1
    }

    /// The next step, or `None` if it has not arrived.
    ///
    /// Calling it again before [`FifoReceiver::consume`] yields the same step.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::PeerDied`] if the sender is gone and all its steps were consumed,
    /// [`ErrorKind::Protocol`] if the shared words make no sense.
    #[inline]
    pub fn try_step(&mut self) -> Result<Option<Arrived>> {
        let line = self.memory.line(self.next);
        // Acquire: pairs with the sender's Release store of the stamp.
        let stamp = line.stamp.load(Ordering::Acquire);
        if stamp as u32 != self.next as u32 {
            return self.not_arrived(stamp);
        }
        let signature_hash = stamp_hash(stamp);
        if stamp & SLOT_FLAG == 0 {
            return Ok(Some(Arrived::Small { signature_hash }));
        }
        let mut words = [0; 4];
        for (word, value) in line.words[..LINE_WORDS.min(4)].iter().zip(&mut words) {
            // Relaxed: ordered by the Acquire load of the stamp.
            *value = word.load(Ordering::Relaxed);
        }
        let [bytes, first, second, third] = words;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if bytes > self.step_bytes() {
            return Err(protocol_violation("length of a step"));
        }
        let header = StepHeader { bytes, signature_hash, signature: [first, second, third] };
        Ok(Some(Arrived::Slot(StepRead { data: self.memory.slot(self.next), header })))
    }

    /// Copies the first bytes of the small step that [`FifoReceiver::try_step`] found.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] for more than [`SMALL_BYTES`] bytes.
    #[inline]
    pub fn read_small(&self, into: &mut [u8]) -> Result<()> {
        if into.len() > SMALL_BYTES {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "a small step holds fewer bytes than asked for",
            )
            .with("bytes", into.len()));
        }
        let line = self.memory.line(self.next);
        for (chunk, word) in into.chunks_mut(8).zip(&line.words) {
            // Relaxed: ordered by the Acquire load of the stamp in `try_step`.
            let bytes = word.load(Ordering::Relaxed).to_ne_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
        Ok(())
    }

    /// Gives the step that [`FifoReceiver::try_step`] found back to the sender.
    ///
    /// Nothing may read the step's slot afterwards.
    #[inline]
    pub fn consume(&mut self) {
        let control = self.memory.control();
        // Release: the reads of the slot come before its reuse by the sender's Acquire load.
        control.head.0.store(self.next, Ordering::Release);
        self.next += 1;
        self.wake_sender();
    }

    /// Asks for `doorbell` to be rung when a step arrives or the sender goes away.
    ///
    /// The ticket for [`Doorbell::wait`] must have been taken before.
    ///
    /// # Errors
    ///
    /// As for [`FifoReceiver::try_step`].
    pub fn arm(&mut self, doorbell: &Doorbell) -> Result<Armed> {
        // AcqRel: pairs with the sender's swap in `FifoSender::publish_stamp`.
        self.memory.control().receiver_waiter.0.swap(doorbell.number(), Ordering::AcqRel);
        Ok(if self.try_step()?.is_some() { Armed::Ready } else { Armed::WillRing })
    }

    /// Takes back what [`FifoReceiver::arm`] asked for.
    pub fn disarm(&mut self) {
        // Relaxed: a ring that slips through is spurious.
        self.memory.control().receiver_waiter.0.store(0, Ordering::Relaxed);
    }

    #[inline]
    fn wake_sender(&self) {
        // AcqRel: pairs with the sender's swap in `FifoSender::arm`.
        let waiter = self.memory.control().sender_waiter.0.swap(0, Ordering::AcqRel);
        if waiter != 0 {
            self.sender.ring(waiter);
        }
    }

    #[inline]
    fn not_arrived(&self, stamp: u64) -> Result<Option<Arrived>> {
        // The line still holds the step of the previous round, or nothing in the first one.
        let previous = if self.next > SLOTS as u64 { self.next - SLOTS as u64 } else { 0 };
        if stamp as u32 != previous as u32 {
            return Err(protocol_violation("number of a step"));
        }
        // Acquire: pairs with the Release store in `FifoSender`'s drop.
        if self.memory.control().sender_closed.0.load(Ordering::Acquire) == 0 {
            return Ok(None);
        }
        // The sender may have published this very step and closed between the two loads.
        // Acquire: as in `try_step`.
        if self.memory.line(self.next).stamp.load(Ordering::Acquire) as u32 == self.next as u32 {
            return Ok(None);
        }
        Err(Error::new(ErrorKind::PeerDied, "the sending end of the edge was closed"))
    }
}

impl Drop for FifoReceiver {
    fn drop(&mut self) {
        // Release: pairs with the sender's Acquire load in `refresh_credit`.
        self.memory.control().receiver_closed.0.store(1, Ordering::Release);
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
