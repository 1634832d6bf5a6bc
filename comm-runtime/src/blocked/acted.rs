//! When something last happened in a rank beside the thread of its user.
//!
//! # Contract
//!
//! * Noted are the ends of operations that were queued, and those of the user's functions that hang on
//!   them: afterwards what they sent is on its way, or a function has submitted what it wanted to.
//! * A rank counts as blocked only since then: what a peer waits for may have left just now, and the
//!   peer not have looked.

use std::sync::atomic::{AtomicU64, Ordering};

use super::clock_ms;

/// The latest such moment, in milliseconds of [`clock_ms`], rounded up; 0 if there was none.
#[derive(Debug, Default)]
pub(crate) struct Acted(AtomicU64);

impl Acted {
    /// It is now.
    pub(crate) fn note(&self) {
        self.0.store(clock_ms() + 1, Ordering::SeqCst);
    }

    /// How long ago it was, in milliseconds.
    pub(crate) fn ago_ms(&self) -> Option<u64> {
        let latest = self.0.load(Ordering::SeqCst);
        (latest > 0).then(|| clock_ms().saturating_sub(latest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_just_happened_was_no_time_ago() {
        let acted = Acted::default();
        assert_eq!(acted.ago_ms(), None);
        let before = clock_ms();
        acted.note();
        assert!(acted.ago_ms().unwrap() <= clock_ms() - before);
    }
}
