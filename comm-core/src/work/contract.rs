//! The object-safe face of an asynchronous operation and the hook by which a waiter drives it.

use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use crate::Result;

/// How a wait with a time limit ended when the operation did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a wait that timed out says nothing about the operation"]
pub enum Waited {
    /// The operation succeeded.
    Done,
    /// The limit passed first. The operation goes on and can be waited for again.
    TimedOut,
}

impl Waited {
    /// Whether the operation succeeded.
    #[must_use]
    pub const fn is_done(self) -> bool {
        matches!(self, Self::Done)
    }
}

/// An operation in flight, whatever its result type.
///
/// # Contract
///
/// * Done means: the outcome is known and every continuation registered before that has run. It
///   never becomes undone.
/// * Waiting does not consume anything: any number of threads may wait, again and again, and all
///   see the same outcome.
/// * Dropping the object detaches: the operation goes on.
/// * Inside a continuation of the operation it counts as done, so waiting there does not deadlock.
pub trait AsyncWork: Send + Sync + fmt::Debug {
    /// Whether the operation has ended, well or not. Never blocks.
    fn is_done(&self) -> bool;

    /// Blocks until the operation has ended or `deadline` has passed (`None`: no deadline).
    ///
    /// Passing the deadline only stops the wait.
    ///
    /// # Errors
    ///
    /// The failure of the operation; the same one each time.
    fn wait_deadline(&self, deadline: Option<Instant>) -> Result<Waited>;

    /// Wakes `waker` once when the operation has ended; at once if it has already.
    ///
    /// Any number of different wakers can be registered; one that would wake the same task as an
    /// earlier one counts once.
    fn register_waker(&self, waker: &Waker);

    /// Asks for the operation to be cancelled; whether the request was passed on.
    ///
    /// `false` if the operation has ended, was asked before, or cannot be cancelled. After `true`
    /// it still has to be waited for: it ends with
    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled), or as it would have if the request
    /// came too late.
    fn cancel(&self) -> bool;

    /// The work of the continuation that was registered last, if any.
    fn next_work(&self) -> Option<Arc<dyn AsyncWork>>;

    /// The end of the chain of [`AsyncWork::next_work`] at this moment; `None` without a
    /// continuation.
    fn last_work(&self) -> Option<Arc<dyn AsyncWork>> {
        let mut last = self.next_work()?;
        while let Some(next) = last.next_work() {
            last = next;
        }
        Some(last)
    }
}

/// What moves an operation forward, lent to the thread that waits for it.
///
/// A blocking wait calls [`Drive::drive`] first, so that the waiter does the work itself instead of
/// waking another thread. Futures never drive: polling must not block.
pub trait Drive: Send + Sync {
    /// Makes progress on the calling thread until `done()` is true or `deadline` has passed.
    ///
    /// May sleep while there is nothing to do. Returns `false` at once if somebody else is driving
    /// or nothing can be driven; whoever returns `false` promises that the operation ends without
    /// this thread's help. `done` is cheap and may be called often.
    fn drive(&self, done: &dyn Fn() -> bool, deadline: Option<Instant>) -> bool;

    /// Whether the calling thread can wait for the operation at all.
    ///
    /// Asked when [`Drive::drive`] returned `false` and the thread is about to sleep.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if the operation can only
    /// end when this thread has returned to what it is doing further up, as in a continuation.
    fn may_wait(&self) -> Result<()> {
        Ok(())
    }

    /// Makes a thread that is inside [`Drive::drive`] evaluate its `done` again.
    ///
    /// Called after an operation has ended while somebody was driving for it, possibly by the
    /// driving thread itself. An implementation whose `drive` can sleep has to wake it here.
    fn interrupt(&self) {}

    /// A thread that waits without a deadline is about to sleep until the operation has ended:
    /// [`Drive::drive`] returned `false`.
    ///
    /// For implementations that have to know which threads cannot do anything else meanwhile.
    fn begin_sleep(&self) {}

    /// The operation has ended for which a thread sleeps that was announced by
    /// [`Drive::begin_sleep`]; called once for each of them, on the thread that ends the operation.
    fn end_sleep(&self) {}

    /// The calling thread asks for the outcome of the operation and goes on to something else if there
    /// is none: it polls a future, or waits with a deadline while somebody else drives.
    fn note_caller(&self) {}

    /// Somebody has asked for a function of his to be run when the operation has ended, which may then
    /// do what a peer waits for.
    ///
    /// By default it counts as one that hangs on something that [no driver knows](super::PendingFunction).
    fn begin_function(&self) {
        super::pending::begin_elsewhere();
    }

    /// A function has run that was announced by [`Drive::begin_function`]; called once for each.
    fn end_function(&self) {
        super::pending::end_elsewhere();
    }
}
