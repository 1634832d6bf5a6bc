//! [`Decoders`]: threads that decompress what asynchronous receives have received.
//!
//! # Contract
//!
//! * Up to [`MOST_THREADS`] threads for each worker, started with the first message that needs one.
//!   They sleep without work and end with the worker's last group; what was given to them before is
//!   done. Without threads the caller does it.
//! * A job ends with the continuations of a receive. If one of them blocks, its thread does not count any
//!   more, and another one does what comes behind it.
//! * A job that panics ends with its panic and nothing else does.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use comm_core::blocking::OnDuty;

/// More would compete with the threads that compute; one large message must not hold up all others.
const MOST_THREADS: usize = 2;

type Job = Box<dyn FnOnce() + Send>;

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Decoders {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    given: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    asleep: usize,
    is_closed: bool,
}

impl Decoders {
    /// Does the job, soon and on another thread.
    pub(crate) fn run(&self, job: Job) {
        let mut state = self.shared.lock();
        state.jobs.push_back(job);
        if state.asleep >= state.jobs.len() || state.threads == MOST_THREADS {
            drop(state);
            self.shared.given.notify_one();
            return;
        }
        if !self.shared.start(state) {
            let mut state = self.shared.lock();
            // Other threads may have taken it by now.
            let job = if state.threads == 0 {
                state.jobs.pop_front()
            } else {
                None
            };
            drop(state);
            if let Some(job) = job {
                job();
            }
        }
    }
}

impl Shared {
    /// Starts one more thread; whether there is one.
    fn start(self: &Arc<Self>, mut state: MutexGuard<'_, State>) -> bool {
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(self);
        let thread = thread::Builder::new().name("comm-decode".to_owned());
        let started = thread.spawn(move || shared.work());
        if let Err(error) = &started {
            tracing::debug!(%error, "no thread to decompress");
            self.lock().threads -= 1;
        }
        started.is_ok()
    }

    /// A thread blocks in the middle of a job, maybe for the end of another one; whether that will be
    /// done without it.
    fn stand_in(self: &Arc<Self>) -> bool {
        let mut state = self.lock();
        state.threads -= 1;
        let is_served = state.jobs.is_empty() || state.threads > 0 || self.start(state);
        if !is_served {
            self.lock().threads += 1;
        }
        is_served
    }

    fn work(self: &Arc<Self>) {
        let shared = Arc::clone(self);
        let duty = OnDuty::new(move || shared.stand_in());
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                if catch_unwind(AssertUnwindSafe(job)).is_err() {
                    tracing::error!("decompressing a message panicked");
                }
                if duty.is_relieved() {
                    return;
                }
                state = self.lock();
            } else if state.is_closed {
                return;
            } else {
                state.asleep += 1;
                state = self
                    .given
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                state.asleep -= 1;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Decoders {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.given.notify_all();
    }
}

impl fmt::Debug for Decoders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.lock();
        f.debug_struct("Decoders")
            .field("jobs", &state.jobs.len())
            .field("threads", &state.threads)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use comm_core::Work;

    use super::*;

    #[test]
    fn jobs_that_block_for_others_behind_them_do_not_keep_these_from_being_done() {
        let decoders = Decoders::default();
        let (mut waiting, mut awaited) = (Vec::new(), Vec::new());
        for _ in 0..MOST_THREADS + 1 {
            let (behind, end_behind) = Work::channel();
            let (work, completer) = Work::channel();
            decoders.run(Box::new(move || completer.complete(behind.wait())));
            waiting.push(work);
            awaited.push(end_behind);
        }
        for completer in awaited {
            decoders.run(Box::new(move || completer.complete(Ok(()))));
        }
        for work in waiting {
            work.wait().unwrap();
        }
    }
}
