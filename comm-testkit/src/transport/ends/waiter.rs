//! Threads that wait at ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use comm_core::doorbell::{Doorbell, Doorbells};
use comm_core::{Armed, Error, ErrorKind, Result};

/// A thread that can sleep at an end, and the flag that calls it back.
#[derive(Debug)]
pub struct Waiter {
    bell: Doorbell,
    abort: AtomicBool,
}

impl Waiter {
    /// A waiter at one of `doorbells`.
    ///
    /// # Errors
    ///
    /// If all doorbells are taken.
    pub fn new(doorbells: &Arc<Doorbells>) -> Result<Self> {
        Ok(Self {
            bell: doorbells.claim()?,
            abort: AtomicBool::new(false),
        })
    }

    /// The waiter's doorbell.
    #[must_use]
    pub const fn bell(&self) -> &Doorbell {
        &self.bell
    }

    /// Makes what waits here, now or later, fail with [`ErrorKind::Aborted`].
    pub fn abort(&self) {
        // Relaxed: the ring orders it.
        self.abort.store(true, Ordering::Relaxed);
        self.bell.ring();
    }

    /// Repeats `attempt` until it yields a value, and sleeps in between where it says so.
    ///
    /// `attempt` looks at its sources, then arms them, and tells whether they will ring.
    ///
    /// # Errors
    ///
    /// Those of `attempt`, and [`ErrorKind::Aborted`].
    pub fn until<T>(&self, mut attempt: impl FnMut(&Doorbell) -> Result<Attempt<T>>) -> Result<T> {
        loop {
            let ticket = self.bell.ticket();
            // Relaxed: ordered by the ticket and by the end of `wait`.
            if self.abort.load(Ordering::Relaxed) {
                return Err(Error::new(
                    ErrorKind::Aborted,
                    "the test aborted the waiter",
                ));
            }
            match attempt(&self.bell)? {
                Attempt::Done(value) => return Ok(value),
                Attempt::Again => {}
                Attempt::Sleep => {
                    self.bell.wait(ticket, None);
                }
            }
        }
    }
}

/// How one look at a source ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt<T> {
    /// With a value.
    Done(T),
    /// Something moved: look again.
    Again,
    /// Every source will ring.
    Sleep,
}

impl<T> From<Armed> for Attempt<T> {
    fn from(armed: Armed) -> Self {
        match armed {
            Armed::WillRing => Self::Sleep,
            Armed::Ready => Self::Again,
        }
    }
}
