//! Sending and receiving ends as the operations see them.
//!
//! # Contract
//!
//! * A step carries the identity (hash and packed signature) of the operation that sends it; the
//!   receiving operation names its own identity and gets the payload only if they agree.
//! * The pointer that [`RecvEnd::try_take`] returns is valid until [`RecvEnd::consume`]. It may
//!   point into memory that another process writes, so it is only read through raw pointers.
//! * An offer of the sender's own memory comes only over edges whose receiver can reach it, which the
//!   transport says by the FIFO that it makes ([`FifoSender::offers`](comm_core::fifo::FifoSender::offers)). [`RecvEnd::pull`] copies what
//!   is offered, over all of these edges; [`RecvEnd::claim`] gives access to it, if both ends share an
//!   address space.
//! * Memory that lies in a [region](crate::region) is read by the peer without a copy on the way:
//!   [`SendEnd::is_readable_by_peer`] says whether it does, [`RecvEnd::peer_bytes`] and
//!   [`RecvEnd::offered_bytes`] are how the peer gets at it. A sender tells addresses only of what it was
//!   told to be readable, at the time when it tells them.

mod mapped;
mod recv;
mod send;
#[cfg(all(test, target_os = "linux", not(comm_loom)))]
mod tests;

use comm_core::{ConnInfo, Error, ErrorKind, PackedSignature, Rank, Signature, StepHeader};

pub(crate) use recv::{RecvEnd, Taken};
pub(crate) use send::{Outgoing, SendEnd};

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

/// The error of an offer of memory that is not mapped here.
#[cold]
fn not_mapped(peer: Rank) -> Error {
    Error::new(
        ErrorKind::Protocol,
        "a peer offered memory that it had not announced",
    )
    .with("peer", peer)
}

fn wrong_end(transport: &str, wanted: &'static str, conn: &ConnInfo) -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("transport {transport} returned {conn:?} for the {wanted} end of an edge"),
    )
}
