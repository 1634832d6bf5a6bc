//! The sending end.

use std::sync::Arc;
use std::time::Instant;

use comm_core::doorbell::Doorbell;
use comm_core::fifo::{FifoSender, Offer, Offers, SMALL_BYTES};
use comm_core::net::Transfer;
use comm_core::{Armed, ConnInfo, Error, ErrorKind, MessageSend, Rank, Result, SlotWrite};

use comm_kernels as kernels;

use super::{Identity, at, no_direct, no_offers, wrong_end};
use crate::region::{Generation, Pair};

/// The sending end of a connected edge.
#[derive(Debug)]
pub(crate) struct SendEnd {
    pub(crate) peer: Rank,
    pub(super) kind: SendKind,
    /// What the process at the other end has mapped of this one, in which state of its table.
    pub(super) regions: Option<(Arc<Pair>, Generation)>,
}

#[derive(Debug)]
pub(super) enum SendKind {
    Memory(FifoSender),
    Message(Box<dyn MessageSend>),
}

/// Where the payload of the next step is to be written.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// Into a buffer of the caller's of at most [`SMALL_BYTES`], for [`SendEnd::publish_small`].
    Small,
    /// Into the slot, for [`SendEnd::publish`].
    Slot(SlotWrite),
}

impl SendEnd {
    pub(crate) fn new(peer: Rank, transport: &str, conn: ConnInfo) -> Result<Self> {
        let kind = match conn {
            ConnInfo::MemorySend(fifo) => SendKind::Memory(fifo),
            ConnInfo::MessageSend(message) => SendKind::Message(message),
            other => return Err(wrong_end(transport, "sending", &other)),
        };
        Ok(Self {
            peer,
            kind,
            regions: None,
        })
    }

    /// The FIFO, if the edge is one; for the inlined path of small messages.
    #[inline]
    pub(crate) const fn fifo(&mut self) -> Option<&mut FifoSender> {
        match &mut self.kind {
            SendKind::Memory(fifo) => Some(fifo),
            SendKind::Message(_) => None,
        }
    }

    /// What keeps track of the offers of one operation, or `None` if the peer cannot reach memory of
    /// this end.
    pub(crate) fn offers(&self) -> Option<Offers> {
        match &self.kind {
            SendKind::Memory(fifo) => fifo.offers(),
            SendKind::Message(_) => None,
        }
    }

    /// Offers `bytes` bytes as the next step; `false` if there is no credit now.
    ///
    /// # Safety
    ///
    /// Until the step is consumed or `offers` was dropped, `source` is valid for reading and nobody
    /// writes there.
    pub(crate) unsafe fn try_offer(
        &mut self,
        offers: &mut Offers,
        source: *const u8,
        bytes: usize,
        identity: &Identity,
    ) -> Result<bool> {
        let offer = Offer {
            source,
            target: std::ptr::null_mut(),
        };
        match &mut self.kind {
            SendKind::Memory(fifo) => {
                // SAFETY: the caller's promise.
                unsafe { fifo.try_offer(offers, offer, identity.header(bytes)) }
                    .map_err(|error| at(error, self.peer))
            }
            SendKind::Message(_) => Err(no_offers(self.peer)),
        }
    }

    /// A place for the next step of `bytes`, or `None` if there is no credit now.
    #[inline]
    pub(crate) fn try_reserve(&mut self, bytes: usize) -> Result<Option<Outgoing>> {
        match &mut self.kind {
            SendKind::Memory(fifo) => Ok(fifo
                .try_slot()
                .map_err(|error| at(error, self.peer))?
                .map(|slot| {
                    if bytes <= SMALL_BYTES {
                        Outgoing::Small
                    } else {
                        Outgoing::Slot(slot)
                    }
                })),
            SendKind::Message(message) => {
                if let Some(slot) = message.try_slot()? {
                    return Ok(Some(Outgoing::Slot(slot)));
                }
                message.progress()?;
                Ok(message.try_slot()?.map(Outgoing::Slot))
            }
        }
    }

    /// Sends `bytes` bytes as the next step; `false` if there is no credit now.
    ///
    /// # Safety
    ///
    /// `from` is valid for reading `bytes` bytes, which fit a step and nobody writes meanwhile.
    #[inline]
    pub(crate) unsafe fn try_send(
        &mut self,
        from: *const u8,
        bytes: usize,
        identity: &Identity,
    ) -> Result<bool> {
        if let SendKind::Memory(fifo) = &mut self.kind
            && bytes <= SMALL_BYTES
        {
            // SAFETY: the caller's promise.
            let data = unsafe { std::slice::from_raw_parts(from, bytes) };
            let sent = fifo.try_send_small(data, identity.hash);
            return sent.map_err(|error| at(error, self.peer));
        }
        let Some(Outgoing::Slot(slot)) = self.try_reserve(bytes)? else {
            return Ok(false);
        };
        // SAFETY: the caller's promise, and a step fits the slot.
        unsafe { kernels::copy_far(slot.data.as_ptr(), from, bytes) };
        self.publish(bytes, identity)?;
        Ok(true)
    }

    /// Publishes a small step for which [`SendEnd::try_reserve`] said [`Outgoing::Small`].
    #[inline]
    pub(crate) fn publish_small(&mut self, data: &[u8], identity: &Identity) -> Result<()> {
        let published = match &mut self.kind {
            SendKind::Memory(fifo) => fifo
                .try_send_small(data, identity.hash)
                .map_err(|error| at(error, self.peer))?,
            SendKind::Message(_) => false,
        };
        if published {
            Ok(())
        } else {
            Err(Error::new(
                ErrorKind::Internal,
                "a reserved step had no credit",
            ))
        }
    }

    /// Publishes the slot that [`SendEnd::try_reserve`] handed out.
    #[inline]
    pub(crate) fn publish(&mut self, bytes: usize, identity: &Identity) -> Result<()> {
        let header = identity.header(bytes);
        match &mut self.kind {
            SendKind::Memory(fifo) => fifo.publish(header).map_err(|error| at(error, self.peer)),
            SendKind::Message(message) => message.publish(header),
        }
    }

    pub(crate) fn arm(&mut self, doorbell: &Doorbell) -> Result<Armed> {
        match &mut self.kind {
            SendKind::Memory(fifo) => fifo.arm(doorbell).map_err(|error| at(error, self.peer)),
            SendKind::Message(message) => message.arm(doorbell),
        }
    }

    pub(crate) fn disarm(&mut self) {
        if let SendKind::Memory(fifo) = &mut self.kind {
            fifo.disarm();
        }
    }

    /// Whether the peer has consumed every step of this end; never true of a message edge, which
    /// does not tell.
    pub(crate) fn is_acknowledged(&mut self) -> Result<bool> {
        match &mut self.kind {
            SendKind::Memory(fifo) => fifo.is_acknowledged().map_err(|error| at(error, self.peer)),
            SendKind::Message(_) => Ok(false),
        }
    }

    /// Like [`SendEnd::arm`], until the peer has consumed everything.
    pub(crate) fn arm_acknowledged(&mut self, doorbell: &Doorbell) -> Result<Armed> {
        match &mut self.kind {
            SendKind::Memory(fifo) => fifo
                .arm_acknowledged(doorbell)
                .map_err(|error| at(error, self.peer)),
            SendKind::Message(message) => message.arm(doorbell),
        }
    }

    /// Whether large messages can go without slots.
    pub(crate) fn supports_direct(&self) -> bool {
        match &self.kind {
            SendKind::Memory(_) => false,
            SendKind::Message(message) => message.supports_direct(),
        }
    }

    /// Sends what the edge takes of `data` without slots; see [`MessageSend::send_direct`].
    pub(crate) fn send_direct(&mut self, data: &[u8]) -> Result<Transfer> {
        match &mut self.kind {
            SendKind::Memory(_) => Err(no_direct()),
            SendKind::Message(message) => message.send_direct(data),
        }
    }

    /// As [`SendEnd::arm`], for a direct transfer.
    pub(crate) fn arm_direct(&mut self, doorbell: &Doorbell) -> Result<Armed> {
        match &mut self.kind {
            SendKind::Memory(_) => Err(no_direct()),
            SendKind::Message(message) => message.arm_direct(doorbell),
        }
    }

    /// Whether the peer, in another process, reads any memory of this one by the system.
    pub(crate) fn is_pulled(&self) -> bool {
        match &self.kind {
            SendKind::Memory(fifo) => fifo.is_pulled(),
            SendKind::Message(_) => false,
        }
    }

    /// Whether the own memory may be offered over this edge.
    pub(crate) const fn offers_memory(&self) -> bool {
        match &self.kind {
            SendKind::Memory(fifo) => fifo.carries_offers(),
            SendKind::Message(_) => false,
        }
    }

    /// Waits until everything sent has left this process's memory, until `deadline` at most; whether it
    /// has. What is in memory shared with the peer has.
    pub(crate) fn quiesce(&mut self, deadline: Instant) -> bool {
        match &mut self.kind {
            SendKind::Memory(_) => true,
            SendKind::Message(message) => message.quiesce(deadline),
        }
    }

    /// Moves queued data of a message edge; nothing to do for memory.
    pub(crate) fn progress(&mut self) -> Result<bool> {
        match &mut self.kind {
            SendKind::Memory(_) => Ok(false),
            SendKind::Message(message) => message.progress(),
        }
    }
}
