//! Sending ends.

use std::ptr;
use std::time::Instant;

use comm_core::doorbell::Doorbell;
use comm_core::fifo::{FifoSender, SLOTS, SMALL_BYTES};
use comm_core::{Armed, ConnInfo, MessageSend, Result, Signature, SlotWrite, StepHeader};

use super::{Attempt, Waiter, wrong_kind};

/// A sending end.
#[derive(Debug)]
pub enum SendEnd {
    /// Writes into memory that the receiver sees.
    Memory(FifoSender),
    /// Sends messages.
    Message(Box<dyn MessageSend>),
}

impl SendEnd {
    /// The sending end that a transport made.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](comm_core::ErrorKind) if it is none, or of a kind that the suite does not know.
    pub fn new(conn: ConnInfo) -> Result<Self> {
        match conn {
            ConnInfo::MemorySend(end) => Ok(Self::Memory(end)),
            ConnInfo::MessageSend(end) => Ok(Self::Message(end)),
            other => Err(wrong_kind(&other)),
        }
    }

    /// Steps that this end may have on their way.
    #[must_use]
    pub fn slots(&self) -> usize {
        match self {
            Self::Memory(_) => SLOTS,
            Self::Message(end) => end.slots(),
        }
    }

    /// The slot to fill next.
    ///
    /// # Errors
    ///
    /// The connection's failure.
    pub fn try_slot(&mut self) -> Result<Option<SlotWrite>> {
        match self {
            Self::Memory(end) => end.try_slot(),
            Self::Message(end) => end.try_slot(),
        }
    }

    /// Publishes the slot handed out last, whatever it holds.
    ///
    /// # Errors
    ///
    /// The connection's failure, or a wrong header.
    pub fn publish(&mut self, header: StepHeader) -> Result<()> {
        match self {
            Self::Memory(end) => end.publish(header),
            Self::Message(end) => end.publish(header),
        }
    }

    /// Fills the slot `ahead` places behind the next one; `None` if it is not handed out now.
    ///
    /// # Errors
    ///
    /// The connection's failure.
    ///
    /// # Panics
    ///
    /// If the payload does not fit.
    pub fn try_fill_ahead(&mut self, ahead: usize, payload: &[u8]) -> Result<Option<()>> {
        let slot = match self {
            Self::Memory(end) if ahead == 0 => end.try_slot()?,
            Self::Memory(_) => None,
            Self::Message(end) => end.try_slot_ahead(ahead)?,
        };
        let Some(slot) = slot else { return Ok(None) };
        assert!(payload.len() <= slot.capacity_bytes, "too long for a slot");
        let (to, from) = (slot.data.as_ptr(), payload.as_ptr());
        // SAFETY: the slot is ours until it is published and holds `capacity_bytes`.
        unsafe { ptr::copy_nonoverlapping(from, to, payload.len()) };
        Ok(Some(()))
    }

    /// Sends `payload` in a slot; `false` if there is none now.
    ///
    /// # Errors
    ///
    /// The connection's failure, [`InvalidArgument`](comm_core::ErrorKind) for a payload that does not fit.
    pub fn try_send(&mut self, payload: &[u8], signature: &Signature) -> Result<bool> {
        let Some(slot) = self.try_slot()? else {
            return Ok(false);
        };
        let bytes = payload.len();
        if bytes <= slot.capacity_bytes {
            // SAFETY: the slot is ours until it is published and holds `capacity_bytes`.
            unsafe { ptr::copy_nonoverlapping(payload.as_ptr(), slot.data.as_ptr(), bytes) };
        }
        let signature_hash = signature.hash();
        self.publish(StepHeader {
            bytes,
            signature_hash,
            signature: signature.pack(),
        })?;
        Ok(true)
    }

    /// Sends at most [`SMALL_BYTES`] bytes the short way, where the connection has one; `false` if
    /// there is no credit now. The receiver gets [`SMALL_BYTES`] bytes, whatever follows `payload`.
    ///
    /// # Errors
    ///
    /// As for [`SendEnd::try_send`].
    pub fn try_send_small(&mut self, payload: &[u8], signature: &Signature) -> Result<bool> {
        match self {
            Self::Memory(end) => end.try_send_small(payload, signature.hash()),
            Self::Message(_) => {
                let mut padded = [0; SMALL_BYTES];
                padded[..payload.len()].copy_from_slice(payload);
                self.try_send(&padded, signature)
            }
        }
    }

    /// Moves data of a message connection; whether anything moved.
    ///
    /// # Errors
    ///
    /// The connection's failure.
    pub fn progress(&mut self) -> Result<bool> {
        match self {
            Self::Memory(_) => Ok(false),
            Self::Message(end) => end.progress(),
        }
    }

    /// Asks for a ring when the end can send again.
    ///
    /// # Errors
    ///
    /// The connection's failure.
    pub fn arm(&mut self, bell: &Doorbell) -> Result<Armed> {
        match self {
            Self::Memory(end) => end.arm(bell),
            Self::Message(end) => end.arm(bell),
        }
    }

    /// Sends `payload`, asleep as long as there is no slot.
    ///
    /// # Errors
    ///
    /// As for [`SendEnd::try_send`], and [`Aborted`](comm_core::ErrorKind).
    pub fn send(&mut self, payload: &[u8], signature: &Signature, waiter: &Waiter) -> Result<()> {
        waiter.until(|bell| {
            if self.try_send(payload, signature)? {
                return Ok(Attempt::Done(()));
            }
            Ok(if self.progress()? {
                Attempt::Again
            } else {
                self.arm(bell)?.into()
            })
        })
    }

    /// Closes the end after everything sent has left it, or at `deadline`; whether it has.
    pub fn finish(mut self, deadline: Instant) -> bool {
        match &mut self {
            Self::Memory(_) => true,
            Self::Message(end) => end.quiesce(deadline),
        }
    }
}
