//! [`Completer`], the end of whoever carries an operation out, and [`WorkBuilder`], which makes both ends.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::Work;
use super::contract::{AsyncWork, Drive};
use super::state::{CancelHook, Shared, panic_text};
use crate::{Error, ErrorKind, Result};

/// The other end of a [`Work`]: ends the operation, exactly once.
///
/// Dropped without a result, it ends the operation with [`ErrorKind::Internal`].
#[must_use = "dropping the completer fails the operation"]
pub struct Completer<T: Send + 'static> {
    /// `None` once completed.
    shared: Option<Arc<Shared<T>>>,
}

impl<T: Send + 'static> Completer<T> {
    pub(super) const fn new(shared: Arc<Shared<T>>) -> Self {
        Self {
            shared: Some(shared),
        }
    }

    /// The operation that this ends.
    pub(super) fn work(&self) -> Option<Arc<dyn AsyncWork>> {
        let shared = self.shared.clone();
        shared.map(|shared| shared as Arc<dyn AsyncWork>)
    }

    /// Ends the operation: runs the continuations on this thread, then releases the waiters.
    ///
    /// Must not be called while holding a lock that a continuation could want.
    ///
    /// Whoever completes has more to do: a panic of foreign code that this runs (continuations, wakers,
    /// the destructor of a result that nobody wants) is logged and goes no further.
    pub fn complete(mut self, result: Result<T>) {
        self.end(result);
    }

    fn end(&mut self, result: Result<T>) {
        let Some(shared) = self.shared.take() else {
            return;
        };
        let ended = catch_unwind(AssertUnwindSafe(move || {
            shared.complete(result);
            // It may be the last handle, and drops the result.
            drop(shared);
        }));
        if let Err(panic) = ended {
            let panic = panic_text(panic.as_ref());
            tracing::error!(panic, "foreign code panicked at the end of an operation");
        }
    }

    /// Whether nobody can see the result any more: all handles are gone and nothing was chained.
    #[must_use]
    pub fn is_detached(&self) -> bool {
        self.shared
            .as_ref()
            .is_none_or(|shared| Arc::strong_count(shared) == 1 && shared.next_work().is_none())
    }
}

impl<T: Send + 'static> Drop for Completer<T> {
    fn drop(&mut self) {
        if self.shared.is_some() {
            self.end(Err(Error::new(
                ErrorKind::Internal,
                "the operation was dropped by whoever carried it out before it had a result",
            )));
        }
    }
}

impl<T: Send + 'static> fmt::Debug for Completer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Completer").field(&self.shared).finish()
    }
}

/// Makes a [`Work`] with a cancel hook or a driver.
#[derive(Default)]
pub struct WorkBuilder {
    on_cancel: Option<CancelHook>,
    driver: Option<Arc<dyn Drive>>,
}

impl WorkBuilder {
    /// Neither hook nor driver.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls `hook` on the first [`Work::cancel`] before the end, on the cancelling thread.
    ///
    /// The hook passes the request on; ending the operation stays the completer's business. It is
    /// dropped when the operation ends.
    #[must_use]
    pub fn on_cancel(self, hook: impl FnOnce() + Send + 'static) -> Self {
        self.try_cancel(move || {
            hook();
            true
        })
    }

    /// As [`WorkBuilder::on_cancel`], with a hook that says whether the request came in time:
    /// [`Work::cancel`] returns its answer.
    #[must_use]
    pub fn try_cancel(mut self, hook: impl FnOnce() -> bool + Send + 'static) -> Self {
        self.on_cancel = Some(Box::new(hook));
        self
    }

    /// Lets blocking waiters, also those of continuations, drive the operation with `driver`.
    #[must_use]
    pub fn driver(mut self, driver: Arc<dyn Drive>) -> Self {
        self.driver = Some(driver);
        self
    }

    /// The pending operation and its completer.
    pub fn channel<T: Send + 'static>(self) -> (Work<T>, Completer<T>) {
        let shared = Arc::new(Shared::new(self.on_cancel, self.driver));
        (Work::new(Arc::clone(&shared)), Completer::new(shared))
    }
}

impl fmt::Debug for WorkBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkBuilder")
            .field("can_cancel", &self.on_cancel.is_some())
            .field("can_drive", &self.driver.is_some())
            .finish()
    }
}
