//! [`FuncWork`]: a function that runs when another work ends.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use comm_core::{AsyncWork, Completer, Error, ErrorKind, PendingFunction, Result, Work};

use super::relay::Relay;
use super::{is_a_work, when_done};

/// The handle of a function that runs when another work ends; see the [module](super).
///
/// ```
/// use comm_core::Work;
/// use comm_group::FuncWork;
///
/// let (loaded, completer) = Work::channel();
/// // Each step starts when the one before it has ended.
/// let summed = FuncWork::after(&loaded, |values: &_| {
///     let values: &Vec<u32> = values.as_ref().map_err(Clone::clone)?;
///     Ok(values.iter().sum::<u32>())
/// });
/// let sent = FuncWork::chain(&summed, |sum| Ok(Work::ready(sum.clone().map(|sum| sum * 2))));
/// completer.complete(Ok(vec![1, 2, 3]));
/// assert_eq!(sent.take()?, 12);
/// # Ok::<(), comm_core::Error>(())
/// ```
#[must_use = "dropping the handle detaches: errors of the function then go unnoticed"]
pub struct FuncWork<T> {
    work: Work<T>,
}

is_a_work!(FuncWork<T> = T);

impl<T: Send + 'static> FuncWork<T> {
    /// Runs `function` with the result of `trigger` as soon as that has ended; now, if it has.
    ///
    /// It runs on the thread that ends the trigger and should be short. A trigger that failed
    /// runs it, too: the function decides whether that is its failure.
    pub fn after<A: Send + 'static>(
        trigger: &Work<A>,
        function: impl FnOnce(&Result<A>) -> Result<T> + Send + 'static,
    ) -> Self {
        let work = trigger
            .then(|result| contained(|| function(result)))
            .map(|outcome| outcome?);
        Self { work }
    }

    /// As [`FuncWork::after`], with a function that starts another work: the handle ends when that
    /// work and the chain that hangs on it at that moment have ended, with the work's result or the
    /// chain's failure.
    pub fn chain<A: Send + 'static>(
        trigger: &Work<A>,
        function: impl FnOnce(&Result<A>) -> Result<Work<T>> + Send + 'static,
    ) -> Self {
        let (work, completer, relay) = Relay::channel();
        let started = trigger.then(|result| contained(|| function(result)));
        relay.stand_for(started.as_async_work());
        started.hand_over(completer, move |started, completer| {
            match started.and_then(|work| work) {
                Ok(work) => follow(work, &relay, completer),
                Err(error) => completer.complete(Err(error)),
            }
        });
        Self { work }
    }

    /// As [`FuncWork::after`], with a trigger of any kind, of which the function gets the outcome
    /// only.
    pub fn after_any(
        trigger: &Arc<dyn AsyncWork>,
        function: impl FnOnce(Result<()>) -> Result<T> + Send + 'static,
    ) -> Self {
        let (work, completer, relay) = Relay::channel();
        relay.stand_for(Arc::clone(trigger));
        let pending = PendingFunction::elsewhere();
        when_done(trigger, move |outcome| {
            let _pending = pending;
            completer.complete(contained(|| function(outcome)));
        });
        Self { work }
    }
}

/// Ends the handle when `work` and everything that was chained to it so far have ended.
fn follow<T: Send + 'static>(work: Work<T>, relay: &Relay, completer: Completer<T>) {
    match work.last_work() {
        None => {
            relay.stand_for(work.as_async_work());
            work.forward(completer);
        }
        Some(last) => {
            relay.stand_for(Arc::clone(&last));
            when_done(&last, move |outcome| match outcome {
                // The chain hangs on the work, which has therefore ended.
                Ok(()) => work.forward(completer),
                Err(error) => completer.complete(Err(error)),
            });
        }
    }
}

/// The function's result; its panic as an error.
pub(super) fn contained<R>(function: impl FnOnce() -> Result<R>) -> Result<R> {
    catch_unwind(AssertUnwindSafe(function)).unwrap_or_else(|panic| {
        let text = panic_text(panic.as_ref()).to_owned();
        tracing::error!(
            panic = text,
            "the function of an asynchronous work panicked"
        );
        let message = "the function of an asynchronous work panicked";
        Err(Error::new(ErrorKind::Internal, message).with("panic", text))
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no text)")
}
