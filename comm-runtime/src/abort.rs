//! The end of a communicator: its first failure, and the threads that must hear of it.
//!
//! # Contract
//!
//! * The first failure wins; everybody gets that one.
//! * [`AbortState::fail`] is local, bounded and idempotent: it sets a flag and rings the doorbells
//!   of sleeping threads. It waits for nobody.
//! * A thread registers before it sleeps and looks at the flag after that, so it cannot miss a
//!   failure.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use comm_core::doorbell::{Doorbell, Doorbells};
use comm_core::{Error, ErrorKind, Result};

#[derive(Debug)]
pub(crate) struct AbortState {
    failed: AtomicBool,
    /// Whether a call of this rank has returned the failure.
    reported: AtomicBool,
    cause: OnceLock<Error>,
    sleepers: Mutex<Vec<u32>>,
    doorbells: Arc<Doorbells>,
}

impl AbortState {
    pub(crate) const fn new(doorbells: Arc<Doorbells>) -> Self {
        Self {
            failed: AtomicBool::new(false),
            reported: AtomicBool::new(false),
            cause: OnceLock::new(),
            sleepers: Mutex::new(Vec::new()),
            doorbells,
        }
    }

    /// Whether the communicator still works.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        // Acquire: pairs with the Release in `fail`, so the cause is visible.
        if self.failed.load(Ordering::Acquire) {
            Err(self.error())
        } else {
            Ok(())
        }
    }

    /// The first failure, if there was one.
    pub(crate) fn cause(&self) -> Option<&Error> {
        self.cause.get()
    }

    /// Whether the communicator has failed; nothing counts as reported by asking.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        // Acquire: pairs with the Release in `fail`, so the cause is visible.
        self.failed.load(Ordering::Acquire)
    }

    /// What an operation in flight is told.
    #[cold]
    pub(crate) fn error(&self) -> Error {
        self.reported.store(true, Ordering::Relaxed);
        self.cause.get().cloned().unwrap_or_else(|| {
            Error::new(
                ErrorKind::Internal,
                "the communicator failed without a cause",
            )
        })
    }

    /// What an operation that starts after the failure is told: the cause, if no call of this rank
    /// has returned it yet, and that the communicator is of no use any more from then on.
    #[cold]
    pub(crate) fn poisoned(&self) -> Error {
        let reported = self.reported.swap(true, Ordering::Relaxed);
        let cause = self.error();
        if !reported {
            return cause;
        }
        Error::new(
            ErrorKind::Poisoned,
            format!("the communicator failed earlier; make a new one. First cause: {cause}"),
        )
    }

    /// Notes that the user knows of the failure, since it came from there.
    pub(crate) fn note_reported(&self) {
        self.reported.store(true, Ordering::Relaxed);
    }

    /// Records the first failure and wakes every sleeper; whether this one was the first.
    pub(crate) fn fail(&self, error: Error) -> bool {
        let first = self.cause.set(error).is_ok();
        // Release: pairs with the Acquire in `check`.
        self.failed.store(true, Ordering::Release);
        for number in self
            .sleepers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
        {
            self.doorbells.ring(*number);
        }
        first
    }

    /// Registers a thread that is about to sleep; it must [`check`](Self::check) afterwards.
    pub(crate) fn sleeper(&self, doorbell: &Doorbell) -> Sleeper<'_> {
        let number = doorbell.number();
        self.sleepers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(number);
        Sleeper {
            abort: self,
            number,
        }
    }
}

/// A registered sleeping thread; dropped when it is awake again.
#[derive(Debug)]
pub(crate) struct Sleeper<'a> {
    abort: &'a AbortState,
    number: u32,
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        let mut sleepers = self
            .abort
            .sleepers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = sleepers.iter().position(|number| *number == self.number) {
            sleepers.swap_remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_first_failure_wins() {
        let abort = AbortState::new(Doorbells::local());
        assert!(abort.check().is_ok());
        assert!(abort.fail(Error::new(ErrorKind::PeerDied, "first")));
        assert!(!abort.fail(Error::new(ErrorKind::Timeout, "second")));
        assert_eq!(abort.check().unwrap_err().kind(), ErrorKind::PeerDied);
        assert!(abort.poisoned().to_string().contains("first"));
    }

    #[test]
    fn a_failure_wakes_a_registered_sleeper() {
        let doorbells = Doorbells::local();
        let abort = Arc::new(AbortState::new(Arc::clone(&doorbells)));
        let bell = doorbells.claim().unwrap();
        let ticket = bell.ticket();
        let sleeper = abort.sleeper(&bell);
        let other = Arc::clone(&abort);
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            other.fail(Error::new(ErrorKind::Aborted, "stop"));
        });
        assert!(bell.wait(ticket, Some(Duration::from_secs(60))));
        drop(sleeper);
        thread.join().unwrap();
    }
}
