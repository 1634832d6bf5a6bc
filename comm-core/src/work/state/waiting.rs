//! How a thread waits for an operation: it drives as long as it can, and then sleeps.
//!
//! # Contract
//!
//! * Whoever sleeps without a deadline is announced to the driver, and taken back by whoever ends the
//!   operation; whoever looks in passing is only named to it.
//! * A thread [on duty](crate::blocking) is relieved before it sleeps.

use std::sync::PoisonError;
use std::time::Instant;

use super::{Look, Shared, State, outcome_of, take_from};
use crate::Result;
use crate::blocking::about_to_block;
use crate::sync::MutexGuard;
use crate::sync::atomic::Ordering;
use crate::work::contract::{AsyncWork, Drive, Waited};

impl<T: Send + 'static> Shared<T> {
    /// Blocks until the operation has ended or `deadline` has passed, driving it if that can be.
    pub(super) fn wait(&self, deadline: Option<Instant>) -> Result<Waited> {
        loop {
            let mut state = self.lock();
            if let Some(outcome) = outcome_of(&state, self.done.load(Ordering::Acquire)) {
                return outcome.map(|()| Waited::Done);
            }
            // A deadline in the past still gets one round of driving: a poll that makes progress.
            if let Some(driver) = state.driver.clone() {
                state.driving += 1;
                drop(state);
                let drove = driver.drive(&|| self.done.load(Ordering::Acquire), deadline);
                state = self.lock();
                state.driving -= 1;
                if drove {
                    let done = self.done.load(Ordering::Acquire);
                    if !done && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                        return Ok(Waited::TimedOut);
                    }
                    continue;
                }
                if !self.done.load(Ordering::Acquire) {
                    drop(state);
                    driver.may_wait()?;
                    note_block(deadline);
                    state = self.announced(&*driver, deadline);
                }
            } else {
                drop(state);
                note_block(deadline);
                state = self.lock();
            }
            if !self.sleep(state, deadline) {
                return Ok(Waited::TimedOut);
            }
        }
    }

    /// Tells the driver of the calling thread, which is about to sleep.
    fn announced(&self, driver: &dyn Drive, deadline: Option<Instant>) -> MutexGuard<'_, State<T>> {
        if deadline.is_some() {
            driver.note_caller();
            return self.lock();
        }
        driver.begin_sleep();
        let mut state = self.lock();
        if state.outcome.is_none() {
            state.asleep += 1;
            return state;
        }
        drop(state);
        driver.end_sleep();
        self.lock()
    }

    /// Sleeps until the outcome is known or `deadline` has passed; whether it is known.
    fn sleep(&self, mut state: MutexGuard<'_, State<T>>, deadline: Option<Instant>) -> bool {
        while outcome_of(&state, self.done.load(Ordering::Acquire)).is_none() {
            let Some(deadline) = deadline else {
                let wait = self.ended.wait(state);
                state = wait.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let wait = self.ended.wait_timeout(state, left);
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Blocks until the result can be moved out.
    pub(in crate::work) fn take(&self) -> Result<T> {
        if !self.done.load(Ordering::Acquire)
            && let Err(error) = self.wait(None)
            && !self.is_done()
        {
            // Not the operation's failure, which is repeated below, but that of the wait.
            return Err(error);
        }
        let mut state = self.lock();
        loop {
            match take_from(&mut state) {
                Look::Ready(result) => return result,
                Look::NotYet => {
                    state = self
                        .ended
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// The calling thread is about to sleep until `deadline`; a look in passing is no sleep.
fn note_block(deadline: Option<Instant>) {
    if deadline.is_none_or(|deadline| Instant::now() < deadline) {
        about_to_block();
    }
}
