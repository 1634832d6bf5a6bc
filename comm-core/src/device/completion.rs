//! The end of a copy, from the thread that makes it to those who wait: for devices.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::{DeviceEvent, DeviceMemory};
use crate::doorbell::{Doorbell, Doorbells};
use crate::{Armed, Error, ErrorKind, Result};

/// The event of a copy that another thread ends; made with [`CopyEvent::pending`].
///
/// ```
/// use std::time::{Duration, Instant};
/// use comm_core::device::{CopyEvent, DeviceEvent};
///
/// let (event, completer) = CopyEvent::pending();
/// assert!(!event.is_done()?);
/// std::thread::spawn(move || completer.end(Ok(())));
/// event.wait(Instant::now() + Duration::from_secs(60))?;
/// assert!(event.is_done()?);
/// # Ok::<(), comm_core::Error>(())
/// ```
pub struct CopyEvent {
    shared: Arc<Shared>,
}

/// Ends a copy: the other side of a [`CopyEvent`]. Dropped without an outcome, it ends the copy with
/// [`ErrorKind::Internal`].
pub struct CopyCompleter {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    outcome: Option<Result<()>>,
    sleepers: Vec<(Arc<Doorbells>, u32)>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, outcome: impl FnOnce() -> Result<()>) {
        let mut state = self.lock();
        if state.outcome.is_some() {
            return;
        }
        state.outcome = Some(outcome());
        let sleepers = std::mem::take(&mut state.sleepers);
        drop(state);
        self.ended.notify_all();
        for (doorbells, number) in sleepers {
            doorbells.ring(number);
        }
    }
}

impl CopyEvent {
    /// An event that is not done, and what ends it.
    #[must_use]
    pub fn pending() -> (Self, CopyCompleter) {
        let shared = Arc::new(Shared::default());
        let completer = CopyCompleter {
            shared: Arc::clone(&shared),
        };
        (Self { shared }, completer)
    }
}

impl CopyCompleter {
    /// Ends the copy and wakes everybody who waits for it.
    ///
    /// What the copy kept alive must have been released before.
    pub fn end(self, outcome: Result<()>) {
        self.shared.end(|| outcome);
    }
}

impl Drop for CopyCompleter {
    fn drop(&mut self) {
        self.shared.end(|| {
            Err(Error::new(
                ErrorKind::Internal,
                "a device gave a copy up without saying why",
            ))
        });
    }
}

impl DeviceEvent for CopyEvent {
    fn is_done(&self) -> Result<bool> {
        let outcome = self.shared.lock().outcome.clone();
        outcome.map_or(Ok(false), |end| end.map(|()| true))
    }

    fn wait(&self, deadline: Instant) -> Result<()> {
        let mut state = self.shared.lock();
        loop {
            if let Some(outcome) = &state.outcome {
                return outcome.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::new(
                    ErrorKind::Timeout,
                    "the copy has not happened yet",
                ));
            }
            let waited = self.shared.ended.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn arm(&self, doorbell: &Doorbell) -> Result<Armed> {
        let mut state = self.shared.lock();
        if let Some(outcome) = &state.outcome {
            return outcome.clone().map(|()| Armed::Ready);
        }
        let sleeper = (Arc::clone(doorbell.set()), doorbell.number());
        state.sleepers.push(sleeper);
        Ok(Armed::WillRing)
    }
}

impl fmt::Debug for CopyEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyEvent")
            .field("done", &self.is_done())
            .finish()
    }
}

impl fmt::Debug for CopyCompleter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyCompleter").finish_non_exhaustive()
    }
}

/// Whether the memories of a copy are equally long. For devices.
///
/// # Errors
///
/// [`ErrorKind::InvalidArgument`] with both lengths if they are not.
pub fn check_copy_lengths(target: &DeviceMemory, source: &DeviceMemory) -> Result<()> {
    if target.len_bytes() == source.len_bytes() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidArgument,
        "source and target of a copy must have the same length",
    )
    .with("source_bytes", source.len_bytes())
    .with("target_bytes", target.len_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_is_given_up_ends_with_an_error_each_time() {
        let (event, completer) = CopyEvent::pending();
        drop(completer);
        for _ in 0..2 {
            assert_eq!(event.is_done().unwrap_err().kind(), ErrorKind::Internal);
        }
        assert_eq!(
            event.wait(Instant::now()).unwrap_err().kind(),
            ErrorKind::Internal
        );
    }

    #[test]
    fn an_outcome_stays_when_the_completer_goes() {
        let (event, completer) = CopyEvent::pending();
        assert_eq!(
            event.wait(Instant::now()).unwrap_err().kind(),
            ErrorKind::Timeout
        );
        completer.end(Ok(()));
        assert!(event.is_done().unwrap());
    }
}
