//! The receiving end.

use std::sync::Arc;

use comm_core::doorbell::Doorbell;
use comm_core::fifo::{Arrived, Claim, FifoReceiver, SMALL_BYTES};
use comm_core::net::Transfer;
use comm_core::{
    Armed, ConnInfo, Error, MessageRecv, PackedSignature, Rank, Result, Signature, StepRead,
};
use comm_kernels as kernels;

use super::{Identity, at, mismatch, mismatch_with_unknown, no_direct, no_offers, wrong_end};
use crate::region::Pair;

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
    pub(super) kind: RecvKind,
    /// Private copy of a small step's payload.
    small: Box<[u8; SMALL_BYTES]>,
    /// Private copy of what was offered and is to be reduced; empty until it is needed.
    scratch: Vec<u8>,
    own_rank: Rank,
    /// What this process has mapped of the one at the other end.
    pub(super) regions: Option<Arc<Pair>>,
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
pub(super) enum RecvKind {
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
            regions: None,
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

    /// Receives the next step into `to` and gives it back to the sender; `false` if it has not
    /// arrived.
    ///
    /// # Errors
    ///
    /// As for [`RecvEnd::try_take`].
    ///
    /// # Safety
    ///
    /// `to` is valid for writing `bytes` bytes, which nobody else uses meanwhile and which overlap
    /// nothing that the peer offers.
    #[inline]
    pub(crate) unsafe fn try_recv(
        &mut self,
        to: *mut u8,
        bytes: usize,
        identity: &Identity,
    ) -> Result<bool> {
        if let RecvKind::Memory(fifo) = &mut self.kind
            && bytes <= SMALL_BYTES
        {
            match fifo.try_step().map_err(|error| at(error, self.peer))? {
                None => return Ok(false),
                Some(Arrived::Small { signature_hash }) if signature_hash == identity.hash => {
                    // SAFETY: the caller's promise.
                    let into = unsafe { std::slice::from_raw_parts_mut(to, bytes) };
                    fifo.read_small(into)?;
                    fifo.consume();
                    return Ok(true);
                }
                // Does not belong here.
                Some(_) => {}
            }
        }
        match self.try_take_or_offer(identity, bytes, bytes)? {
            None => return Ok(false),
            Some(Taken::Payload(payload)) => {
                // SAFETY: the caller's promise; the step was checked to hold as many bytes.
                unsafe { kernels::copy_far(to, payload, bytes) };
            }
            Some(Taken::Offer) => {
                // SAFETY: the caller's promise; what is offered belongs to the peer's caller.
                if !unsafe { self.pull(0, to, bytes, false) }? {
                    return Ok(false);
                }
            }
        }
        self.consume()?;
        Ok(true)
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

    /// Whether the next step, if it has arrived, offers `bytes` bytes of this operation. Whatever else
    /// it is, [`RecvEnd::try_take_or_offer`] tells.
    ///
    /// # Errors
    ///
    /// If the edge is broken.
    pub(crate) fn is_offered(&mut self, identity: &Identity, bytes: usize) -> Result<Option<bool>> {
        let RecvKind::Memory(fifo) = &mut self.kind else {
            return Ok(Some(false));
        };
        let arrived = fifo.try_step().map_err(|error| at(error, self.peer))?;
        Ok(arrived.map(|arrived| match arrived {
            Arrived::Offer(header) => {
                header.signature_hash == identity.hash && header.bytes == bytes
            }
            Arrived::Small { .. } | Arrived::Slot(_) => false,
        }))
    }

    /// Whether what the step at hand offers is copied by the system.
    pub(crate) fn is_pulling(&self) -> bool {
        match &self.kind {
            RecvKind::Memory(fifo) => !fifo.carries_offers() && fifo.mapped_offer().is_none(),
            RecvKind::Message(_) => false,
        }
    }

    /// Copies `bytes` bytes, from `offset` on, of what the step at hand offers; `false` if the sender has
    /// revoked it, so that it is as if it had never come.
    ///
    /// `past_caches` is for a destination that nobody reads soon.
    ///
    /// # Errors
    ///
    /// If the sender's memory cannot be read.
    ///
    /// # Safety
    ///
    /// `target` is valid for writing `bytes` bytes, which are within the length of the offer, and does
    /// not overlap what is offered.
    pub(crate) unsafe fn pull(
        &self,
        offset: usize,
        target: *mut u8,
        bytes: usize,
        past_caches: bool,
    ) -> Result<bool> {
        let RecvKind::Memory(fifo) = &self.kind else {
            return Err(no_offers(self.peer));
        };
        if fifo.mapped_offer().is_some() {
            let Some(source) = self.offered_bytes(offset, bytes)? else {
                return Ok(false);
            };
            let from_bytes = if past_caches { 0 } else { usize::MAX };
            // SAFETY: the range is mapped while `source` lives; else the caller's promise.
            unsafe { kernels::copy_streaming(target, source.as_ptr(), bytes, from_bytes) };
            self.note_read(bytes);
            return Ok(self.offer_stands());
        }
        if !fifo.carries_offers() {
            // SAFETY: the caller's promise.
            let pulled = unsafe { fifo.pull(offset, target, bytes) };
            return pulled.map_err(|error| at(error, self.peer));
        }
        let Some(claim) = fifo.claim() else {
            return Ok(false);
        };
        let from_bytes = if past_caches { 0 } else { usize::MAX };
        let source = claim.offer().source.wrapping_add(offset);
        // SAFETY: the claim lives and covers these bytes; else the caller's promise.
        unsafe { kernels::copy_streaming(target, source, bytes, from_bytes) };
        Ok(true)
    }

    /// Pulls `bytes` bytes, from `offset` on, of what the step at hand offers into memory of this end and
    /// returns where they are, valid until the next call; `None` if it was revoked.
    ///
    /// # Errors
    ///
    /// As for [`RecvEnd::pull`].
    pub(crate) fn pull_to_scratch(
        &mut self,
        offset: usize,
        bytes: usize,
    ) -> Result<Option<*const u8>> {
        if self.scratch.len() < bytes {
            self.scratch.resize(bytes, 0);
        }
        let target = self.scratch.as_mut_ptr();
        // SAFETY: the vector was just made long enough, and belongs to this end.
        let stands = unsafe { self.pull(offset, target, bytes, false) }?;
        Ok(stands.then_some(target.cast_const()))
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
            RecvKind::Memory(fifo) => fifo.try_step().map_err(|error| at(error, self.peer))?,
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

    /// The next step if it has arrived: whether it offers `bytes`. A peer that cannot, or will not, says
    /// so by a step of one byte.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Mismatch`] if another operation sent it.
    pub(crate) fn try_offer_or_refusal(
        &mut self,
        identity: &Identity,
        bytes: usize,
    ) -> Result<Option<bool>> {
        let taken = self.try_take_or_offer(identity, 1, bytes)?;
        Ok(taken.map(|taken| matches!(taken, Taken::Offer)))
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
            RecvKind::Memory(fifo) => fifo.arm(doorbell).map_err(|error| at(error, self.peer)),
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

    /// Whether the next step announces a direct transfer, in place of one that holds `bytes`; such a
    /// step is consumed. `None` if none has arrived.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Mismatch`](comm_core::ErrorKind::Mismatch) if another operation sent it.
    pub(crate) fn try_take_announcement(
        &mut self,
        identity: &Identity,
        bytes: usize,
    ) -> Result<Option<bool>> {
        let Some(piece) = self.try_take_any(identity)? else {
            return Ok(None);
        };
        if piece.bytes == bytes {
            return Ok(Some(false));
        }
        // Of another length it is a mismatch.
        if self.try_take(identity, 0)?.is_some() {
            self.consume()?;
        }
        Ok(Some(true))
    }

    /// As [`RecvEnd::recv_direct`], into memory of this end; see [`RecvEnd::scratch`].
    pub(crate) fn recv_direct_to_scratch(&mut self, bytes: usize) -> Result<Transfer> {
        if self.scratch.len() < bytes {
            self.scratch.resize(bytes, 0);
        }
        match &mut self.kind {
            RecvKind::Memory(_) => Err(no_direct()),
            RecvKind::Message(message) => message.recv_direct(&mut self.scratch[..bytes]),
        }
    }

    /// What [`RecvEnd::recv_direct_to_scratch`] has received, valid until its next call.
    pub(crate) const fn scratch(&self) -> *const u8 {
        self.scratch.as_ptr()
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
