//! Offers: a step that names the sender's own memory instead of carrying its contents.
//!
//! # Contract
//!
//! * The sender keeps the offered memory valid until the step is consumed or the offer revoked. The
//!   receiver touches it only while it holds a [`Claim`].
//! * A claim may be given back and taken again, so that a large offer is worked on in pieces. The
//!   offer is done when its step is consumed.
//! * [`Offers::revoke`] takes back what is not consumed: an offer that nobody holds at once, one
//!   that is claimed as soon as the claim is given back. It waits for nothing else, so whoever
//!   claims does only bounded work under a claim and never waits in it. After it returned the
//!   receiver cannot touch the memory any more, whatever it does later.
//! * A revoked offer is as if it had never been published: the receiver waits for it in vain until
//!   the sending end is dropped or the operation is ended from outside.
//!
//! # Between processes
//!
//! A receiver in another process can't use an address, but may have a way to read the sender's memory
//! ([`PeerMemory`]). Then it *pulls*: it copies what is offered, and only afterwards looks whether the
//! offer still stands. If not, what it copied is void. So nobody ever waits for a process that may be
//! dead or hostile, a revocation takes one operation on the word, and CLAIMED does not occur. Such an
//! offer has no target: a process writes only to its own memory.
//!
//! Or it has **mapped** the memory for reading, which the two processes agreed on beside the FIFO. The
//! sender says so with the offer ([`FifoSender::try_offer_mapped`](super::FifoSender::try_offer_mapped)),
//! and the address is not used but looked up. Everything else is as for a pull: read first, and then
//! look whether the offer stands. Such a receiver need not be able to pull.
//!
//! # States
//!
//! ```text
//!              claim                     consume (the step's credit)
//!   OFFERED ----------> CLAIMED
//!      |    <----------    |  ------> ... DONE
//!      |      give back
//!      | revoke
//!      v
//!   REVOKED
//! ```
//!
//! One word per place in the FIFO's own memory holds step number and state, so it outlives both
//! operations and a late revocation can't hit the offer of a later step. DONE needs no state of its
//! own: the sender reads it from the credit. The receiver changes the word by a compare-and-swap
//! from OFFERED and a Release store out of CLAIMED, the sender by a compare-and-swap from OFFERED;
//! its Acquire loads order the receiver's accesses before whatever happens to the memory next.

use std::fmt;

use super::{DESCRIPTOR_WORDS, FifoMemory, OFFER_WORDS};
use crate::Result;
use crate::sync::atomic::Ordering;
use crate::sync::yield_now;

const OFFERED: u64 = 1;
const CLAIMED: u64 = 2;
const REVOKED: u64 = 3;

/// Looks at a claimed offer before the CPU is offered to the thread that holds it.
const SPINS: u32 = if cfg!(comm_loom) { 0 } else { 200 };

/// The word of an offer that is free to be claimed.
pub(super) const fn offered(step: u64) -> u64 {
    step << 2 | OFFERED
}

/// The word of an offer that was taken back.
pub(super) const fn revoked(step: u64) -> u64 {
    step << 2 | REVOKED
}

const fn claimed(step: u64) -> u64 {
    step << 2 | CLAIMED
}

/// A way to read the memory of the process at the other end of an edge.
///
/// # Safety
///
/// [`PeerMemory::read`] may be given any address. It writes to `target` and nowhere else.
pub unsafe trait PeerMemory: Send + Sync + fmt::Debug {
    /// Copies `bytes` bytes from an address in the peer's process to `target`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::PeerDied`](crate::ErrorKind) if the process is gone,
    /// [`ErrorKind::Protocol`](crate::ErrorKind) if it has no such memory. Parts of the target may
    /// be written then.
    ///
    /// # Safety
    ///
    /// `target` must be valid for writing `bytes` bytes.
    unsafe fn read(&self, address: u64, target: *mut u8, bytes: usize) -> Result<()>;
}

/// The memory that a step offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What the receiver may read.
    pub source: *const u8,
    /// What the receiver may write; null for nothing.
    pub target: *mut u8,
}

impl Offer {
    // Both ends are of one process, so an exposed address means the same memory in both.
    pub(super) fn to_words(self) -> [u64; OFFER_WORDS] {
        [
            self.source.expose_provenance() as u64,
            self.target.expose_provenance() as u64,
        ]
    }

    fn from_words([source, target]: [u64; OFFER_WORDS]) -> Self {
        Self {
            source: std::ptr::with_exposed_provenance(source as usize),
            target: std::ptr::with_exposed_provenance_mut(target as usize),
        }
    }
}

/// The offers that one operation has made over one edge; [revoked](Offers::revoke) when dropped.
///
/// Keeps the FIFO's memory alive, so it may outlive both ends.
pub struct Offers {
    memory: FifoMemory,
    /// The first step that may be an offer of this operation.
    first: u64,
    /// The step behind the last offer.
    end: u64,
}

impl Offers {
    pub(super) const fn new(memory: FifoMemory, next: u64) -> Self {
        Self {
            memory,
            first: next,
            end: next,
        }
    }

    pub(super) fn are_of(&self, memory: &FifoMemory) -> bool {
        std::ptr::eq(self.memory.control(), memory.control())
    }

    /// Notes the offer of `step`, the next one of the FIFO.
    pub(super) const fn extend_to(&mut self, step: u64) {
        self.end = step + 1;
    }

    /// Takes back every offer that is not consumed; afterwards the receiver cannot touch the
    /// offered memory any more.
    ///
    /// Waits for a piece that is being worked on, and for nothing else.
    pub fn revoke(&mut self) {
        // Acquire: pairs with the receiver's Release store of `head`, which its accesses precede.
        let head = self.memory.control().head.0.load(Ordering::Acquire);
        for step in self.first.max(head + 1)..self.end {
            self.revoke_one(step);
        }
        self.first = self.end;
    }

    fn revoke_one(&self, step: u64) {
        let word = self.memory.claim(step);
        if !self.memory.allows_offers() {
            // AcqRel: a pull that was confirmed before has read before whatever happens to the memory
            // next; one that is not is void.
            word.swap(revoked(step), Ordering::AcqRel);
            return;
        }
        let mut looks = 0;
        // Acquire: pairs with the Release store of a claim that is given back. A failed look at
        // CLAIMED orders nothing and is followed by another one.
        while let Err(seen) = word.compare_exchange(
            offered(step),
            revoked(step),
            Ordering::Acquire,
            Ordering::Acquire,
        ) {
            if seen != claimed(step) {
                return;
            }
            if looks < SPINS {
                looks += 1;
                std::hint::spin_loop();
            } else {
                yield_now();
            }
        }
    }
}

impl Drop for Offers {
    fn drop(&mut self) {
        self.revoke();
    }
}

impl fmt::Debug for Offers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offers")
            .field("steps", &(self.first..self.end))
            .finish_non_exhaustive()
    }
}

/// Offered memory in the receiver's hands; given back when dropped.
///
/// The sender's call may be waiting for the drop, so a claim is held for a bounded piece of work
/// only.
pub struct Claim<'a> {
    memory: &'a FifoMemory,
    step: u64,
    offer: Offer,
}

impl<'a> Claim<'a> {
    /// Claims the offer of a step that has arrived.
    pub(super) fn take(memory: &'a FifoMemory, step: u64) -> Option<Self> {
        // Acquire: nothing under the claim comes before it. Failure reads nothing.
        memory
            .claim(step)
            .compare_exchange(
                offered(step),
                claimed(step),
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .ok()?;
        let words = &memory.line(step).words;
        // Relaxed: ordered by the Acquire load of the stamp in `FifoReceiver::claim`.
        let offer = Offer::from_words(std::array::from_fn(|index| {
            words[DESCRIPTOR_WORDS + index].load(Ordering::Relaxed)
        }));
        Some(Self {
            memory,
            step,
            offer,
        })
    }

    /// The memory, valid while the claim lives, for as many bytes as the step's header says.
    #[must_use]
    pub const fn offer(&self) -> Offer {
        self.offer
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `Offers::revoke`. A store suffices: nobody else
        // changes the word of a claimed offer.
        self.memory
            .claim(self.step)
            .store(offered(self.step), Ordering::Release);
    }
}

impl fmt::Debug for Claim<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("step", &self.step)
            .field("offer", &self.offer)
            .finish_non_exhaustive()
    }
}
