//! The step FIFO: one directed edge in memory that both ends can address.
//!
//! ```
//! use comm_core::doorbell::{Doorbells, RingTarget};
//! use comm_core::fifo::{FifoLayout, FifoMemory};
//!
//! let bells = RingTarget::Local(Doorbells::local());
//! let (mut sender, mut receiver) =
//!     FifoMemory::heap(FifoLayout::new(4096)?).into_ends(bells.clone(), bells);
//!
//! let signature_hash = 7;
//! assert!(sender.try_send_small(b"hello", signature_hash)?);
//!
//! let arrived = receiver.try_step()?.expect("a step was sent");
//! assert_eq!(arrived.signature_hash(), signature_hash);
//! let mut text = [0; 5];
//! receiver.read_small(&mut text)?;
//! receiver.consume();
//! assert_eq!(&text, b"hello");
//! # Ok::<(), comm_core::Error>(())
//! ```
//!
//! # Layout
//!
//! One page of control words (credit, waiters, claims and 8 lines) followed by 8 slots of `step_bytes`.
//! Slots are spread by [`SLOT_SKEW_BYTES`] so that equal offsets of user buffers and slots do not
//! share cache sets. The layout is the same on the heap, in a sealed memory file and under loom;
//! the algorithm ([`FifoSender`], [`FifoReceiver`]) does not know which it runs on.
//!
//! # Contract
//!
//! * Steps are numbered from 1 and never reused; step `s` uses line and slot `s % 8`.
//! * A step is either **small** (at most [`SMALL_BYTES`] bytes, which travel in the line itself),
//!   a **slot** step (its line holds length and signature, its slot the payload), or an **offer**
//!   of the sender's own memory (see [`Offers`]). Each may be empty. The receiver learns which from
//!   the line, so all kinds mix freely and in order.
//! * Offers exist on a FIFO that was made by [`FifoMemory::heap_with_offers`], whose addresses mean
//!   something to both ends, and on one whose receiver [pulls](FifoMemory::pulling): it hands
//!   addresses to the system and never uses them itself. Elsewhere an offer is a protocol violation,
//!   and its addresses are never looked at.
//! * Offers of **mapped** memory ([`FifoSender::try_offer_mapped`]) exist on a FIFO whose receiver
//!   [looks addresses up](FifoMemory::mapping) among what it has mapped of the sender's memory. They
//!   are marked as such, so memory that a sender does not vouch for is never taken for mapped memory
//!   that was at the same address before. A receiver can do one without the other.
//! * The sender may be at most [`SLOTS`] steps ahead of the credit (`head`) that the receiver gave
//!   back; otherwise it gets "not now". Memory is bounded by the layout.
//! * One sender and one receiver, each used by one thread at a time. No call blocks, allocates
//!   (except for an error), locks, reads a clock or calls the system (except to ring a sleeper).
//! * An end that is dropped says so; the other end gets the remaining steps and then
//!   [`ErrorKind::PeerDied`](crate::ErrorKind). An end whose process is killed says nothing: the
//!   control plane notices that, and rings.
//! * Nothing that the other process writes is trusted: numbers are checked after they were
//!   loaded, once, and payloads are only ever copied through raw pointers. Wrong contents lead to
//!   [`ErrorKind::Protocol`](crate::ErrorKind) or to a wrong payload, never to undefined behaviour.
//!
//! # Synchronisation
//!
//! | writer | store | reader | load | what it orders |
//! |---|---|---|---|---|
//! | sender | `line.stamp` Release | receiver | `line.stamp` Acquire | line words and slot contents of the step |
//! | receiver | `head` Release | sender | `head` Acquire | the receiver's reads of the slot before its reuse |
//! | receiver | `claim` leaves CLAIMED, Release | sender | `claim` Acquire | the receiver's accesses to offered memory before the sender takes it back |
//! | receiver | `claim` compare-exchanged to itself after a pull, AcqRel | sender | `claim` swap to REVOKED, AcqRel | what was pulled before the sender takes the memory back |
//! | receiver | `receiver_waiter.swap(number)` AcqRel | sender | `receiver_waiter.swap(0)` AcqRel | see below |
//! | sender | `sender_waiter.swap(number)` AcqRel | receiver | `sender_waiter.swap(0)` AcqRel | see below |
//!
//! A waiter swaps its doorbell's number in and looks once more; a publisher publishes and swaps
//! the number out. The swaps of one word are ordered: if the publisher's comes second it sees the
//! number and rings; if it comes first, the waiter's swap reads from it (or from a later one of
//! the release sequence that it heads) and synchronises with it, so the waiter's second look sees
//! what was published. Hence no lost wake-up, without a fence. The word is only ever changed by
//! read-modify-write operations, also when a waiter takes its number back: a plain store would
//! break the release sequence, and with it the argument.

mod memory;
mod offer;
mod receiver;
mod sender;

#[cfg(all(test, comm_loom))]
mod loom_offers;
#[cfg(all(test, comm_loom))]
mod loom_tests;
#[cfg(all(test, not(comm_loom)))]
mod tests;

use std::mem::size_of;

pub use memory::{CONTROL_BYTES, FifoLayout, FifoMemory, MAX_STEP_BYTES};
pub use offer::{Claim, Offer, Offers, PeerMemory};
pub use receiver::{Arrived, FifoReceiver};
pub use sender::FifoSender;

use crate::{Error, ErrorKind};

/// Steps that may be on their way at once. Under loom 2, which keeps the models small.
pub const SLOTS: usize = if cfg!(comm_loom) { 2 } else { 8 };

/// Payload of a small step: what is left of a 64-byte line beside its stamp.
pub const SMALL_BYTES: usize = LINE_WORDS * size_of::<u64>();

/// Distance added between slots, so that a slot and a page-aligned user buffer do not compete for
/// the same cache sets and store-to-load forwarding is not confused by equal page offsets.
pub const SLOT_SKEW_BYTES: usize = 320;

/// Data words of a line. Under loom 6, which is what the descriptor of an offer needs.
const LINE_WORDS: usize = if cfg!(comm_loom) { 6 } else { 7 };

/// Words of a descriptor: length and packed signature of a slot step.
const DESCRIPTOR_WORDS: usize = 4;

/// Words of an offer behind its descriptor: source and target.
const OFFER_WORDS: usize = 2;

/// Bit of a descriptor's length that makes the step an offer.
const OFFER_FLAG: u64 = 1 << 63;

/// Bit of the length of an offer of memory that the receiver has mapped.
const MAPPED_FLAG: u64 = 1 << 62;

/// Stamp bit of steps whose payload is in the slot.
const SLOT_FLAG: u64 = 1 << 63;

/// Bits of the signature's hash that a stamp holds.
const HASH_MASK: u32 = 0x7fff_ffff;

/// The stamp that publishes `step`.
#[inline]
const fn stamp(step: u64, signature_hash: u32, flag: u64) -> u64 {
    (step as u32 as u64) | (((signature_hash & HASH_MASK) as u64) << 32) | flag
}

/// The lower half of a stamp against the number of a step.
#[inline]
const fn stamp_is_of(stamp: u64, step: u64) -> bool {
    stamp as u32 == step as u32
}

/// The hash of the signature in a stamp.
#[inline]
const fn stamp_hash(stamp: u64) -> u32 {
    (stamp >> 32) as u32 & HASH_MASK
}

#[cold]
#[inline(never)]
fn protocol_violation(what: &'static str) -> Error {
    Error::new(
        ErrorKind::Protocol,
        "the shared memory of an edge holds values that the protocol does not allow; \
         another process has overwritten it",
    )
    .with("what", what)
}
