//! [`Relay`]: lets a handle stand for a work that will be known later.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use comm_core::{AsyncWork, Completer, Drive, Waited, Work, WorkBuilder};

use super::lock;

/// Passes waiting and cancelling on to the work that a handle stands for at the moment.
///
/// # Contract
///
/// * Whoever waits for the handle drives the work, as if it waited for that.
/// * A request to cancel that comes before there is a work is kept for it.
#[derive(Debug, Default)]
pub(crate) struct Relay {
    state: Mutex<State>,
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
            let current = lock(&self.state).current.clone();
            // Whoever ends the handle is about to do so, or to name another work.
            let Some(work) = current.filter(|work| !work.is_done()) else {
                return false;
            };
            // The handle gets to know a failure of the work from whoever ends it.
            if matches!(work.wait_deadline(deadline), Ok(Waited::TimedOut)) {
                return true;
            }
        }
        true
    }
}
