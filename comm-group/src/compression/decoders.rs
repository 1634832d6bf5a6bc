//! [`Decoders`]: threads that decompress what asynchronous receives have received.
//!
//! # Contract
//!
//! * Up to [`MOST_THREADS`] threads for each worker, started with the first message that needs one.
//!   They sleep without work and end with the worker's last group; what was given to them before is
//!   done. Without threads the caller does it.
//! * A job that panics ends with its panic and nothing else does.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

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
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name("comm-decode".to_owned());
        if let Err(error) = thread.spawn(move || shared.work()) {
            tracing::debug!(%error, "no thread to decompress; the caller does it");
            let mut state = self.shared.lock();
            state.threads -= 1;
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
    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                if catch_unwind(AssertUnwindSafe(job)).is_err() {
                    tracing::error!("decompressing a message panicked");
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
