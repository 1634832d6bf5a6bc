//! The step FIFO: one directed edge in memory that both ends can address.
//!
//! # Layout
//!
//! A [`FifoControl`] (credit, waiters and 8 lines) followed by 8 slots of `step_bytes`. Slots are
//! spread by [`SLOT_SKEW_BYTES`] so that equal offsets of user buffers and slots do not share
//! cache sets. The layout is the same on the heap, in a sealed memory file and under loom; the
//! algorithm ([`FifoSender`], [`FifoReceiver`]) does not know which it runs on.
//!
//! # Contract
//!
//! * Steps are numbered from 1 and never reused; step `s` uses line and slot `s % 8`.
//! * A step is either **small** (at most [`SMALL_BYTES`] bytes, which travel in the line itself)
//!   or a **slot** step (its line holds length and signature, its slot the payload). Empty steps
//!   are small. The receiver learns which from the line, so both kinds mix freely and in order.
//! * The sender may be at most [`SLOTS`] steps ahead of the credit (`head`) that the receiver gave
//!   back; otherwise it gets "not now". Memory is bounded by the layout.
//! * One sender and one receiver, each used by one thread at a time. No call blocks.
//! * An end that is dropped says so; the other end gets the remaining steps and then
//!   [`ErrorKind::PeerDied`](crate::ErrorKind).
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
//! | receiver | `receiver_waiter.swap(number)` AcqRel | sender | `receiver_waiter.swap(0)` AcqRel | see below |
//! | sender | `sender_waiter.swap(number)` AcqRel | receiver | `sender_waiter.swap(0)` AcqRel | see below |
//!
//! A waiter swaps its doorbell's number in and looks once more; a publisher publishes and swaps
//! the number out. The two swaps of one word are ordered: if the publisher's comes second it sees
//! the number and rings; if it comes first, the waiter's swap reads from it (or a later one) and
//! synchronises with it, so the waiter's second look sees what was published. Hence no lost
//! wake-up, without a fence.

mod receiver;
mod sender;

#[cfg(all(test, comm_loom))]
mod loom_tests;
#[cfg(all(test, not(comm_loom)))]
mod tests;

use std::any::Any;
use std::fmt;
use std::mem::size_of;
use std::ptr::NonNull;

pub use receiver::{Arrived, FifoReceiver};
pub use sender::FifoSender;

use crate::sync::Arc;
use crate::sync::atomic::{AtomicU32, AtomicU64};
use crate::{Error, ErrorKind, Result};

/// Steps that may be on their way at once. Under loom 2, which keeps the models small.
pub const SLOTS: usize = if cfg!(comm_loom) { 2 } else { 8 };

/// Payload of a small step: what is left of a 64-byte line beside its stamp.
pub const SMALL_BYTES: usize = LINE_WORDS * size_of::<u64>();

/// Distance added between slots, so that a slot and a page-aligned user buffer do not compete for
/// the same cache sets and store-to-load forwarding is not confused by equal page offsets.
pub const SLOT_SKEW_BYTES: usize = 320;

/// Largest slot that a layout accepts.
pub const MAX_STEP_BYTES: usize = 1 << 30;

/// Data words of a line. Under loom 4, which is what a descriptor needs.
const LINE_WORDS: usize = if cfg!(comm_loom) { 4 } else { 7 };

/// Start of the first slot: control lines and a page boundary.
const SLOTS_OFFSET_BYTES: usize = 4096;

/// Alone on two cache lines, since processors prefetch lines in pairs.
#[repr(C, align(128))]
#[derive(Debug)]
struct Alone<T>(T);

/// 56 bytes of data and the stamp that publishes them.
#[repr(C, align(64))]
#[derive(Debug)]
struct Line {
    words: [AtomicU64; LINE_WORDS],
    /// Lower half: the step's number modulo 2^32. Upper half: [`SLOT_FLAG`] and the 31-bit hash of
    /// the signature.
    stamp: AtomicU64,
}

/// Stamp bit of steps whose payload is in the slot.
const SLOT_FLAG: u64 = 1 << 63;

/// The shared control words of one FIFO; all zero is a fresh FIFO.
#[repr(C)]
#[derive(Debug)]
struct FifoControl {
    /// Steps that the receiver has consumed: the sender's credit. Written by the receiver.
    head: Alone<AtomicU64>,
    /// Doorbell number of the thread that waits for a step, or 0.
    receiver_waiter: Alone<AtomicU32>,
    /// Doorbell number of the thread that waits for credit, or 0.
    sender_waiter: Alone<AtomicU32>,
    /// Not 0 once the sender is gone.
    sender_closed: Alone<AtomicU32>,
    /// Not 0 once the receiver is gone.
    receiver_closed: Alone<AtomicU32>,
    lines: [Line; SLOTS],
}

impl FifoControl {
    fn new() -> Self {
        Self {
            head: Alone(AtomicU64::new(0)),
            receiver_waiter: Alone(AtomicU32::new(0)),
            sender_waiter: Alone(AtomicU32::new(0)),
            sender_closed: Alone(AtomicU32::new(0)),
            receiver_closed: Alone(AtomicU32::new(0)),
            lines: std::array::from_fn(|_| Line {
                words: std::array::from_fn(|_| AtomicU64::new(0)),
                stamp: AtomicU64::new(0),
            }),
        }
    }
}

/// Sizes of a FIFO in memory; both ends compute it from `step_bytes` alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FifoLayout {
    step_bytes: usize,
}

impl FifoLayout {
    /// A FIFO whose slots hold `step_bytes` each.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] unless `step_bytes` is a multiple of 64 between 64 and
    /// [`MAX_STEP_BYTES`].
    pub fn new(step_bytes: usize) -> Result<Self> {
        if step_bytes == 0 || !step_bytes.is_multiple_of(64) || step_bytes > MAX_STEP_BYTES {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the step size of an edge must be a multiple of 64 bytes, at most 1 GiB",
            )
            .with("step_bytes", step_bytes));
        }
        Ok(Self { step_bytes })
    }

    /// Capacity of one slot.
    #[must_use]
    pub const fn step_bytes(&self) -> usize {
        self.step_bytes
    }

    /// Memory that the FIFO needs.
    #[must_use]
    pub const fn total_bytes(&self) -> usize {
        SLOTS_OFFSET_BYTES + SLOTS * self.stride_bytes()
    }

    const fn stride_bytes(&self) -> usize {
        self.step_bytes + SLOT_SKEW_BYTES
    }
}

const _: () = assert!(cfg!(comm_loom) || size_of::<FifoControl>() <= SLOTS_OFFSET_BYTES);
const _: () = assert!(cfg!(comm_loom) || size_of::<Line>() == 64);

/// The memory of one FIFO, shared by its two ends.
pub struct FifoMemory {
    control: NonNull<FifoControl>,
    slots: NonNull<u8>,
    layout: FifoLayout,
    /// Keeps the memory alive.
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: the control words are atomics; slots are only accessed by `FifoSender` and
// `FifoReceiver` under the FIFO protocol; the owner is `Send`.
unsafe impl Send for FifoMemory {}
// SAFETY: as above.
unsafe impl Sync for FifoMemory {}

impl FifoMemory {
    /// A FIFO on this process's heap, for two threads.
    #[must_use]
    pub fn heap(layout: FifoLayout) -> Arc<Self> {
        let control = Box::new(FifoControl::new());
        let mut slots = vec![0_u64; SLOTS * layout.stride_bytes() / size_of::<u64>()];
        let control_pointer = NonNull::from(&*control);
        let slots_pointer =
            NonNull::new(slots.as_mut_ptr()).map_or(NonNull::dangling(), NonNull::cast::<u8>);
        Arc::new(Self {
            control: control_pointer,
            slots: slots_pointer,
            layout,
            _owner: Box::new((control, slots)),
        })
    }

    /// A FIFO in memory that two processes may share.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if `base` is not aligned to 128 bytes or `len_bytes` is
    /// shorter than [`FifoLayout::total_bytes`].
    ///
    /// # Safety
    ///
    /// `base` must point to `len_bytes` bytes that stay mapped and writable while `owner` lives,
    /// that were zero before the first end of the FIFO was made, and that this process accesses in
    /// no other way than through the two ends of this FIFO.
    #[cfg(not(comm_loom))]
    pub unsafe fn from_raw(
        base: NonNull<u8>,
        len_bytes: usize,
        layout: FifoLayout,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Arc<Self>> {
        if len_bytes < layout.total_bytes() || base.align_offset(128) != 0 {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the memory of a FIFO is too small or not aligned to 128 bytes",
            )
            .with("needed_bytes", layout.total_bytes())
            .with("actual_bytes", len_bytes));
        }
        // SAFETY: `SLOTS_OFFSET_BYTES` is within the `total_bytes` that were just checked.
        let slots = unsafe { base.add(SLOTS_OFFSET_BYTES) };
        Ok(Arc::new(Self { control: base.cast(), slots, layout, _owner: owner }))
    }

    /// The sizes with which the memory is divided.
    #[must_use]
    pub const fn layout(&self) -> FifoLayout {
        self.layout
    }

    #[inline]
    fn control(&self) -> &FifoControl {
        // SAFETY: `control` points to a live `FifoControl` as long as `self` lives: a box in
        // `heap`, checked memory in `from_raw`. It consists of atomics only, so every bit pattern
        // is valid and concurrent writes by another process are writes to atomics.
        unsafe { self.control.as_ref() }
    }

    #[inline]
    fn line(&self, step: u64) -> &Line {
        &self.control().lines[(step % SLOTS as u64) as usize]
    }

    #[inline]
    fn slot(&self, step: u64) -> NonNull<u8> {
        let index = (step % SLOTS as u64) as usize;
        // SAFETY: `index < SLOTS`, and the memory holds `SLOTS` slots of `stride_bytes` each.
        unsafe { self.slots.add(index * self.layout.stride_bytes()) }
    }
}

impl fmt::Debug for FifoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FifoMemory").field("layout", &self.layout).finish_non_exhaustive()
    }
}

/// The stamp that publishes `step`.
#[inline]
const fn stamp(step: u64, signature_hash: u32, flag: u64) -> u64 {
    (step & 0xffff_ffff) | ((signature_hash as u64 & 0x7fff_ffff) << 32) | flag
}

/// The hash of the signature in a stamp.
#[inline]
const fn stamp_hash(stamp: u64) -> u32 {
    ((stamp >> 32) & 0x7fff_ffff) as u32
}

fn protocol_violation(what: &'static str) -> Error {
    Error::new(
        ErrorKind::Protocol,
        "the shared memory of an edge holds values that the protocol does not allow; \
         another process has overwritten it",
    )
    .with("what", what)
}
