//! Connected ends as the clauses see them: whole payloads in, whole payloads out, whichever kind
//! of connection the transport made.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use comm_core::doorbell::{Doorbell, Doorbells};
use comm_core::fifo::{Arrived, FifoReceiver, FifoSender, SLOTS, SMALL_BYTES};
use comm_core::{
    Armed, ConnInfo, Error, ErrorKind, MessageRecv, MessageSend, PackedSignature, Result,
    Signature, SlotWrite, StepHeader, StepRead,
};

/// A sending end.
#[derive(Debug)]
pub enum SendEnd {
    /// Writes into memory that the receiver sees.
    Memory(FifoSender),
    /// Sends messages.
    Message(Box<dyn MessageSend>),
}

/// A receiving end.
#[derive(Debug)]
pub enum RecvEnd {
    /// Reads memory that the sender writes.
    Memory(FifoReceiver),
    /// Receives messages.
    Message(Box<dyn MessageRecv>),
}

/// A step as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The payload; of a small step always [`SMALL_BYTES`] bytes.
    pub payload: Vec<u8>,
    /// Hash of the sender's signature.
    pub signature_hash: u32,
    /// The sender's signature, which small steps do not carry.
    pub signature: Option<PackedSignature>,
}

/// A thread that can sleep at an end, and the flag that calls it back.
#[derive(Debug)]
pub struct Waiter {
    bell: Doorbell,
    abort: AtomicBool,
}

impl Waiter {
    /// A waiter at one of `doorbells`.
    ///
    /// # Errors
    ///
    /// If all doorbells are taken.
    pub fn new(doorbells: &Arc<Doorbells>) -> Result<Self> {
        Ok(Self {
            bell: doorbells.claim()?,
            abort: AtomicBool::new(false),
        })
    }

    /// The waiter's doorbell.
    #[must_use]
    pub const fn bell(&self) -> &Doorbell {
        &self.bell
    }

    /// Makes what waits here, now or later, fail with [`ErrorKind::Aborted`].
    pub fn abort(&self) {
        // Relaxed: the ring orders it.
        self.abort.store(true, Ordering::Relaxed);
        self.bell.ring();
    }

    /// Repeats `attempt` until it yields a value, and sleeps in between where it says so.
    ///
    /// `attempt` looks at its sources, then arms them, and tells whether they will ring.
    ///
    /// # Errors
    ///
    /// Those of `attempt`, and [`ErrorKind::Aborted`].
    pub fn until<T>(&self, mut attempt: impl FnMut(&Doorbell) -> Result<Attempt<T>>) -> Result<T> {
        loop {
            let ticket = self.bell.ticket();
            // Relaxed: ordered by the ticket and by the end of `wait`.
            if self.abort.load(Ordering::Relaxed) {
                return Err(Error::new(
                    ErrorKind::Aborted,
                    "the test aborted the waiter",
                ));
            }
            match attempt(&self.bell)? {
                Attempt::Done(value) => return Ok(value),
                Attempt::Again => {}
                Attempt::Sleep => {
                    self.bell.wait(ticket, None);
                }
            }
        }
    }
}

/// How one look at a source ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt<T> {
    /// With a value.
    Done(T),
    /// Something moved: look again.
    Again,
    /// Every source will ring.
    Sleep,
}

impl<T> From<Armed> for Attempt<T> {
    fn from(armed: Armed) -> Self {
        match armed {
            Armed::WillRing => Self::Sleep,
            Armed::Ready => Self::Again,
        }
    }
}

impl SendEnd {
    /// The sending end that a transport made.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if it is none, or of a kind that the suite does not know.
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
    /// The connection's failure, [`ErrorKind::InvalidArgument`] for a payload that does not fit.
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
    /// As for [`SendEnd::try_send`], and [`ErrorKind::Aborted`].
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

impl RecvEnd {
    /// The receiving end that a transport made.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if it is none, or of a kind that the suite does not know.
    pub fn new(conn: ConnInfo) -> Result<Self> {
        match conn {
            ConnInfo::MemoryRecv(end) => Ok(Self::Memory(end)),
            ConnInfo::MessageRecv(end) => Ok(Self::Message(end)),
            other => Err(wrong_kind(&other)),
        }
    }

    /// Steps that this end may hold beside those that the sending end has on their way.
    #[must_use]
    pub fn slots(&self) -> usize {
        match self {
            Self::Memory(_) => 0,
            Self::Message(end) => end.slots(),
        }
    }

    /// Copies the next step and leaves it where it is.
    ///
    /// # Errors
    ///
    /// The connection's failure.
    pub fn try_peek(&mut self) -> Result<Option<Received>> {
        let step = match self {
            Self::Memory(end) => match end.try_step()? {
                None => return Ok(None),
                Some(Arrived::Small { signature_hash }) => {
                    let mut payload = vec![0; SMALL_BYTES];
                    end.read_small(&mut payload)?;
                    return Ok(Some(Received {
                        payload,
                        signature_hash,
                        signature: None,
                    }));
                }
                Some(Arrived::Slot(step)) => step,
                Some(Arrived::Offer(_)) => return Err(unexpected_offer()),
            },
            Self::Message(end) => match end.try_step()? {
                None => return Ok(None),
                Some(step) => step,
            },
        };
        Ok(Some(Received::copy(step)))
    }

    /// Copies the step `ahead` places behind the next one; `None` if it is not handed out now.
    ///
    /// # Errors
    ///
    /// The connection's failure.
    pub fn try_peek_ahead(&mut self, ahead: usize) -> Result<Option<Received>> {
        match self {
            Self::Message(end) => Ok(end.try_step_ahead(ahead)?.map(Received::copy)),
            Self::Memory(_) if ahead == 0 => self.try_peek(),
            Self::Memory(_) => Ok(None),
        }
    }

    /// Gives the next step back.
    ///
    /// # Errors
    ///
    /// The connection's failure.
    pub fn consume(&mut self) -> Result<()> {
        match self {
            Self::Memory(end) => {
                end.consume();
                Ok(())
            }
            Self::Message(end) => end.consume(),
        }
    }

    /// Takes the next step.
    ///
    /// # Errors
    ///
    /// The connection's failure.
    pub fn try_recv(&mut self) -> Result<Option<Received>> {
        let Some(received) = self.try_peek()? else {
            return Ok(None);
        };
        match self {
            Self::Memory(end) => end.consume(),
            Self::Message(end) => end.consume()?,
        }
        Ok(Some(received))
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

    /// Asks for a ring when a step arrives.
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

    /// Takes the next step, asleep until it arrives.
    ///
    /// # Errors
    ///
    /// The connection's failure, and [`ErrorKind::Aborted`].
    pub fn recv(&mut self, waiter: &Waiter) -> Result<Received> {
        waiter.until(|bell| {
            if let Some(received) = self.try_recv()? {
                return Ok(Attempt::Done(received));
            }
            Ok(if self.progress()? {
                Attempt::Again
            } else {
                self.arm(bell)?.into()
            })
        })
    }
}

impl Received {
    fn copy(step: StepRead) -> Self {
        let StepHeader {
            bytes,
            signature_hash,
            signature,
        } = step.header;
        let mut payload = vec![0; bytes];
        // SAFETY: the step stays until it is consumed and holds `bytes`.
        unsafe { ptr::copy_nonoverlapping(step.data.as_ptr(), payload.as_mut_ptr(), bytes) };
        Self {
            payload,
            signature_hash,
            signature: Some(signature),
        }
    }
}

fn unexpected_offer() -> Error {
    Error::new(
        ErrorKind::Protocol,
        "an offer of memory arrived, and nobody here offers any",
    )
}

fn wrong_kind(conn: &ConnInfo) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "the transport connected another kind of end than asked for",
    )
    .with("end", format!("{conn:?}"))
}
