//! The threads of the user that a lane holds.
//!
//! # Contract
//!
//! * A thread is held from when it is about to sleep, or leaves the driving to somebody else, until what
//!   it waits for has ended. Whoever waits with a time limit is not: it may do something else next.
//! * What nobody is held by is no reason for a deadlock: its user may still do what the peers wait for.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// How many threads a lane holds, and since when.
#[derive(Debug, Default)]
pub(crate) struct Held(Mutex<Threads>);

#[derive(Debug, Default)]
struct Threads {
    count: usize,
    /// When the first of them came.
    since: Option<Instant>,
}

/// A thread that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct Hold<'a>(&'a Held);

impl Held {
    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when the lane has held a thread without a break, if it does.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.threads().since
    }

    /// Counts the calling thread, until the guard is dropped.
    pub(crate) fn hold(&self) -> Hold<'_> {
        self.begin();
        Hold(self)
    }

    /// Counts the calling thread until [`Held::end`].
    pub(crate) fn begin(&self) {
        let mut threads = self.threads();
        threads.count += 1;
        threads.since.get_or_insert_with(Instant::now);
    }

    /// Takes back what [`Held::begin`] counted.
    pub(crate) fn end(&self) {
        let mut threads = self.threads();
        threads.count = threads.count.saturating_sub(1);
        if threads.count == 0 {
            threads.since = None;
        }
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_holds_a_thread_since_the_first_came_until_the_last_has_gone() {
        let held = Held::default();
        assert_eq!(held.since(), None);
        let before = Instant::now();
        let first = held.hold();
        let since = held.since().unwrap();
        assert!(since >= before);
        held.begin();
        drop(first);
        assert_eq!(held.since(), Some(since));
        held.end();
        assert_eq!(held.since(), None);
        let later = Instant::now();
        let _again = held.hold();
        assert!(held.since().unwrap() >= later);
    }
}
