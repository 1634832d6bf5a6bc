//! The end of a copy, as those see it who wait for it.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use comm_core::device::DeviceEvent;
use comm_core::doorbell::{Doorbell, Doorbells};
use comm_core::{Armed, Error, ErrorKind, Result};

/// The outcome of a copy, once there is one, and who sleeps until then.
#[derive(Default)]
pub(crate) struct Completion {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    outcome: Option<Result<()>>,
    sleepers: Vec<(Arc<Doorbells>, u32)>,
}

impl Completion {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the copy and wakes everybody.
    pub(crate) fn end(&self, outcome: Result<()>) {
        let mut state = self.lock();
        state.outcome = Some(outcome);
        let sleepers = std::mem::take(&mut state.sleepers);
        drop(state);
        self.ended.notify_all();
        for (doorbells, number) in sleepers {
            doorbells.ring(number);
        }
    }
}

/// The event of a copy.
pub(crate) struct CopyEvent(pub(crate) Arc<Completion>);

impl fmt::Debug for CopyEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyEvent")
            .field("done", &self.is_done())
            .finish()
    }
}

impl DeviceEvent for CopyEvent {
    fn is_done(&self) -> Result<bool> {
        let outcome = self.0.lock().outcome.clone();
        outcome.map_or(Ok(false), |end| end.map(|()| true))
    }

    fn wait(&self, deadline: Instant) -> Result<()> {
        let mut state = self.0.lock();
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
            let waited = self.0.ended.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn arm(&self, doorbell: &Doorbell) -> Result<Armed> {
        let mut state = self.0.lock();
        if let Some(outcome) = &state.outcome {
            return outcome.clone().map(|()| Armed::Ready);
        }
        let sleeper = (Arc::clone(doorbell.set()), doorbell.number());
        state.sleepers.push(sleeper);
        Ok(Armed::WillRing)
    }
}
