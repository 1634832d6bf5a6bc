//! [`PendingFunction`]: somebody's function that hangs on an operation.
//!
//! # Contract
//!
//! * A function is counted from when it is registered until it has run or was dropped: by the driver of
//!   the operation that it hangs on ([`Drive::begin_function`]) or, if there is none or the driver leaves
//!   it at that, for the whole process.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::contract::Drive;

/// A plain atomic, as it guards nothing.
static ELSEWHERE: AtomicUsize = AtomicUsize::new(0);

pub(super) fn begin_elsewhere() {
    ELSEWHERE.fetch_add(1, Ordering::SeqCst);
}

pub(super) fn end_elsewhere() {
    ELSEWHERE.fetch_sub(1, Ordering::SeqCst);
}

/// A function that runs when an operation ends, and may then do what a peer waits for; counted until
/// this is dropped.
#[must_use = "dropping it ends the count"]
pub struct PendingFunction(Option<Arc<dyn Drive>>);

impl PendingFunction {
    /// One that hangs on an operation with this driver.
    pub(super) fn of(driver: Option<Arc<dyn Drive>>) -> Self {
        match &driver {
            Some(driver) => driver.begin_function(),
            None => begin_elsewhere(),
        }
        Self(driver)
    }

    /// One that hangs on an operation of which no driver knows.
    pub fn elsewhere() -> Self {
        Self::of(None)
    }

    /// How many functions of this process are counted by no driver: nobody knows which communicator
    /// they are going to use.
    #[must_use]
    pub fn count_elsewhere() -> usize {
        ELSEWHERE.load(Ordering::SeqCst)
    }
}

impl Drop for PendingFunction {
    fn drop(&mut self) {
        match &self.0 {
            Some(driver) => driver.end_function(),
            None => end_elsewhere(),
        }
    }
}

impl fmt::Debug for PendingFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingFunction").finish_non_exhaustive()
    }
}
