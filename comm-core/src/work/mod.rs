//! Asynchronous operations: [`Work`] for the caller, [`Completer`] for whoever carries them out.
//!
//! # Contract
//!
//! * Every operation ends. A [`Completer`] that is dropped without a result ends it with
//!   [`ErrorKind::Internal`], so nothing waits for ever.
//! * [`Work::wait`] can be repeated, from several threads; the result itself is handed out once, by
//!   [`Work::take`] or `.await`. The result owns the buffers that were in flight.
//! * Continuations ([`Work::then`]) run on the completing thread, in the order of registration,
//!   before waiters are released; one that is registered after the end runs at once. A panic in one
//!   is caught, logged and becomes the failure of that continuation's own [`Work`].
//! * Dropping a handle detaches: the operation goes on, and its result is dropped when it ends.
//! * What the operation holds here (cancel hook, driver, continuations) is released when it ends,
//!   not when the last handle goes.
//! * A blocking wait first drives the operation itself, if it was made with a [`Drive`]; the future
//!   never does. No executor is assumed.
//!
//! ```
//! use comm_core::Work;
//!
//! let (work, completer) = Work::channel();
//! let next = work.then(|result| result.as_ref().map_or(0, |value| value + 1));
//! std::thread::spawn(move || completer.complete(Ok(41)));
//! work.wait()?;
//! work.wait()?;
//! assert_eq!(next.take()?, 42);
//! assert_eq!(work.take()?, 41);
//! # Ok::<(), comm_core::Error>(())
//! ```

mod completer;
mod contract;
#[cfg(all(test, comm_loom))]
mod loom_tests;
mod pending;
mod stage;
mod state;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

pub use completer::{Completer, WorkBuilder};
pub use contract::{AsyncWork, Drive, Waited};
pub use pending::PendingFunction;

use crate::{Error, ErrorKind, Result};
use stage::Stage;
use state::{CancelHook, Look, Shared, panic_text};

/// Handle of an operation in flight that yields a `T`.
///
/// See the [module](self) for the contract. `Work` is the future of its result: `work.await` yields
/// it once, like [`Work::take`]; polling it again gives an error, not a panic. Dropping the future
/// detaches and loses nothing but the result.
#[must_use = "dropping the handle detaches: errors of the operation then go unnoticed"]
pub struct Work<T> {
    shared: Arc<Shared<T>>,
    waker_key: Option<u64>,
}

impl<T: Send + 'static> Work<T> {
    /// A pending operation that can neither be cancelled nor driven by its waiters.
    pub fn channel() -> (Self, Completer<T>) {
        WorkBuilder::new().channel()
    }

    /// An operation that has already ended.
    pub fn ready(result: Result<T>) -> Self {
        let (work, completer) = Self::channel();
        completer.complete(result);
        work
    }

    fn new(shared: Arc<Shared<T>>) -> Self {
        Self {
            shared,
            waker_key: None,
        }
    }

    /// Whether the operation has ended, well or not. Never blocks.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.shared.is_done()
    }

    /// Blocks until the operation has ended.
    ///
    /// # Errors
    ///
    /// The failure of the operation; the same one each time.
    /// [`ErrorKind::InvalidArgument`] if the operation cannot end before the calling thread has
    /// returned: in a continuation of an operation that runs in the same order as this one.
    pub fn wait(&self) -> Result<()> {
        self.shared.wait_deadline(None).map(drop)
    }

    /// Blocks until the operation has ended or `timeout` has passed, which only stops the wait.
    ///
    /// # Errors
    ///
    /// The failure of the operation; a passed time-out is not an error.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<Waited> {
        // A time-out beyond the clock's range is no time-out.
        self.shared
            .wait_deadline(Instant::now().checked_add(timeout))
    }

    /// Blocks until the operation has ended or `deadline` has passed (`None`: no deadline).
    ///
    /// # Errors
    ///
    /// As for [`Work::wait_timeout`].
    pub fn wait_deadline(&self, deadline: Option<Instant>) -> Result<Waited> {
        self.shared.wait_deadline(deadline)
    }

    /// Waits as a future, repeatably and without taking the result.
    ///
    /// Cancellation safe: dropping the future only stops the wait.
    ///
    /// # Errors
    ///
    /// The failure of the operation; the same one each time.
    pub fn wait_async(&self) -> impl Future<Output = Result<()>> + Send + '_ {
        WaitFuture {
            shared: &self.shared,
            waker_key: None,
        }
    }

    /// Blocks until the operation has ended and moves its result out.
    ///
    /// # Errors
    ///
    /// The failure of the operation, each time; [`ErrorKind::InvalidArgument`] if the result was
    /// taken before, or if called from a continuation of this same operation.
    pub fn take(&self) -> Result<T> {
        self.shared.take()
    }

    /// Runs `continuation` with the result as soon as the operation has ended; now, if it has.
    ///
    /// It runs on the thread that ends the operation and should be short. If another thread is just
    /// running continuations of this operation, that thread runs this one as well, after those. If
    /// the result was already taken, the continuation gets the error that a second take would get.
    ///
    /// The returned work ends with the continuation's return value, or with
    /// [`ErrorKind::Internal`] if it panics. It can be [detached](Work::detach).
    pub fn then<R: Send + 'static>(
        &self,
        continuation: impl FnOnce(&Result<T>) -> R + Send + 'static,
    ) -> Work<R> {
        let driver = self.shared.driver();
        let pending = PendingFunction::of(driver.clone());
        let shared = Arc::new(Shared::new(None, driver));
        let completer = Completer::new(Arc::clone(&shared));
        self.shared.then(
            Box::new(move |result| {
                let _pending = pending;
                let outcome = catch_unwind(AssertUnwindSafe(|| continuation(result)));
                completer.complete(outcome.map_err(|panic| {
                    let text = panic_text(panic.as_ref()).to_owned();
                    tracing::error!(panic = text, "a continuation of an operation panicked");
                    Error::new(ErrorKind::Internal, "a continuation panicked").with("panic", text)
                }));
            }),
            Arc::clone(&shared) as Arc<dyn AsyncWork>,
        );
        Work::new(shared)
    }

    /// Turns the result into another one, by value, as soon as the operation has ended; now, if it
    /// has.
    ///
    /// `convert` runs on the thread that ends the operation, after its continuations. The returned
    /// work is the operation from then on: waiting drives it, cancelling cancels it. It ends with
    /// [`ErrorKind::Internal`] if `convert` panics.
    pub fn map<R: Send + 'static>(
        self,
        convert: impl FnOnce(Result<T>) -> Result<R> + Send + 'static,
    ) -> Work<R> {
        let driver = self.shared.driver();
        self.converted(driver, |result, completer| {
            let outcome = catch_unwind(AssertUnwindSafe(|| convert(result)));
            completer.complete(outcome.unwrap_or_else(|panic| {
                let text = panic_text(panic.as_ref()).to_owned();
                tracing::error!(panic = text, "converting a result panicked");
                Err(
                    Error::new(ErrorKind::Internal, "converting a result panicked")
                        .with("panic", text),
                )
            }));
        })
    }

    /// As [`Work::map`], for a conversion that takes its time: `convert` gets a completer that ends
    /// the returned work, and may keep it to end the work later, on another thread.
    ///
    /// If `convert` panics, the work ends with [`ErrorKind::Internal`]. Waiting drives the operation
    /// until `convert` is called, and nothing afterwards.
    pub fn map_later<R: Send + 'static>(
        self,
        convert: impl FnOnce(Result<T>, Completer<R>) + Send + 'static,
    ) -> Work<R> {
        let Some(driver) = self.shared.driver() else {
            return self.converted(None, convert);
        };
        let stage = Arc::new(Stage::new(driver));
        let driver = Arc::clone(&stage) as Arc<dyn Drive>;
        self.converted(Some(driver), move |result, completer| {
            stage.end();
            convert(result, completer);
        })
    }

    /// A work that `convert` ends, whose waiters drive `driver`.
    fn converted<R: Send + 'static>(
        self,
        driver: Option<Arc<dyn Drive>>,
        convert: impl FnOnce(Result<T>, Completer<R>) + Send + 'static,
    ) -> Work<R> {
        let source = Arc::clone(&self.shared);
        let on_cancel: CancelHook = Box::new(move || source.cancel());
        let shared = Arc::new(Shared::new(Some(on_cancel), driver));
        let completer = Completer::new(Arc::clone(&shared));
        self.hand_over(completer, convert);
        Work::new(shared)
    }

    /// Ends the operation of `completer` with the result of this one, as soon as it is there.
    pub fn forward(self, completer: Completer<T>) {
        self.hand_over(completer, |result, completer| completer.complete(result));
    }

    /// Calls `finish` with the result, by value, as soon as the operation has ended (now, if it
    /// has), on the thread that ends it, after its continuations.
    ///
    /// The completer's operation becomes the last link of this one's chain; `finish` ends it, or
    /// keeps the completer and ends it later. If `finish` panics, it ends with
    /// [`ErrorKind::Internal`].
    pub fn hand_over<R: Send + 'static>(
        self,
        completer: Completer<R>,
        finish: impl FnOnce(Result<T>, Completer<R>) + Send + 'static,
    ) {
        let next = completer.work();
        let consumer = Box::new(move |result| {
            let finished = catch_unwind(AssertUnwindSafe(|| finish(result, completer)));
            if let Err(panic) = finished {
                let panic = panic_text(panic.as_ref());
                tracing::error!(panic, "taking a result over panicked");
            }
        });
        self.shared.consume(consumer, next);
    }

    /// Gives the handle up on purpose: the operation goes on, its outcome is nobody's business.
    pub fn detach(self) {}

    /// Asks for the operation to be cancelled; whether the request was passed on.
    ///
    /// `false` if it has ended, was asked before, or cannot be cancelled. After `true` it still ends
    /// by itself: with [`ErrorKind::Cancelled`], or as it would have if the request came too late.
    pub fn cancel(&self) -> bool {
        self.shared.cancel()
    }

    /// The work of the continuation that was registered last, if any.
    #[must_use]
    pub fn next_work(&self) -> Option<Arc<dyn AsyncWork>> {
        self.shared.next_work()
    }

    /// The end of the chain of continuations at this moment; `None` without a continuation.
    #[must_use]
    pub fn last_work(&self) -> Option<Arc<dyn AsyncWork>> {
        self.shared.last_work()
    }

    /// The operation without its result type: for lists of different operations.
    ///
    /// It shares the operation with this handle and can outlive it.
    #[must_use]
    pub fn as_async_work(&self) -> Arc<dyn AsyncWork> {
        Arc::clone(&self.shared) as Arc<dyn AsyncWork>
    }
}

impl<T: Send + 'static> AsyncWork for Work<T> {
    fn is_done(&self) -> bool {
        self.shared.is_done()
    }

    fn wait_deadline(&self, deadline: Option<Instant>) -> Result<Waited> {
        self.shared.wait_deadline(deadline)
    }

    fn register_waker(&self, waker: &Waker) {
        self.shared.register_waker(waker);
    }

    fn cancel(&self) -> bool {
        self.shared.cancel()
    }

    fn next_work(&self) -> Option<Arc<dyn AsyncWork>> {
        self.shared.next_work()
    }
}

impl<T: Send + 'static> Future for Work<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match this.shared.poll_take(&mut this.waker_key, context.waker()) {
            Look::Ready(result) => Poll::Ready(result),
            Look::NotYet => Poll::Pending,
        }
    }
}

impl<T> fmt::Debug for Work<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.fmt(f)
    }
}

struct WaitFuture<'a, T: Send + 'static> {
    shared: &'a Shared<T>,
    waker_key: Option<u64>,
}

impl<T: Send + 'static> Future for WaitFuture<'_, T> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match this
            .shared
            .poll_outcome(&mut this.waker_key, context.waker())
        {
            Some(outcome) => Poll::Ready(outcome),
            None => Poll::Pending,
        }
    }
}

impl<T: Send + 'static> Drop for WaitFuture<'_, T> {
    fn drop(&mut self) {
        if let Some(key) = self.waker_key {
            self.shared.forget_waker(key);
        }
    }
}
