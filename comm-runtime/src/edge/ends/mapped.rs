//! What ends know of [regions](crate::region): which memory the peer can read, and where the peer's is.

use std::sync::Arc;

use comm_core::Result;
use comm_core::fifo::Offers;

use super::recv::RecvKind;
use super::send::SendKind;
use super::{Identity, RecvEnd, SendEnd, at, no_offers, not_mapped};
use crate::region::{Generation, Pair, PeerBytes, Span};

impl SendEnd {
    /// The same end, whose peer looks regions up in the table that is in this state.
    pub(crate) fn with_regions(mut self, pair: Arc<Pair>, generation: Generation) -> Self {
        self.regions = Some((pair, generation));
        self
    }

    /// Whether all of the `bytes` bytes at `address` lie in a region that the process at the other end
    /// has mapped, and has confirmed to have mapped.
    ///
    /// The answer is good as long as the caller keeps the memory alive, since the region lives as long.
    /// It is no for zero bytes, and over edges whose peer does not look regions up. Takes a lock that
    /// nobody holds for long; for steps of many kilobytes, not for small ones.
    pub(crate) fn is_readable_by_peer(&self, address: *const u8, bytes: usize) -> bool {
        let (SendKind::Memory(fifo), Some((pair, generation))) = (&self.kind, &self.regions) else {
            return false;
        };
        fifo.takes_mapped_offers()
            && Span::new(address.addr() as u64, bytes)
                .is_some_and(|range| pair.has_exported(range, *generation))
    }

    /// What keeps track of offers of [readable](SendEnd::is_readable_by_peer) memory, or `None` if the
    /// peer does not take them.
    pub(crate) fn region_offers(&self) -> Option<Offers> {
        match &self.kind {
            SendKind::Memory(fifo) => fifo.mapped_offers(),
            SendKind::Message(_) => None,
        }
    }

    /// As [`SendEnd::try_offer`], of memory that the peer [can read](SendEnd::is_readable_by_peer).
    ///
    /// # Safety
    ///
    /// As for [`SendEnd::try_offer`].
    pub(crate) unsafe fn try_offer_readable(
        &mut self,
        offers: &mut Offers,
        source: *const u8,
        bytes: usize,
        identity: &Identity,
    ) -> Result<bool> {
        match &mut self.kind {
            SendKind::Memory(fifo) => {
                // SAFETY: the caller's promise.
                unsafe { fifo.try_offer_mapped(offers, source, identity.header(bytes)) }
                    .map_err(|error| at(error, self.peer))
            }
            SendKind::Message(_) => Err(no_offers(self.peer)),
        }
    }
}

impl RecvEnd {
    /// The same end, which looks up in `pair` what its peer says to be mapped.
    pub(crate) fn with_regions(mut self, pair: Arc<Pair>) -> Self {
        self.regions = Some(pair);
        self
    }

    /// Where `bytes` bytes at `address` in the peer's process can be read here, if they lie in a region
    /// of it that is mapped; what is returned keeps them mapped.
    ///
    /// The peer must have said that its [memory is readable](super::SendEnd::is_readable_by_peer), in the
    /// operation at hand: otherwise the address may mean something else by now. It may write there at
    /// any time, so the memory is read through the pointer only. `None` for zero bytes. Whoever reads
    /// more than a few bytes [notes it](RecvEnd::note_read).
    pub(crate) fn peer_bytes(&self, address: u64, bytes: usize) -> Option<PeerBytes> {
        self.regions.as_ref()?.find(address, bytes)
    }

    /// Notes that this many bytes of [`RecvEnd::peer_bytes`] or [`RecvEnd::offered_bytes`] were read,
    /// for [`MemStats`](crate::MemStats).
    pub(crate) fn note_read(&self, bytes: usize) {
        if let Some(pair) = &self.regions {
            pair.note_read(bytes);
        }
    }

    /// Where `bytes` bytes, from `offset` on, of what the step at hand offers can be read here, if the
    /// sender says that they are mapped; `None` if they are to be [pulled](RecvEnd::pull), or were revoked.
    ///
    /// What was read counts only if the [offer stands](RecvEnd::offer_stands) afterwards.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`](comm_core::ErrorKind) if the offer stands and nothing is mapped there.
    pub(crate) fn offered_bytes(&self, offset: usize, bytes: usize) -> Result<Option<PeerBytes>> {
        let RecvKind::Memory(fifo) = &self.kind else {
            return Err(no_offers(self.peer));
        };
        let Some(address) = fifo.mapped_offer() else {
            return Ok(None);
        };
        let found = self.peer_bytes(address.wrapping_add(offset as u64), bytes);
        // A sender that gave up may have given up the region too.
        if found.is_none() && self.offer_stands() {
            return Err(not_mapped(self.peer));
        }
        Ok(found)
    }

    /// Whether the sender has not revoked what the step at hand offers, for offers between processes.
    pub(crate) fn offer_stands(&self) -> bool {
        match &self.kind {
            RecvKind::Memory(fifo) => fifo.offer_stands(),
            RecvKind::Message(_) => false,
        }
    }
}
