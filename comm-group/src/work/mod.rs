//! The family of asynchronous work: chained, joined, sequenced, answered.
//!
//! # Contract
//!
//! * All of them are [`Work`] with a way of ending of their own, and keep its contract: waiting in
//!   any form repeats and mixes (`wait`, `wait_timeout`, `wait_async`, `.await` on any executor);
//!   any number of continuations; dropping a handle lets the operation go on; what an operation
//!   holds is released when it ends.
//! * [`FuncWork`]: a function that runs when another work ends. If it returns a work, the handle
//!   ends with the end of that work's chain. Its error or panic is the handle's.
//! * [`CollWork`]: several works as one.
//! * [`ChannelOrder`] and [`ChannelWork`]: operations of one key of one channel, one after the other
//!   in the order of issue, whatever becomes of each.
//! * [`Replies`] and [`RpcWork`]: answers matched to questions by number, in any order.

mod channel;
mod coll;
mod func;
pub(crate) mod relay;
mod rpc;
#[cfg(test)]
mod tests;

pub use channel::{ChannelOrder, ChannelWork};
pub use coll::CollWork;
pub use func::FuncWork;
pub use rpc::{Replies, RequestId, RpcWork};

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::time::Instant;

use comm_core::{AsyncWork, Error, ErrorKind, Result, Waited};

#[cfg(doc)]
use comm_core::Work;

/// Calls `run` with the outcome of `work` as soon as it has ended, on the thread that ends it; now,
/// if it has.
fn when_done(work: &Arc<dyn AsyncWork>, run: impl FnOnce(Result<()>) + Send + 'static) {
    struct Trigger<F> {
        work: Arc<dyn AsyncWork>,
        run: Mutex<Option<F>>,
    }

    impl<F: FnOnce(Result<()>) + Send + 'static> Wake for Trigger<F> {
        fn wake(self: Arc<Self>) {
            self.wake_by_ref();
        }

        fn wake_by_ref(self: &Arc<Self>) {
            // A waker may be woken early or more than once.
            if !self.work.is_done() {
                return;
            }
            // Not under the lock: what runs is the user's, and may wake this again.
            let run = lock(&self.run).take();
            if let Some(run) = run {
                run(outcome(&*self.work));
            }
        }
    }

    let trigger = Arc::new(Trigger {
        work: Arc::clone(work),
        run: Mutex::new(Some(run)),
    });
    work.register_waker(&Waker::from(trigger));
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the calling thread can wait for a work at all; see [`Drive::may_wait`](comm_core::Drive::may_wait).
fn may_wait_for(work: &dyn AsyncWork) -> Result<()> {
    match work.wait_deadline(Some(Instant::now())) {
        // The failure of the wait, and not of the work.
        Err(error) if !work.is_done() => Err(error),
        _ => Ok(()),
    }
}

/// How a work that is done has ended.
fn outcome(work: &dyn AsyncWork) -> Result<()> {
    match work.wait_deadline(Some(Instant::now()))? {
        Waited::Done => Ok(()),
        Waited::TimedOut => Err(Error::new(
            ErrorKind::Internal,
            "an operation announced its end too early",
        )),
    }
}

/// Gives a wrapper of a `Work` its traits: it derefs to it, is its future and can be listed with
/// other works.
macro_rules! is_a_work {
    ($name:ident $(<$parameter:ident>)? = $result:ty) => {
        impl$(<$parameter>)? std::ops::Deref for $name$(<$parameter>)? {
            type Target = comm_core::Work<$result>;

            fn deref(&self) -> &Self::Target {
                &self.work
            }
        }

        impl$(<$parameter: Send + 'static>)? Future for $name$(<$parameter>)? {
            type Output = comm_core::Result<$result>;

            fn poll(
                mut self: std::pin::Pin<&mut Self>,
                context: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Self::Output> {
                std::pin::Pin::new(&mut self.work).poll(context)
            }
        }

        impl$(<$parameter: Send + 'static>)? comm_core::AsyncWork for $name$(<$parameter>)? {
            fn is_done(&self) -> bool {
                self.work.is_done()
            }

            fn wait_deadline(
                &self,
                deadline: Option<std::time::Instant>,
            ) -> comm_core::Result<comm_core::Waited> {
                self.work.wait_deadline(deadline)
            }

            fn register_waker(&self, waker: &std::task::Waker) {
                comm_core::AsyncWork::register_waker(&self.work, waker);
            }

            fn cancel(&self) -> bool {
                self.work.cancel()
            }

            fn next_work(&self) -> Option<std::sync::Arc<dyn comm_core::AsyncWork>> {
                self.work.next_work()
            }
        }

        impl$(<$parameter>)? std::fmt::Debug for $name$(<$parameter>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.work).finish()
            }
        }

        impl$(<$parameter>)? From<$name$(<$parameter>)?> for comm_core::Work<$result> {
            fn from(wrapper: $name$(<$parameter>)?) -> Self {
                wrapper.work
            }
        }
    };
}
use is_a_work;
