//! Receiving ends.

use std::ptr;

use comm_core::doorbell::Doorbell;
use comm_core::fifo::{Arrived, FifoReceiver, SMALL_BYTES};
use comm_core::{
    Armed, ConnInfo, Error, ErrorKind, MessageRecv, PackedSignature, Result, StepHeader, StepRead,
};

use super::{Attempt, Waiter, wrong_kind};

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
