//! [`Relay`]: lets a handle stand for a work that will be known later.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use comm_core::blocking::about_to_block;
use comm_core::{AsyncWork, Completer, Drive, Result, Waited, Work, WorkBuilder};

use super::{lock, may_wait_for};

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
        let mut ended = None;
        while !done() {
            let Some(work) = self.current(ended.as_ref(), done, deadline) else {
                // Ended, or the deadline has passed.
                return true;
            };
            match work.wait_deadline(deadline) {
                Ok(Waited::TimedOut) => return true,
                // The failure of the wait: `may_wait` tells it.
                Err(_) if !work.is_done() => return false,
                // The handle gets to know a failure of the work from whoever ends it, or names another.
                Ok(Waited::Done) | Err(_) => ended = Some(work),
            }
        }
        true
    }

    fn may_wait(&self) -> Result<()> {
        let current = lock(&self.state).current.clone();
        current.map_or(Ok(()), |work| may_wait_for(&*work))
    }

    fn interrupt(&self) {
        // The lock keeps this from falling between a look at `done` and the sleep after it.
        drop(lock(&self.state));
        self.changed.notify_all();
    }
}

impl Relay {
    /// The work, when there is another one than `ended`; `None` if the handle ends or the deadline passes
    /// before.
    fn current(
        &self,
        ended: Option<&Arc<dyn AsyncWork>>,
        done: &dyn Fn() -> bool,
        deadline: Option<Instant>,
    ) -> Option<Arc<dyn AsyncWork>> {
        let is_ended = |work: &Arc<_>| ended.is_some_and(|ended| Arc::ptr_eq(work, ended));
        let mut is_noted = false;
        let mut state = lock(&self.state);
        loop {
            let current = state.current.as_ref().filter(|work| !is_ended(work));
            if current.is_some() || done() {
                return current.cloned();
            }
            if !is_noted && deadline.is_none_or(|deadline| Instant::now() < deadline) {
                drop(state);
                about_to_block();
                is_noted = true;
                state = lock(&self.state);
                continue;
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
