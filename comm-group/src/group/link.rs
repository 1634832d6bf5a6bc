//! From the first call to the connected group: [`Link`].
//!
//! # Contract
//!
//! * The first operation starts the join, on a thread of its own that ends with it. Operations that
//!   come before it is through are kept and begun in the order in which they came; nobody overtakes.
//! * No lock is held while anything waits or any foreign code runs. If a continuation blocks on a thread
//!   that still has to begin or end others, another thread [goes on](comm_core::blocking) with these.
//! * A join that fails ends everything that waits for it with its error; later operations get
//!   [`ErrorKind::Poisoned`] with the cause.
//! * After [`Link::close`] operations are refused, those that wait end with [`ErrorKind::Aborted`],
//!   and a join that is under way is given up as soon as it returns.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use comm_core::blocking::OnDuty;
use comm_core::{Error, ErrorKind, Result, Work};
use comm_runtime::{Caller, Communicator};

use crate::work::relay::Relay;

/// An operation that waits for the join.
type Waiting = Box<dyn FnOnce(Result<&Communicator>) + Send>;

enum State {
    Idle,
    Joining {
        waiting: VecDeque<Waiting>,
        /// Who has submitted.
        callers: Vec<Caller>,
    },
    Ready(Communicator),
    Failed(Error),
    Closed,
}

/// The group's communicator, joined on first use; see the [module](self).
pub(super) struct Link {
    state: Mutex<State>,
}

impl Link {
    pub(super) const fn new() -> Self {
        Self {
            state: Mutex::new(State::Idle),
        }
    }

    /// A link that needs no join.
    pub(super) const fn connected(communicator: Communicator) -> Self {
        Self {
            state: Mutex::new(State::Ready(communicator)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The communicator, if the group has come together.
    pub(super) fn ready(&self) -> Option<Communicator> {
        match &*self.lock() {
            State::Ready(communicator) => Some(communicator.clone()),
            _ => None,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(&*self.lock(), State::Closed)
    }

    /// Begins an operation: now, or when the group has come together. `join` is called on a new
    /// thread if this is the first operation.
    ///
    /// # Errors
    ///
    /// What `begin` returns if it is called at once; [`ErrorKind::Poisoned`] or
    /// [`ErrorKind::Aborted`] if the group is of no use any more.
    pub(super) fn submit<T: Send + 'static>(
        self: &Arc<Self>,
        join: impl FnOnce() -> Result<Communicator> + Send + 'static,
        begin: impl FnOnce(&Communicator) -> Result<Work<T>> + Send + 'static,
    ) -> Result<Work<T>> {
        let mut state = self.lock();
        match &mut *state {
            State::Ready(communicator) => {
                let communicator = communicator.clone();
                drop(state);
                begin(&communicator)
            }
            State::Failed(cause) => Err(poisoned(cause)),
            State::Closed => Err(closed()),
            State::Joining { waiting, callers } => {
                let (work, operation) = waits(begin);
                waiting.push_back(operation);
                let caller = Caller::current();
                if !callers.contains(&caller) {
                    callers.push(caller);
                }
                Ok(work)
            }
            State::Idle => {
                let (work, operation) = waits(begin);
                let link = Arc::clone(self);
                spawn(move || link.run_join(join))?;
                *state = State::Joining {
                    waiting: VecDeque::from([operation]),
                    callers: vec![Caller::current()],
                };
                Ok(work)
            }
        }
    }

    fn run_join(self: &Arc<Self>, join: impl FnOnce() -> Result<Communicator>) {
        let joined = catch_unwind(AssertUnwindSafe(join)).unwrap_or_else(|_| {
            let message = "joining a group panicked; a transport hook may have done so";
            Err(Error::new(ErrorKind::Internal, message))
        });
        match joined {
            Ok(communicator) => {
                communicator.act_for_others();
                self.begin_all(communicator);
            }
            Err(error) => {
                let mut state = self.lock();
                let State::Joining { waiting, .. } = &mut *state else {
                    return;
                };
                let waiting = std::mem::take(waiting);
                // Whoever hears of the failure finds the group failed.
                *state = State::Failed(error.clone());
                drop(state);
                end_all(waiting, error);
            }
        }
    }

    /// Begins what waits, and then makes the group ready: nobody overtakes.
    fn begin_all(self: &Arc<Self>, communicator: Communicator) {
        let (link, joined) = (Arc::clone(self), communicator.clone());
        let duty = OnDuty::new(move || {
            if let State::Joining { callers, .. } = &mut *link.lock() {
                // In the user's code.
                callers.push(Caller::current());
            }
            spawn(move || {
                joined.act_for_others();
                link.begin_all(joined);
            })
            .is_ok()
        });
        while !duty.is_relieved() {
            let mut state = self.lock();
            let State::Joining { waiting, callers } = &mut *state else {
                // Closed meanwhile; the communicator leaves.
                return;
            };
            let Some(operation) = waiting.pop_front() else {
                communicator.hand_over(callers);
                *state = State::Ready(communicator);
                return;
            };
            drop(state);
            operation(Ok(&communicator));
        }
    }

    /// Ends the group; the communicator, if there is one, is the caller's.
    pub(super) fn close(&self) -> Option<Communicator> {
        let state = std::mem::replace(&mut *self.lock(), State::Closed);
        match state {
            State::Ready(communicator) => Some(communicator),
            State::Joining { waiting, .. } => {
                end_all(waiting, closed());
                None
            }
            State::Idle | State::Failed(_) | State::Closed => None,
        }
    }
}

/// Ends operations that are never begun.
fn end_all(waiting: VecDeque<Waiting>, error: Error) {
    let rest = Arc::new(Mutex::new(waiting));
    let next = |rest: &Mutex<VecDeque<Waiting>>| {
        let mut rest = rest.lock().unwrap_or_else(PoisonError::into_inner);
        rest.pop_front()
    };
    let (others, cause) = (Arc::clone(&rest), error.clone());
    let _duty = OnDuty::new(move || {
        let mut others = others.lock().unwrap_or_else(PoisonError::into_inner);
        let others = std::mem::take(&mut *others);
        others.is_empty() || spawn(move || end_all(others, cause)).is_ok()
    });
    // None are left once somebody else ends them.
    while let Some(operation) = next(&rest) {
        operation(Err(error.clone()));
    }
}

fn spawn(run: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = thread::Builder::new().name("comm-group-join".to_owned());
    let spawned = thread.spawn(run);
    spawned
        .map(drop)
        .map_err(|error| Error::system("starting a thread to join a group", error))
}

/// The handle of an operation that is begun later, and what begins it.
fn waits<T: Send + 'static>(
    begin: impl FnOnce(&Communicator) -> Result<Work<T>> + Send + 'static,
) -> (Work<T>, Waiting) {
    let (work, completer, relay) = Relay::channel();
    let operation: Waiting = Box::new(move |communicator| match communicator.and_then(begin) {
        Ok(work) => {
            // A request to cancel that came early takes the operation's turn like any other.
            relay.stand_for(work.as_async_work());
            work.forward(completer);
        }
        Err(error) => completer.complete(Err(error)),
    });
    (work, operation)
}

fn poisoned(cause: &Error) -> Error {
    Error::new(
        ErrorKind::Poisoned,
        format!("the group never came together; close it to try again. First cause: {cause}"),
    )
}

fn closed() -> Error {
    Error::new(ErrorKind::Aborted, "the group was closed by this worker")
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &*self.lock() {
            State::Idle => "not joined yet",
            State::Joining { .. } => "joining",
            State::Ready(_) => "joined",
            State::Failed(_) => "failed to join",
            State::Closed => "closed",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Submits two operations to a link whose join fails when it is told; a continuation of the first
    /// waits for the second.
    fn waiting_for_the_next(link: &Arc<Link>) -> (Work<ErrorKind>, mpsc::Sender<()>) {
        let (fail, told) = mpsc::channel::<()>();
        let submit = |told: Option<mpsc::Receiver<()>>| {
            let join = move || {
                let _ = told.map(|told| told.recv());
                Err(Error::new(ErrorKind::Rendezvous, "nobody came"))
            };
            let begin = |_: &Communicator| Ok(Work::ready(Ok(())));
            link.submit(join, begin).unwrap()
        };
        let (first, second) = (submit(Some(told)), submit(None));
        let seen = first.then(move |_| second.wait().unwrap_err().kind());
        (seen, fail)
    }

    #[test]
    fn a_continuation_may_wait_for_an_operation_that_fails_with_the_join_after_its_own() {
        let link = Arc::new(Link::new());
        let (seen, fail) = waiting_for_the_next(&link);
        fail.send(()).unwrap();
        assert_eq!(seen.take().unwrap(), ErrorKind::Rendezvous);
    }

    #[test]
    fn a_continuation_may_wait_for_an_operation_that_is_closed_after_its_own() {
        let link = Arc::new(Link::new());
        let (seen, _fail) = waiting_for_the_next(&link);
        assert!(link.close().is_none());
        assert_eq!(seen.take().unwrap(), ErrorKind::Aborted);
    }
}
