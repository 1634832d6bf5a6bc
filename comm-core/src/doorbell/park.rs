//! One doorbell word, and how a thread sleeps on it.
//!
//! On Linux the word is a futex that may lie in memory shared between processes. Elsewhere, and
//! under loom, a condition variable stands beside the word and only threads of one process can
//! ring.

use std::time::Duration;

use crate::sync::atomic::{AtomicU32, Ordering};
#[cfg(any(not(target_os = "linux"), comm_loom))]
use crate::sync::{Condvar, Mutex};

/// A counter of rings on a cache line of its own.
///
/// On Linux all-zero memory is a valid `Bell` without rings, which [`super::shared`] relies on.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Bell {
    count: AtomicU32,
    #[cfg(any(not(target_os = "linux"), comm_loom))]
    parked: (Mutex<()>, Condvar),
}

#[cfg(all(target_os = "linux", not(comm_loom)))]
impl Bell {
    pub(super) const fn new() -> Self {
        Self {
            count: AtomicU32::new(0),
        }
    }

    pub(super) fn ring(&self) {
        // Release: pairs with the Acquire in `count` and `wait` of the woken thread.
        self.count.fetch_add(1, Ordering::Release);
        // An error is impossible for a mapped word; a wake-up that finds nobody is no error.
        let _ = rustix::thread::futex::wake(&self.count, rustix::thread::futex::Flags::empty(), 1);
    }

    pub(super) fn wait(&self, seen: u32, timeout: Option<Duration>) -> bool {
        let timeout = timeout.map(|timeout| rustix::thread::futex::Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        // EAGAIN (rung already), EINTR and ETIMEDOUT all mean "look again", which the caller does.
        let _ = rustix::thread::futex::wait(
            &self.count,
            rustix::thread::futex::Flags::empty(),
            seen,
            timeout.as_ref(),
        );
        self.count() != seen
    }
}

#[cfg(any(not(target_os = "linux"), comm_loom))]
impl Bell {
    pub(super) fn new() -> Self {
        Self {
            count: AtomicU32::new(0),
            parked: (Mutex::new(()), Condvar::new()),
        }
    }

    pub(super) fn ring(&self) {
        // Release: pairs with the Acquire in `count` and `wait` of the woken thread.
        self.count.fetch_add(1, Ordering::Release);
        // Taking the lock orders this ring after a waiter's last look and before its sleep, or
        // after its sleep began: in both cases the waiter hears the notification.
        drop(super::lock(&self.parked.0));
        self.parked.1.notify_one();
    }

    pub(super) fn wait(&self, seen: u32, timeout: Option<Duration>) -> bool {
        let guard = super::lock(&self.parked.0);
        if self.count() == seen {
            match timeout {
                Some(timeout) => drop(self.parked.1.wait_timeout(guard, timeout)),
                None => drop(self.parked.1.wait(guard)),
            }
        }
        self.count() != seen
    }
}

impl Bell {
    pub(super) fn count(&self) -> u32 {
        // Acquire: pairs with the Release in `ring`.
        self.count.load(Ordering::Acquire)
    }
}
