//! From the first call to the connected group: [`Link`].
//!
//! # Contract
//!
//! * The first operation starts the join, on a thread of its own that ends with it. Operations that
//!   come before it is through are kept and begun in the order in which they came; nobody overtakes.
//! * No lock is held while anything waits or any foreign code runs.
//! * A join that fails ends everything that waits for it with its error; later operations get
//!   [`ErrorKind::Poisoned`] with the cause.
//! * After [`Link::close`] operations are refused, those that wait end with [`ErrorKind::Aborted`],
//!   and a join that is under way is given up as soon as it returns.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use comm_core::{Error, ErrorKind, Result, Work};
use comm_runtime::{Caller, Communicator};

use crate::work::relay::Relay;

/// An operation that waits for the join.
type Waiting = Box<dyn FnOnce(Result<&Communicator>) + Send>;

enum State {
    Idle,
    Joining {
        waiting: Vec<Waiting>,
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
                waiting.push(operation);
                let caller = Caller::current();
                if !callers.contains(&caller) {
                    callers.push(caller);
                }
                Ok(work)
            }
            State::Idle => {
                let (work, operation) = waits(begin);
                let link = Arc::clone(self);
                thread::Builder::new()
                    .name("comm-group-join".to_owned())
                    .spawn(move || link.run_join(join))
                    .map_err(|error| Error::system("starting a thread to join a group", error))?;
                *state = State::Joining {
                    waiting: vec![operation],
                    callers: vec![Caller::current()],
                };
                Ok(work)
            }
        }
    }

    fn run_join(&self, join: impl FnOnce() -> Result<Communicator>) {
        let joined = catch_unwind(AssertUnwindSafe(join)).unwrap_or_else(|_| {
            let message = "joining a group panicked; a transport hook may have done so";
            Err(Error::new(ErrorKind::Internal, message))
        });
        if let Ok(communicator) = &joined {
            communicator.act_for_others();
        }
        loop {
            let mut state = self.lock();
            let State::Joining { waiting, callers } = &mut *state else {
                // Closed meanwhile; the communicator leaves.
                return;
            };
            let waiting = std::mem::take(waiting);
            match &joined {
                // Whoever hears of the failure finds the group failed.
                Err(error) => *state = State::Failed(error.clone()),
                // Nobody overtakes: those that came meanwhile are begun before the group is ready.
                Ok(communicator) if waiting.is_empty() => {
                    communicator.hand_over(callers);
                    *state = State::Ready(communicator.clone());
                }
                Ok(_) => {}
            }
            let is_over = !matches!(&*state, State::Joining { .. });
            drop(state);
            for operation in waiting {
                operation(joined.as_ref().map_err(Clone::clone));
            }
            if is_over {
                return;
            }
        }
    }

    /// Ends the group; the communicator, if there is one, is the caller's.
    pub(super) fn close(&self) -> Option<Communicator> {
        let state = std::mem::replace(&mut *self.lock(), State::Closed);
        match state {
            State::Ready(communicator) => Some(communicator),
            State::Joining { waiting, .. } => {
                for operation in waiting {
                    operation(Err(closed()));
                }
                None
            }
            State::Idle | State::Failed(_) | State::Closed => None,
        }
    }
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
