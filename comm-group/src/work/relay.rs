//! [`Relay`]: lets a handle stand for a work that will be known later.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use comm_core::{AsyncWork, Completer, Drive, Waited, Work, WorkBuilder};

use super::lock;

/// Passes waiting and cancelling on to the work that a handle stands for at the moment.
///
/// # Contract
///
/// * Whoever waits for the handle drives the work, as if it waited for that, from the moment on when
///   there is one.
/// * A request to cancel that comes before there is a work is kept for it.
#[derive(Debug, Default)]
pub(crate) struct Relay {
    state: Mutex<State>,
    /// There is a work, or the handle has ended.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    current: Option<Arc<dyn AsyncWork>>,
    cancelled: bool,
}

impl Relay {
    /// A handle, its completer, and the relay through which the handle reaches its work.
    pub(crate) fn channel<T: Send + 'static>() -> (Work<T>, Completer<T>, Arc<Self>) {
        let relay = Arc::new(Self::default());
        let canceller = Arc::clone(&relay);
        let (work, completer) = WorkBuilder::new()
            .try_cancel(move || canceller.cancel())
            .driver(Arc::clone(&relay) as Arc<dyn Drive>)
            .channel();
        (work, completer, relay)
    }

    /// Sets the work that the handle stands for from now on.
    pub(crate) fn stand_for(&self, work: Arc<dyn AsyncWork>) {
        let mut state = lock(&self.state);
        state.current = Some(Arc::clone(&work));
        let cancelled = state.cancelled;
        drop(state);
        self.changed.notify_all();
        if cancelled {
            work.cancel();
        }
    }

    /// Whether the handle was asked to be cancelled before there was a work.
    pub(crate) fn is_cancelled(&self) -> bool {
        lock(&self.state).cancelled
    }

    fn cancel(&self) -> bool {
        let mut state = lock(&self.state);
        match state.current.clone() {
            Some(work) => {
                drop(state);
                work.cancel()
            }
            None => !std::mem::replace(&mut state.cancelled, true),
        }
    }
}

impl Drive for Relay {
    fn drive(&self, done: &dyn Fn() -> bool, deadline: Option<Instant>) -> bool {
        while !done() {
            let Some(work) = self.current(done, deadline) else {
                // Ended, or the deadline has passed.
                return true;
            };
            if work.is_done() {
                // Whoever ends the handle is about to do so, or to name another work.
                return false;
            }
            // The handle gets to know a failure of the work from whoever ends it.
            if matches!(work.wait_deadline(deadline), Ok(Waited::TimedOut)) {
                return true;
            }
        }
        true
    }

    fn interrupt(&self) {
        // The lock keeps this from falling between a look at `done` and the sleep after it.
        drop(lock(&self.state));
        self.changed.notify_all();
    }
}

impl Relay {
    /// The work, when there is one; `None` if the handle ends or the deadline passes before.
    fn current(
        &self,
        done: &dyn Fn() -> bool,
        deadline: Option<Instant>,
    ) -> Option<Arc<dyn AsyncWork>> {
        let mut state = lock(&self.state);
        loop {
            if state.current.is_some() || done() {
                return state.current.clone();
            }
            state = match deadline {
                None => self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}
