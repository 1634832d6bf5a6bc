//! What the owner of either end of a connection does in the same way, and what the backend calls.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use comm_core::net::{MrSlice, Quiesce, Request};
use comm_core::{Error, ErrorKind, Result};

use super::memory;
use super::poller::Event;
use super::requests::Requests;
use super::shared::{Member, Shared, lock};

/// The state of an end, used by its owner and by whoever calls `progress`.
pub(crate) trait State: Send + fmt::Debug + 'static {
    /// Why moving stops.
    type Stop;

    fn requests(&mut self) -> &mut Requests;

    /// Why the connection ended.
    fn failure(&self) -> Option<&Error>;

    /// Moves what can be moved until this request is done; whether any was completed.
    fn advance_to(&mut self, request: u64) -> Result<bool, Self::Stop>;

    /// Moves on because of what a socket has; whether anything moved.
    fn on_event(&mut self, socket: usize, event: Event) -> Result<bool, Self::Stop>;

    /// Turns what stopped the end into the failure of the connection.
    fn settle<T>(&mut self, outcome: Result<T, Self::Stop>) -> Result<T>;

    /// Closes the connection and withdraws its requests; the first failure.
    fn fail(&mut self, error: Error) -> Error;

    fn check(&self) -> Result<()> {
        self.failure().cloned().map_or(Ok(()), Err)
    }
}

/// What the owner and the backend share.
#[derive(Debug)]
struct Common<S> {
    state: Mutex<S>,
}

impl<S: State> Member for Common<S> {
    fn ready(&self, _shared: &Arc<Shared>, socket: usize, event: Event) -> bool {
        let mut state = lock(&self.state);
        if state.failure().is_some() {
            return false;
        }
        let outcome = state.on_event(socket, event);
        // The owner gets the failure; it is something that moved.
        state.settle(outcome).unwrap_or(true)
    }
}

/// The owner's side of an end.
#[derive(Debug)]
pub(crate) struct Owner<S> {
    shared: Arc<Shared>,
    number: u64,
    common: Arc<Common<S>>,
}

impl<S: State> Owner<S> {
    /// Makes member `number` an end.
    pub(crate) fn new(shared: &Arc<Shared>, number: u64, state: S) -> Self {
        let common = Arc::new(Common {
            state: Mutex::new(state),
        });
        shared.insert(number, Arc::clone(&common) as _);
        Self {
            shared: Arc::clone(shared),
            number,
            common,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, S> {
        lock(&self.common.state)
    }

    /// The state, if the connection stands.
    pub(crate) fn standing(&self) -> Result<MutexGuard<'_, S>> {
        let state = self.lock();
        state.check()?;
        Ok(state)
    }

    /// Whether memory may be given to this end.
    pub(crate) fn check_memory(&self, slice: &MrSlice) -> Result<()> {
        memory::check(self.shared.number, slice)
    }

    /// Looks after a request; the bytes of its message if it is done.
    pub(crate) fn test(&self, request: &Request) -> Result<Option<usize>> {
        let mut state = self.lock();
        let known = match state.requests().test(request) {
            Ok(None) => Ok(()),
            Ok(done) => return Ok(done),
            Err(error) => Err(error),
        };
        // What failed with the connection is no request any more.
        state.check()?;
        known?;
        let outcome = state.advance_to(request.token());
        let outcome = state.settle(outcome);
        match state.requests().test(request) {
            Ok(Some(bytes)) => Ok(Some(bytes)),
            _ => outcome.map(|_| None),
        }
    }

    /// Withdraws everything.
    pub(crate) fn quiesce(&self) -> Quiesce {
        self.lock().fail(Error::new(
            ErrorKind::Cancelled,
            "this end of the connection was quiesced",
        ));
        Quiesce::Quiesced
    }
}

impl<S> Drop for Owner<S> {
    fn drop(&mut self) {
        self.shared.remove(self.number);
    }
}

/// The error of a direct transfer of nothing.
pub(crate) fn no_bytes() -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        "a direct transfer has at least one byte",
    )
}
