//! Where the words and slots of a FIFO lie.

use std::any::Any;
use std::fmt;
use std::mem::size_of;
use std::ptr::NonNull;

#[cfg(doc)]
use super::Offers;
use super::{FifoReceiver, FifoSender, LINE_WORDS, PeerMemory, SLOT_SKEW_BYTES, SLOTS};
use crate::doorbell::RingTarget;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::{Error, ErrorKind, Result};

/// Largest slot that a layout accepts.
pub const MAX_STEP_BYTES: usize = 1 << 30;

/// Length of the control words at the start of a FIFO's memory: one page, so that it can be
/// touched in advance without the slots. The first slot follows.
pub const CONTROL_BYTES: usize = 4096;

/// Alignment of the control words, and what [`FifoMemory::from_raw`] asks of its memory.
#[cfg(not(comm_loom))]
const ALIGN_BYTES: usize = align_of::<FifoControl>();

/// Alignment of every slot: a cache line.
const SLOT_ALIGN_BYTES: usize = 64;

/// The receiver reads any memory of the sender's process, by the system.
const PULLS: u32 = 1;
/// The receiver reads what it has mapped of the sender's memory.
const MAPS: u32 = 2;

/// Alone on two cache lines, since processors prefetch lines in pairs.
#[repr(C, align(128))]
#[derive(Debug)]
pub(super) struct Alone<T>(pub(super) T);

/// 56 bytes of data and the stamp that publishes them.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Line {
    pub(super) words: [AtomicU64; LINE_WORDS],
    /// Lower half: the step's number modulo 2^32. Upper half: [`SLOT_FLAG`](super::SLOT_FLAG) and
    /// the 31-bit hash of the signature.
    pub(super) stamp: AtomicU64,
}

/// The shared control words of one FIFO; all zero is a fresh FIFO.
#[repr(C)]
#[derive(Debug)]
pub(super) struct FifoControl {
    /// Steps that the receiver has consumed: the sender's credit. Written by the receiver.
    pub(super) head: Alone<AtomicU64>,
    /// Doorbell number of the thread that waits for a step, or 0.
    pub(super) receiver_waiter: Alone<AtomicU32>,
    /// Doorbell number of the thread that waits for credit, or 0.
    pub(super) sender_waiter: Alone<AtomicU32>,
    /// Not 0 once the sender is gone.
    pub(super) sender_closed: Alone<AtomicU32>,
    /// Not 0 once the receiver is gone.
    pub(super) receiver_closed: Alone<AtomicU32>,
    /// What a receiver in another process can do with offers: [`PULLS`] and [`MAPS`].
    pub(super) takes: Alone<AtomicU32>,
    pub(super) lines: [Line; SLOTS],
    /// Who may use the memory that the step of this place offers; see [`super::offer`].
    pub(super) claims: [Alone<AtomicU64>; SLOTS],
    /// Stand for the slots in the models, so that loom sees who owns a payload.
    #[cfg(comm_loom)]
    pub(super) payloads: [loom::cell::UnsafeCell<u64>; SLOTS],
}

const _: () = assert!(cfg!(comm_loom) || size_of::<FifoControl>() <= CONTROL_BYTES);
const _: () = assert!(cfg!(comm_loom) || size_of::<Line>() == 64);
const _: () = assert!(SLOT_SKEW_BYTES.is_multiple_of(SLOT_ALIGN_BYTES));
const _: () = assert!(
    usize::BITS >= 64,
    "the largest FIFO does not fit into 32-bit addresses"
);

impl FifoControl {
    fn new() -> Self {
        Self {
            head: Alone(AtomicU64::new(0)),
            receiver_waiter: Alone(AtomicU32::new(0)),
            sender_waiter: Alone(AtomicU32::new(0)),
            sender_closed: Alone(AtomicU32::new(0)),
            receiver_closed: Alone(AtomicU32::new(0)),
            takes: Alone(AtomicU32::new(0)),
            lines: std::array::from_fn(|_| Line {
                words: std::array::from_fn(|_| AtomicU64::new(0)),
                stamp: AtomicU64::new(0),
            }),
            claims: std::array::from_fn(|_| Alone(AtomicU64::new(0))),
            #[cfg(comm_loom)]
            payloads: std::array::from_fn(|_| loom::cell::UnsafeCell::new(0)),
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
        if step_bytes == 0
            || !step_bytes.is_multiple_of(SLOT_ALIGN_BYTES)
            || step_bytes > MAX_STEP_BYTES
        {
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
    #[inline]
    pub const fn step_bytes(&self) -> usize {
        self.step_bytes
    }

    /// Memory that the FIFO needs.
    #[must_use]
    pub const fn total_bytes(&self) -> usize {
        CONTROL_BYTES + self.slots_bytes()
    }

    const fn slots_bytes(&self) -> usize {
        SLOTS * self.stride_bytes()
    }

    #[inline]
    const fn stride_bytes(&self) -> usize {
        self.step_bytes + SLOT_SKEW_BYTES
    }
}

/// The memory of one FIFO, before its end or ends are made.
///
/// Making an end takes the memory, so there cannot be two senders or two receivers of it in one
/// process.
pub struct FifoMemory {
    control: NonNull<FifoControl>,
    slots: NonNull<u8>,
    layout: FifoLayout,
    /// Whether both ends are of this process and may offer each other memory.
    offers: bool,
    /// By which a receiver reads what a sender in another process offers.
    peer: Option<Arc<dyn PeerMemory>>,
    /// Whether the receiver knows what it has mapped of the sender's memory.
    maps: bool,
    /// Keeps the memory alive.
    owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the control words are atomics; slots are only handed out by `FifoSender` and
// `FifoReceiver` under the FIFO protocol; the owner is `Send` and `Sync`.
unsafe impl Send for FifoMemory {}
// SAFETY: as above.
unsafe impl Sync for FifoMemory {}

/// Frees the memory of a FIFO on the heap.
struct Heap {
    control: NonNull<FifoControl>,
    /// Only kept; used through a pointer.
    _slots: Vec<u8>,
}

// SAFETY: `Heap` gives no access to what it owns; it only frees it.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `Box::into_raw` in `FifoMemory::heap`, and no end is left.
        drop(unsafe { Box::from_raw(self.control.as_ptr()) });
    }
}

impl FifoMemory {
    /// A FIFO on this process's heap, for two threads.
    #[must_use]
    pub fn heap(layout: FifoLayout) -> Self {
        let control = NonNull::from(Box::leak(Box::new(FifoControl::new())));
        // Zeroed by the allocator, so that large slots get their pages at first touch.
        let mut bytes = vec![0_u8; layout.slots_bytes() + SLOT_ALIGN_BYTES];
        let padding_bytes = bytes.as_ptr().align_offset(SLOT_ALIGN_BYTES);
        let slots = NonNull::from(&mut bytes[padding_bytes..]).cast::<u8>();
        Self {
            control,
            slots,
            layout,
            offers: false,
            peer: None,
            maps: false,
            owner: Arc::new(Heap {
                control,
                _slots: bytes,
            }),
        }
    }

    /// A FIFO on this process's heap whose sender may also [offer](Offers) its own memory.
    ///
    /// For transports whose ends both belong to the runtime: whoever reads the receiving end must
    /// know what to do with an [`Arrived::Offer`](super::Arrived).
    #[must_use]
    pub fn heap_with_offers(layout: FifoLayout) -> Self {
        Self {
            offers: true,
            ..Self::heap(layout)
        }
    }

    /// A FIFO in memory that two processes may share.
    ///
    /// The memory must be zero before the first end is made; other contents lead to
    /// [`ErrorKind::Protocol`] later.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if `base` is not aligned to 128 bytes or `len_bytes` is
    /// shorter than [`FifoLayout::total_bytes`].
    ///
    /// # Safety
    ///
    /// `base` must point to `len_bytes` bytes that stay mapped and writable while `owner` lives.
    /// This process must make at most one sender and one receiver of the memory and access it in
    /// no other way. Other processes may do to its contents whatever they want.
    #[cfg(not(comm_loom))]
    pub unsafe fn from_raw(
        base: NonNull<u8>,
        len_bytes: usize,
        layout: FifoLayout,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self> {
        if len_bytes < layout.total_bytes() || base.align_offset(ALIGN_BYTES) != 0 {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the memory of a FIFO is too small or not aligned to 128 bytes",
            )
            .with("needed_bytes", layout.total_bytes())
            .with("actual_bytes", len_bytes));
        }
        // SAFETY: `CONTROL_BYTES` is within the `total_bytes` that were just checked.
        let slots = unsafe { base.add(CONTROL_BYTES) };
        Ok(Self {
            control: base.cast(),
            slots,
            layout,
            offers: false,
            peer: None,
            maps: false,
            owner,
        })
    }

    /// The same memory for a receiver that can read the sender's process by `peer`, so that the
    /// sender may [offer](Offers) what it sends; the sender learns of it at once.
    #[must_use]
    pub fn pulling(self, peer: Arc<dyn PeerMemory>) -> Self {
        self.announce(PULLS);
        Self {
            peer: Some(peer),
            ..self
        }
    }

    /// The same memory for a receiver whose owner looks up what it has mapped of the sender's memory
    /// ([`FifoReceiver::mapped_offer`]), so that the sender may
    /// [offer](FifoSender::try_offer_mapped) that; the sender learns of it at once.
    #[must_use]
    pub fn mapping(self) -> Self {
        self.announce(MAPS);
        Self { maps: true, ..self }
    }

    fn announce(&self, what: u32) {
        // Release: pairs with the Acquire load in `receiver_takes`, for form's sake; nothing else is
        // read because of it.
        self.control().takes.0.fetch_or(what, Ordering::Release);
    }

    /// The writing end, for a receiver elsewhere; `receiver` are the doorbells of the reading
    /// process.
    #[must_use]
    pub fn into_sender(self, receiver: RingTarget) -> FifoSender {
        FifoSender::new(self, receiver)
    }

    /// The reading end, for a sender elsewhere; `sender` are the doorbells of the writing process.
    #[must_use]
    pub fn into_receiver(self, sender: RingTarget) -> FifoReceiver {
        FifoReceiver::new(self, sender)
    }

    /// Both ends, for two threads of this process.
    ///
    /// `sender` and `receiver` are the doorbells of the writing and of the reading thread.
    #[must_use]
    pub fn into_ends(self, sender: RingTarget, receiver: RingTarget) -> (FifoSender, FifoReceiver) {
        (
            FifoSender::new(self.another(), receiver),
            FifoReceiver::new(self, sender),
        )
    }

    /// Another handle of the same memory.
    pub(super) fn another(&self) -> Self {
        Self {
            owner: Arc::clone(&self.owner),
            peer: self.peer.clone(),
            ..*self
        }
    }

    /// Whether both ends are of this process and may offer each other memory.
    #[must_use]
    #[inline]
    pub const fn allows_offers(&self) -> bool {
        self.offers
    }

    /// Whether the receiver has said that it pulls what the sender offers.
    #[inline]
    pub(super) fn receiver_pulls(&self) -> bool {
        self.receiver_takes(PULLS)
    }

    /// Whether the receiver has said that it takes offers of memory that it has mapped.
    #[inline]
    pub(super) fn receiver_maps(&self) -> bool {
        self.receiver_takes(MAPS)
    }

    #[inline]
    fn receiver_takes(&self, what: u32) -> bool {
        self.control().takes.0.load(Ordering::Acquire) & what != 0
    }

    pub(super) const fn can_pull(&self) -> bool {
        self.peer.is_some()
    }

    pub(super) const fn can_look_up(&self) -> bool {
        self.maps
    }

    /// By which the receiver reads the sender's process, if it can.
    pub(super) fn peer(&self) -> Option<&dyn PeerMemory> {
        self.peer.as_deref()
    }

    /// The sizes with which the memory is divided.
    #[must_use]
    #[inline]
    pub const fn layout(&self) -> FifoLayout {
        self.layout
    }

    #[inline]
    pub(super) fn control(&self) -> &FifoControl {
        // SAFETY: `control` points to a live `FifoControl` as long as `self` lives: a box in
        // `heap`, checked memory in `from_raw`. It consists of atomics only, so every bit pattern
        // is valid and concurrent writes by another process are writes to atomics.
        unsafe { self.control.as_ref() }
    }

    #[inline]
    pub(super) fn line(&self, step: u64) -> &Line {
        &self.control().lines[(step % SLOTS as u64) as usize]
    }

    #[inline]
    pub(super) fn claim(&self, step: u64) -> &AtomicU64 {
        &self.control().claims[(step % SLOTS as u64) as usize].0
    }

    #[inline]
    pub(super) fn slot(&self, step: u64) -> NonNull<u8> {
        let index = (step % SLOTS as u64) as usize;
        // SAFETY: `index < SLOTS`, and the memory holds `SLOTS` slots of `stride_bytes` each.
        unsafe { self.slots.add(index * self.layout.stride_bytes()) }
    }
}

impl fmt::Debug for FifoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FifoMemory")
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}
