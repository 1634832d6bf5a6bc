//! Sending and receiving ends as the operations see them.
//!
//! # Contract
//!
//! * A step carries the identity (hash and packed signature) of the operation that sends it; the
//!   receiving operation names its own identity and gets the payload only if they agree.
//! * The pointer that [`RecvEnd::try_take`] returns is valid until [`RecvEnd::consume`]. It may
//!   point into memory that another process writes, so it is only read through raw pointers.
//! * An offer of the sender's own memory comes only over edges whose receiver can reach it, which the
//!   transport says by the FIFO that it makes ([`FifoSender::offers`]). [`RecvEnd::pull`] copies what
//!   is offered, over all of these edges; [`RecvEnd::claim`] gives access to it, if both ends share an
//!   address space.

use comm_core::doorbell::Doorbell;
use comm_core::fifo::{Arrived, Claim, FifoReceiver, FifoSender, Offer, Offers, SMALL_BYTES};
use comm_core::net::Transfer;
use comm_kernels as kernels;

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
            // SAFETY: the caller's promise.
            SendKind::Memory(fifo) => unsafe {
                fifo.try_offer(offers, offer, identity.header(bytes))
            },
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

/// The receiving end of a connected edge.
#[derive(Debug)]
pub(crate) struct RecvEnd {
    pub(crate) peer: Rank,
    kind: RecvKind,
    /// Private copy of a small step's payload.
    small: Box<[u8; SMALL_BYTES]>,
    /// Private copy of what was offered and is to be reduced; empty until it is needed.
    scratch: Vec<u8>,
    own_rank: Rank,
    /// Hash of the step that arrived of an operation whose signature is not known here.
    pub(crate) mismatched: Option<u32>,
}

/// A step that belongs to the operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taken {
    /// Its payload, valid until it is consumed.
    Payload(*const u8),
    /// The sender offers its memory: to be [pulled](RecvEnd::pull).
    Offer,
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
            scratch: Vec::new(),
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
        // No offer is as long as this.
        match self.try_take_or_offer(identity, bytes, usize::MAX)? {
            Some(Taken::Payload(payload)) => Ok(Some(payload)),
            Some(Taken::Offer) | None => Ok(None),
        }
    }

    /// Like [`RecvEnd::try_take`], for a step that holds `bytes`, or offers `offered_bytes`.
    ///
    /// # Errors
    ///
    /// As for [`RecvEnd::try_take`].
    #[inline]
    pub(crate) fn try_take_or_offer(
        &mut self,
        identity: &Identity,
        bytes: usize,
        offered_bytes: usize,
    ) -> Result<Option<Taken>> {
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
                        return Ok(Some(Taken::Payload(self.small.as_ptr())));
                    }
                    Some(Arrived::Slot(step)) => step,
                    Some(Arrived::Offer(header))
                        if header.signature_hash == identity.hash
                            && header.bytes == offered_bytes =>
                    {
                        return Ok(Some(Taken::Offer));
                    }
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
        Ok(Some(Taken::Payload(step.data.as_ptr().cast_const())))
    }

    /// Copies what the step at hand offers; `false` if the sender has revoked it, so that it is as if
    /// it had never come.
    ///
    /// `past_caches` is for a destination that nobody reads soon.
    ///
    /// # Errors
    ///
    /// If the sender's memory cannot be read.
    ///
    /// # Safety
    ///
    /// `target` is valid for writing `bytes` bytes, which is the length of the offer, and does not
    /// overlap what is offered.
    pub(crate) unsafe fn pull(
        &self,
        target: *mut u8,
        bytes: usize,
        past_caches: bool,
    ) -> Result<bool> {
        let RecvKind::Memory(fifo) = &self.kind else {
            return Err(no_offers(self.peer));
        };
        if !fifo.carries_offers() {
            // SAFETY: the caller's promise.
            return unsafe { fifo.pull(0, target, bytes) }.map_err(|error| at(error, self.peer));
        }
        let Some(claim) = fifo.claim() else {
            return Ok(false);
        };
        let from_bytes = if past_caches { 0 } else { usize::MAX };
        // SAFETY: the claim lives and covers as many bytes; else the caller's promise.
        unsafe { kernels::copy_streaming(target, claim.offer().source, bytes, from_bytes) };
        Ok(true)
    }

    /// Pulls what the step at hand offers into memory of this end and returns where it is, valid
    /// until the next call; `None` if it was revoked.
    ///
    /// # Errors
    ///
    /// As for [`RecvEnd::pull`].
    pub(crate) fn pull_to_scratch(&mut self, bytes: usize) -> Result<Option<*const u8>> {
        if self.scratch.len() < bytes {
            self.scratch.resize(bytes, 0);
        }
        let target = self.scratch.as_mut_ptr();
        // SAFETY: the vector was just made long enough, and belongs to this end.
        let stands = unsafe { self.pull(target, bytes, false) }?;
        Ok(stands.then_some(target.cast_const()))
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

    /// Whether this end uses addresses that the sender offers, since both are of one process.
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
