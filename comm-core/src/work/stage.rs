//! [`Stage`]: the driver of an operation's first part.
//!
//! # Contract
//!
//! * Until [`Stage::end`] it is the driver that it was made of. Afterwards it drives nothing: a thread
//!   that is inside of it leaves, and one that sleeps does not count as asleep for that driver any more.
//! * Every sleep that was announced to the driver is ended exactly once.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use super::contract::Drive;
use crate::Result;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// Lets waiters drive an operation until its first part is over; see the [module](self).
pub(super) struct Stage {
    driver: Arc<dyn Drive>,
    /// Written under the lock.
    is_over: AtomicBool,
    /// The threads that sleep and were announced to the driver.
    asleep: Mutex<usize>,
}

impl Stage {
    pub(super) fn new(driver: Arc<dyn Drive>) -> Self {
        Self {
            driver,
            is_over: AtomicBool::new(false),
            asleep: Mutex::new(0),
        }
    }

    fn asleep(&self) -> MutexGuard<'_, usize> {
        self.asleep.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        // Acquire: pairs with the Release in `end`.
        self.is_over.load(Ordering::Acquire)
    }

    /// The first part is over.
    pub(super) fn end(&self) {
        let mut asleep = self.asleep();
        // Release: pairs with the Acquire in `is_over`.
        self.is_over.store(true, Ordering::Release);
        let announced = std::mem::take(&mut *asleep);
        drop(asleep);
        for _ in 0..announced {
            self.driver.end_sleep();
        }
        self.driver.interrupt();
    }
}

impl Drive for Stage {
    fn drive(&self, done: &dyn Fn() -> bool, deadline: Option<Instant>) -> bool {
        if self.is_over() {
            return false;
        }
        self.driver.drive(&|| done() || self.is_over(), deadline)
    }

    fn may_wait(&self) -> Result<()> {
        if self.is_over() {
            return Ok(());
        }
        self.driver.may_wait()
    }

    fn interrupt(&self) {
        self.driver.interrupt();
    }

    fn begin_sleep(&self) {
        let mut asleep = self.asleep();
        if !self.is_over() {
            *asleep += 1;
            // Under the lock, so that the end of the stage does not come between the two.
            self.driver.begin_sleep();
        }
    }

    fn end_sleep(&self) {
        let mut asleep = self.asleep();
        if !self.is_over() {
            *asleep -= 1;
            self.driver.end_sleep();
        }
    }
}
