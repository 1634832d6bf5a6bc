//! The end of one lane: its first failure.
//!
//! # Contract
//!
//! * The first failure wins. What is under way or queued on the lane ends with it; the first call
//!   after that, too, unless an operation has returned it already, and later ones get
//!   [`ErrorKind::Poisoned`] with the cause.
//! * Only this lane ends: other lanes, also the opposite direction of the same pair, and collectives
//!   go on.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use comm_core::{Error, ErrorKind, Result};

/// Whether a lane has failed, and why.
#[derive(Debug, Default)]
pub(crate) struct Poison {
    cause: OnceLock<Error>,
    /// Whether an operation has ended with the cause.
    reported: AtomicBool,
}

impl Poison {
    /// Records the first failure; whether this one was the first.
    pub(crate) fn set(&self, error: Error) -> bool {
        self.cause.set(error).is_ok()
    }

    /// Whether the lane still works, for an operation under way.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        match self.cause.get() {
            None => Ok(()),
            Some(cause) => Err(cause.clone()),
        }
    }

    /// Whether the lane still works, for a call that starts.
    #[inline]
    pub(crate) fn check_new(&self) -> Result<()> {
        match self.cause.get() {
            None => Ok(()),
            Some(cause) => Err(self.poisoned(cause)),
        }
    }

    /// Notes that an operation has ended with the cause.
    pub(crate) fn note_reported(&self) {
        self.reported.store(true, Ordering::Relaxed);
    }

    #[cold]
    fn poisoned(&self, cause: &Error) -> Error {
        if !self.reported.swap(true, Ordering::Relaxed) {
            return cause.clone();
        }
        Error::new(
            ErrorKind::Poisoned,
            format!(
                "this direction between the two ranks failed earlier; to use it again make a new \
                 communicator (a group: close it on both sides and make it again). \
                 First cause: {cause}"
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_told_once_and_then_repeated_as_the_cause() {
        let poison = Poison::default();
        assert!(poison.check().is_ok());
        assert!(poison.check_new().is_ok());
        assert!(poison.set(Error::new(ErrorKind::Timeout, "first")));
        assert!(!poison.set(Error::new(ErrorKind::Protocol, "second")));
        assert_eq!(poison.check().unwrap_err().kind(), ErrorKind::Timeout);
        assert_eq!(poison.check_new().unwrap_err().kind(), ErrorKind::Timeout);
        let later = poison.check_new().unwrap_err();
        assert_eq!(later.kind(), ErrorKind::Poisoned);
        assert!(later.to_string().contains("first"), "{later}");
    }
}
