//! Doorbells: how a thread sleeps until one of many peers has something for it.
//!
//! # Contract
//!
//! * A [`Doorbell`] belongs to one waiting thread at a time. It counts rings; the count only
//!   grows (and wraps).
//! * The waiter takes a [`Doorbell::ticket`], *arms* every source that it waits for with its
//!   doorbell's number, looks at every source once more, and only then calls
//!   [`Doorbell::wait`] with the ticket. A ring that came after the ticket was taken makes `wait`
//!   return at once, so no ring is lost.
//! * Rings may be spurious: after a wake-up the waiter looks at its sources again.
//! * An idle waiter costs no CPU.
//! * All doorbells of a process lie in one [`Doorbells`] set. A set in a sealed memory file can be
//!   mapped by other processes ([`PeerDoorbells`]), which can then ring, and do nothing worse
//!   than ring spuriously: the words hold no addresses and nobody trusts their values.
//!
//! # Synchronisation
//!
//! A ring is `count.fetch_add(1, Release)`, a ticket and the waiter's look are
//! `count.load(Acquire)`: what the ringer wrote before ringing is visible to the woken waiter.
//! Whether a source needs to ring at all is decided by the source: see [`crate::fifo`].

mod park;
#[cfg(all(target_os = "linux", not(comm_loom)))]
mod shared;
#[cfg(all(test, not(comm_loom)))]
mod tests;

use std::fmt;
use std::time::Duration;

#[cfg(all(target_os = "linux", not(comm_loom)))]
pub use shared::{DOORBELL_SET_BYTES, PeerDoorbells};

use self::park::Bell;
use crate::sync::{Arc, Mutex};
use crate::{Error, ErrorKind, Result};

/// Number of doorbells in one set; the bound on threads of a process that sleep at once.
pub const DOORBELLS_PER_SET: usize = if cfg!(comm_loom) { 4 } else { 512 };

/// The doorbells of one process.
pub struct Doorbells {
    bells: Bells,
    /// Numbers that no [`Doorbell`] holds at the moment.
    free: Mutex<Vec<u32>>,
}

enum Bells {
    Heap(Box<[Bell]>),
    #[cfg(all(target_os = "linux", not(comm_loom)))]
    Shared(shared::SharedBells),
}

impl Doorbells {
    /// A set that only this process can reach.
    #[must_use]
    pub fn local() -> Arc<Self> {
        let bells = (0..DOORBELLS_PER_SET).map(|_| Bell::new()).collect();
        Self::with(Bells::Heap(bells))
    }

    /// A set in a sealed memory file that other processes can map.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the memory file.
    #[cfg(all(target_os = "linux", not(comm_loom)))]
    pub fn shared() -> Result<Arc<Self>> {
        Ok(Self::with(Bells::Shared(shared::SharedBells::create()?)))
    }

    /// A set in memory that other processes can map, but not as a memory file.
    ///
    /// # Safety
    ///
    /// As for [`PeerDoorbells::from_raw`], and the memory is zero.
    #[cfg(all(target_os = "linux", not(comm_loom)))]
    #[must_use]
    pub unsafe fn from_raw(
        base: std::ptr::NonNull<u8>,
        owner: std::sync::Arc<dyn std::any::Any + Send + Sync>,
    ) -> Arc<Self> {
        // SAFETY: the caller's promise.
        let shared = unsafe { shared::SharedBells::from_raw(base, owner) };
        Self::with(Bells::Shared(shared))
    }

    fn with(bells: Bells) -> Arc<Self> {
        // Number 0 means "nobody waits" in a source, so it is never handed out.
        let free = (1..u32::try_from(DOORBELLS_PER_SET).unwrap_or(u32::MAX))
            .rev()
            .collect();
        Arc::new(Self {
            bells,
            free: Mutex::new(free),
        })
    }

    /// The memory file of a shared set, if it is in one.
    #[cfg(all(target_os = "linux", not(comm_loom)))]
    #[must_use]
    pub fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        match &self.bells {
            Bells::Heap(_) => None,
            Bells::Shared(shared) => shared.fd(),
        }
    }

    /// Takes a doorbell for the calling thread; it goes back when the [`Doorbell`] is dropped.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ResourceExhausted`] if [`DOORBELLS_PER_SET`] threads wait already.
    pub fn claim(self: &Arc<Self>) -> Result<Doorbell> {
        let number = lock(&self.free).pop().ok_or_else(|| {
            Error::new(
                ErrorKind::ResourceExhausted,
                "too many threads of this process wait for peers at once; use fewer threads",
            )
            .with("limit", DOORBELLS_PER_SET - 1)
        })?;
        Ok(Doorbell {
            set: Arc::clone(self),
            number,
        })
    }

    /// Rings the doorbell of this number; numbers outside the set are ignored.
    pub fn ring(&self, number: u32) {
        if let Some(bell) = self.bell(number) {
            bell.ring();
        }
    }

    fn bell(&self, number: u32) -> Option<&Bell> {
        let bells = match &self.bells {
            Bells::Heap(bells) => bells,
            #[cfg(all(target_os = "linux", not(comm_loom)))]
            Bells::Shared(shared) => shared.bells(),
        };
        bells.get(number as usize)
    }
}

impl fmt::Debug for Doorbells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.bells {
            Bells::Heap(_) => "heap",
            #[cfg(all(target_os = "linux", not(comm_loom)))]
            Bells::Shared(_) => "shared",
        };
        f.debug_struct("Doorbells")
            .field("kind", &kind)
            .finish_non_exhaustive()
    }
}

/// One waiting thread's doorbell.
#[derive(Debug)]
pub struct Doorbell {
    set: Arc<Doorbells>,
    number: u32,
}

/// A number of rings; see [`Doorbell::ticket`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u32);

impl Doorbell {
    /// The doorbell's number in its set, never 0; what a source is armed with.
    #[must_use]
    #[inline]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// The set to which the doorbell belongs.
    #[must_use]
    pub const fn set(&self) -> &Arc<Doorbells> {
        &self.set
    }

    /// The rings so far. Taken *before* the sources are armed.
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        Ticket(self.bell().count())
    }

    /// Sleeps until somebody rings after `ticket` was taken, or `timeout` has passed.
    ///
    /// Whether somebody rang. May also return early; the caller looks at its sources again.
    pub fn wait(&self, ticket: Ticket, timeout: Option<Duration>) -> bool {
        self.bell().wait(ticket.0, timeout)
    }

    /// Rings this doorbell.
    pub fn ring(&self) {
        self.bell().ring();
    }

    fn bell(&self) -> &Bell {
        // The number came from this set's free list, so it is in range.
        self.set
            .bell(self.number)
            .unwrap_or_else(|| unreachable!("a claimed doorbell is in its set"))
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        lock(&self.set.free).push(self.number);
    }
}

/// Whom a source rings: the doorbells of the process at its other end.
#[derive(Clone, Debug)]
pub enum RingTarget {
    /// The other end is in this process.
    Local(Arc<Doorbells>),
    /// The other end is in another process of this host.
    #[cfg(all(target_os = "linux", not(comm_loom)))]
    Peer(Arc<PeerDoorbells>),
}

impl RingTarget {
    /// Rings the doorbell of this number; numbers outside the set are ignored.
    #[cold]
    pub fn ring(&self, number: u32) {
        match self {
            Self::Local(set) => set.ring(number),
            #[cfg(all(target_os = "linux", not(comm_loom)))]
            Self::Peer(peer) => peer.ring(number),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> crate::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
