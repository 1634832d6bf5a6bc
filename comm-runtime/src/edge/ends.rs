//! Sending and receiving ends as the operations see them.
//!
//! # Contract
//!
//! * A step carries the identity (hash and packed signature) of the operation that sends it; the
//!   receiving operation names its own identity and gets the payload only if they agree.
//! * The pointer that [`RecvEnd::try_take`] returns is valid until [`RecvEnd::consume`]. It may
//!   point into memory that another process writes, so it is only read through raw pointers.
//! * An offer of the sender's own memory ([`RecvEnd::try_offer`]) comes only over edges whose ends
//!   share an address space, which the transport says by the FIFO that it makes
//!   ([`FifoSender::offers`]); elsewhere addresses are neither sent nor believed.

use comm_core::doorbell::Doorbell;
use comm_core::fifo::{Arrived, Claim, FifoReceiver, FifoSender, SMALL_BYTES};
use comm_core::net::Transfer;
use comm_core::{
    Armed, ConnInfo, Error, ErrorKind, MessageRecv, MessageSend, PackedSignature, Rank, Result,
    Signature, SlotWrite, StepHeader, StepRead,
};

/// The identity of an operation on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) signature: Signature,
    pub(crate) hash: u32,
    packed: PackedSignature,
}

impl Identity {
    #[inline]
    pub(crate) const fn new(signature: Signature) -> Self {
        Self {
            signature,
            hash: signature.hash(),
            packed: signature.pack(),
        }
    }

    /// What travels beside a step of `bytes`.
    #[inline]
    pub(crate) const fn header(&self, bytes: usize) -> StepHeader {
        StepHeader {
            bytes,
            signature_hash: self.hash,
            signature: self.packed,
        }
    }
}

/// The sending end of a connected edge.
#[derive(Debug)]
pub(crate) struct SendEnd {
    pub(crate) peer: Rank,
    kind: SendKind,
}

#[derive(Debug)]
enum SendKind {
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
        Ok(Self { peer, kind })
    }

    /// The FIFO, if the edge is one; for the inlined path of small messages.
    #[inline]
    pub(crate) const fn fifo(&mut self) -> Option<&mut FifoSender> {
        match &mut self.kind {
            SendKind::Memory(fifo) => Some(fifo),
            SendKind::Message(_) => None,
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

    /// Publishes a small step for which [`SendEnd::try_reserve`] said [`Outgoing::Small`].
    #[inline]
    pub(crate) fn publish_small(&mut self, data: &[u8], identity: &Identity) -> Result<()> {
        let published = match &mut self.kind {
            SendKind::Memory(fifo) => fifo.try_send_small(data, identity.hash)?,
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
            SendKind::Memory(fifo) => fifo.publish(header),
            SendKind::Message(message) => message.publish(header),
        }
    }

    pub(crate) fn arm(&mut self, doorbell: &Doorbell) -> Result<Armed> {
        match &mut self.kind {
            SendKind::Memory(fifo) => fifo.arm(doorbell),
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
            SendKind::Memory(fifo) => fifo.is_acknowledged(),
            SendKind::Message(_) => Ok(false),
        }
    }

    /// Like [`SendEnd::arm`], until the peer has consumed everything.
    pub(crate) fn arm_acknowledged(&mut self, doorbell: &Doorbell) -> Result<Armed> {
        match &mut self.kind {
            SendKind::Memory(fifo) => fifo.arm_acknowledged(doorbell),
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

    /// Whether the own memory may be offered over this edge.
    pub(crate) const fn offers_memory(&self) -> bool {
        match &self.kind {
            SendKind::Memory(fifo) => fifo.carries_offers(),
            SendKind::Message(_) => false,
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

/// The payload of a step of a length that its receiver did not know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) data: *const u8,
    /// Readable bytes, at most the capacity of a step.
    pub(crate) bytes: usize,
    /// Whether the payload may be shorter: the length of a small step is not transmitted.
    pub(crate) is_padded: bool,
}

/// The receiving end of a connected edge.
#[derive(Debug)]
pub(crate) struct RecvEnd {
    pub(crate) peer: Rank,
    kind: RecvKind,
    /// Private copy of a small step's payload.
    small: Box<[u8; SMALL_BYTES]>,
    own_rank: Rank,
    /// Hash of the step that arrived of an operation whose signature is not known here.
    pub(crate) mismatched: Option<u32>,
}

#[derive(Debug)]
enum RecvKind {
    Memory(FifoReceiver),
    Message(Box<dyn MessageRecv>),
}

impl RecvEnd {
    pub(crate) fn new(own_rank: Rank, peer: Rank, transport: &str, conn: ConnInfo) -> Result<Self> {
        let kind = match conn {
            ConnInfo::MemoryRecv(fifo) => RecvKind::Memory(fifo),
            ConnInfo::MessageRecv(message) => RecvKind::Message(message),
            other => return Err(wrong_end(transport, "receiving", &other)),
        };
        Ok(Self {
            peer,
            kind,
            small: Box::new([0; SMALL_BYTES]),
            own_rank,
            mismatched: None,
        })
    }

    /// The FIFO, if the edge is one; for the inlined path of small messages.
    #[inline]
    pub(crate) const fn fifo(&mut self) -> Option<&mut FifoReceiver> {
        match &mut self.kind {
            RecvKind::Memory(fifo) => Some(fifo),
            RecvKind::Message(_) => None,
        }
    }

    /// The payload of the next step if it has arrived; `bytes` is its expected length.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Mismatch`] if another operation sent it.
    #[inline]
    pub(crate) fn try_take(
        &mut self,
        identity: &Identity,
        bytes: usize,
    ) -> Result<Option<*const u8>> {
        let step = match &mut self.kind {
            RecvKind::Memory(fifo) => {
                match fifo.try_step().map_err(|error| at(error, self.peer))? {
                    None => return Ok(None),
                    Some(Arrived::Small { signature_hash }) => {
                        if signature_hash != identity.hash || bytes > SMALL_BYTES {
                            self.mismatched = Some(signature_hash);
                            return Err(mismatch_with_unknown(
                                self.own_rank,
                                &identity.signature,
                                self.peer,
                            ));
                        }
                        fifo.read_small(&mut self.small[..bytes])?;
                        return Ok(Some(self.small.as_ptr()));
                    }
                    Some(Arrived::Slot(step)) => step,
                    Some(Arrived::Offer(header)) => {
                        return Err(self.mismatch(identity, header.signature));
                    }
                }
            }
            RecvKind::Message(message) => {
                let step = match message.try_step()? {
                    Some(step) => Some(step),
                    None => {
                        message.progress()?;
                        message.try_step()?
                    }
                };
                let Some(step) = step else { return Ok(None) };
                step
            }
        };
        if step.header.signature_hash != identity.hash || step.header.bytes != bytes {
            return Err(self.mismatch(identity, step.header.signature));
        }
        Ok(Some(step.data.as_ptr().cast_const()))
    }

    /// The next step if it has arrived, whatever its length; valid until [`RecvEnd::consume`].
    ///
    /// For an operation that learns from the steps themselves how long they are. Calling it again
    /// yields the same step.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Mismatch`] if another operation sent it.
    #[inline]
    pub(crate) fn try_take_any(&mut self, identity: &Identity) -> Result<Option<Piece>> {
        let step = match &mut self.kind {
            RecvKind::Memory(fifo) => {
                match fifo.try_step().map_err(|error| at(error, self.peer))? {
                    None => return Ok(None),
                    Some(Arrived::Small { signature_hash }) => {
                        if signature_hash != identity.hash {
                            self.mismatched = Some(signature_hash);
                            let own = &identity.signature;
                            return Err(mismatch_with_unknown(self.own_rank, own, self.peer));
                        }
                        fifo.read_small(&mut self.small[..])?;
                        return Ok(Some(Piece {
                            data: self.small.as_ptr(),
                            bytes: SMALL_BYTES,
                            is_padded: true,
                        }));
                    }
                    Some(Arrived::Slot(step)) => step,
                    Some(Arrived::Offer(header)) => {
                        return Err(self.mismatch(identity, header.signature));
                    }
                }
            }
            RecvKind::Message(message) => {
                let mut step = message.try_step()?;
                if step.is_none() {
                    message.progress()?;
                    step = message.try_step()?;
                }
                let Some(step) = step else { return Ok(None) };
                step
            }
        };
        if step.header.signature_hash != identity.hash {
            return Err(self.mismatch(identity, step.header.signature));
        }
        Ok(Some(Piece {
            data: step.data.as_ptr().cast_const(),
            bytes: step.header.bytes,
            is_padded: false,
        }))
    }

    /// Whether the next step has arrived; it must be an offer of `bytes`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Mismatch`] if another operation sent it.
    pub(crate) fn try_offer(&mut self, identity: &Identity, bytes: usize) -> Result<bool> {
        let arrived = match &mut self.kind {
            RecvKind::Memory(fifo) => fifo.try_step()?,
            RecvKind::Message(_) => return Err(no_offers(self.peer)),
        };
        match arrived {
            None => Ok(false),
            Some(Arrived::Offer(header))
                if header.signature_hash == identity.hash && header.bytes == bytes =>
            {
                Ok(true)
            }
            Some(Arrived::Small { signature_hash }) => {
                self.mismatched = Some(signature_hash);
                let own = &identity.signature;
                Err(mismatch_with_unknown(self.own_rank, own, self.peer))
            }
            Some(Arrived::Offer(header) | Arrived::Slot(StepRead { header, .. })) => {
                Err(self.mismatch(identity, header.signature))
            }
        }
    }

    /// The memory that the step found by [`RecvEnd::try_offer`] offers, for a bounded piece of
    /// work; `None` once the sender has revoked it.
    pub(crate) fn claim(&self) -> Option<Claim<'_>> {
        match &self.kind {
            RecvKind::Memory(fifo) => fifo.claim(),
            RecvKind::Message(_) => None,
        }
    }

    /// Whether the sender may offer memory over this edge.
    pub(crate) const fn takes_offers(&self) -> bool {
        match &self.kind {
            RecvKind::Memory(fifo) => fifo.carries_offers(),
            RecvKind::Message(_) => false,
        }
    }

    #[cold]
    fn mismatch(&self, identity: &Identity, theirs: PackedSignature) -> Error {
        match Signature::unpack(theirs) {
            Ok(theirs) => mismatch(self.own_rank, &identity.signature, self.peer, &theirs),
            Err(error) => error.with("peer", self.peer),
        }
    }

    /// Gives the step that [`RecvEnd::try_take`] returned back to the sender.
    #[inline]
    pub(crate) fn consume(&mut self) -> Result<()> {
        match &mut self.kind {
            RecvKind::Memory(fifo) => {
                fifo.consume();
                Ok(())
            }
            RecvKind::Message(message) => message.consume(),
        }
    }

    pub(crate) fn arm(&mut self, doorbell: &Doorbell) -> Result<Armed> {
        match &mut self.kind {
            RecvKind::Memory(fifo) => fifo.arm(doorbell),
            RecvKind::Message(message) => message.arm(doorbell),
        }
    }

    /// Whether large messages can come without slots.
    pub(crate) fn supports_direct(&self) -> bool {
        match &self.kind {
            RecvKind::Memory(_) => false,
            RecvKind::Message(message) => message.supports_direct(),
        }
    }

    /// Receives what has come into `data` without slots; see [`MessageRecv::recv_direct`].
    pub(crate) fn recv_direct(&mut self, data: &mut [u8]) -> Result<Transfer> {
        match &mut self.kind {
            RecvKind::Memory(_) => Err(no_direct()),
            RecvKind::Message(message) => message.recv_direct(data),
        }
    }

    /// As [`RecvEnd::arm`], for a direct transfer.
    pub(crate) fn arm_direct(&mut self, doorbell: &Doorbell) -> Result<Armed> {
        match &mut self.kind {
            RecvKind::Memory(_) => Err(no_direct()),
            RecvKind::Message(message) => message.arm_direct(doorbell),
        }
    }

    pub(crate) fn disarm(&mut self) {
        if let RecvKind::Memory(fifo) = &mut self.kind {
            fifo.disarm();
        }
    }
}

#[cold]
fn no_direct() -> Error {
    Error::new(
        ErrorKind::Internal,
        "a direct transfer was tried over an edge that has none",
    )
}

/// Names the rank at the other end of an edge that failed.
#[cold]
fn at(error: Error, peer: Rank) -> Error {
    error.with("peer", peer)
}

/// The error of two operations that do not belong together.
#[cold]
pub(crate) fn mismatch(rank: Rank, own: &Signature, peer: Rank, theirs: &Signature) -> Error {
    Error::new(
        ErrorKind::Mismatch,
        format!(
            "rank {rank} is in {own}, but rank {peer} is in {theirs}; \
             all ranks must call the same operations with the same arguments in the same order"
        ),
    )
}

/// The error while the other side's operation is not known.
#[cold]
pub(crate) fn mismatch_with_unknown(rank: Rank, own: &Signature, peer: Rank) -> Error {
    Error::new(
        ErrorKind::Mismatch,
        format!(
            "rank {rank} is in {own}, but rank {peer} is in another operation; \
             all ranks must call the same operations with the same arguments in the same order"
        ),
    )
}

/// The error of an operation that works on its peers' memory, over an edge that doesn't lead there.
#[cold]
pub(crate) fn no_offers(peer: Rank) -> Error {
    Error::new(
        ErrorKind::Internal,
        "an operation works on a peer's memory over an edge that does not lead there",
    )
    .with("peer", peer)
}

fn wrong_end(transport: &str, wanted: &'static str, conn: &ConnInfo) -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("transport {transport} returned {conn:?} for the {wanted} end of an edge"),
    )
}
