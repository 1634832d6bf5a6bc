//! [`Stage`]: the driver of an operation's first part.
//!
//! # Contract
//!
//! * Until [`Stage::end`] it is the driver that it was made of. Afterwards it drives nothing: a thread
//!   that is inside of it leaves, one that sleeps does not count as asleep for that driver any more, and a
//!   function that still hangs on the operation counts [elsewhere](super::pending).
//! * Every sleep and function that was announced to the driver is ended there exactly once.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use super::contract::Drive;
use super::pending::{begin_elsewhere, end_elsewhere};
use crate::Result;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// Lets waiters drive an operation until its first part is over; see the [module](self).
pub(super) struct Stage {
    driver: Arc<dyn Drive>,
    /// Written under the lock.
    is_over: AtomicBool,
    announced: Mutex<Announced>,
}

/// What was announced to the driver.
#[derive(Default)]
struct Announced {
    /// Threads that sleep.
    sleeps: usize,
    /// Functions that hang on the operation.
    functions: usize,
}

impl Stage {
    pub(super) fn new(driver: Arc<dyn Drive>) -> Self {
        Self {
            driver,
            is_over: AtomicBool::new(false),
            announced: Mutex::new(Announced::default()),
        }
    }

    fn announced(&self) -> MutexGuard<'_, Announced> {
        self.announced
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        // Acquire: pairs with the Release in `end`.
        self.is_over.load(Ordering::Acquire)
    }

    /// The first part is over.
    pub(super) fn end(&self) {
        let mut announced = self.announced();
        // Release: pairs with the Acquire in `is_over`.
        self.is_over.store(true, Ordering::Release);
        let Announced { sleeps, functions } = std::mem::take(&mut *announced);
        drop(announced);
        for _ in 0..sleeps {
            self.driver.end_sleep();
        }
        for _ in 0..functions {
            begin_elsewhere();
            self.driver.end_function();
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
        let mut announced = self.announced();
        if !self.is_over() {
            announced.sleeps += 1;
            // Under the lock, so that the end of the stage does not come between the two.
            self.driver.begin_sleep();
        }
    }

    fn end_sleep(&self) {
        let mut announced = self.announced();
        if !self.is_over() {
            announced.sleeps -= 1;
            self.driver.end_sleep();
        }
    }

    fn note_caller(&self) {
        self.driver.note_caller();
    }

    fn begin_function(&self) {
        let mut announced = self.announced();
        if self.is_over() {
            begin_elsewhere();
        } else {
            announced.functions += 1;
            self.driver.begin_function();
        }
    }

    fn end_function(&self) {
        let mut announced = self.announced();
        if self.is_over() {
            end_elsewhere();
        } else {
            announced.functions -= 1;
            self.driver.end_function();
        }
    }
}
