//! The device's thread: copies, one after the other, each after a while.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use comm_core::device::{CopyCompleter, CopyEvent, DeviceMemory};
use comm_core::{Error, ErrorKind, Result};

use super::lock;
use crate::net::Rng;

/// A copy between two addresses that the device's thread may access.
pub(super) struct Job {
    pub(super) to: usize,
    pub(super) from: usize,
    pub(super) bytes: usize,
    /// What must stay alive until the copy has happened.
    pub(super) keep: [DeviceMemory; 2],
}

/// The queue of copies and the thread that works on it; the thread ends with the queue.
pub(super) struct Copier {
    queue: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    jobs: Mutex<Jobs>,
    more: Condvar,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<(Job, CopyCompleter)>,
    failed: bool,
    stop: bool,
}

impl Copier {
    pub(super) fn start(seed: u64, max_delay: Duration) -> Result<Self> {
        let queue = Arc::new(Queue::default());
        let work = Arc::clone(&queue);
        thread::Builder::new()
            .name("mock-device".to_owned())
            .spawn(move || work.run(Rng::new(seed), max_delay))
            .map_err(|error| Error::system("starting the thread of the mock device", error))?;
        Ok(Self { queue })
    }

    pub(super) fn submit(&self, job: Job) -> CopyEvent {
        let (event, completer) = CopyEvent::pending();
        lock(&self.queue.jobs).waiting.push_back((job, completer));
        self.queue.more.notify_one();
        event
    }

    pub(super) fn fail(&self) {
        lock(&self.queue.jobs).failed = true;
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        lock(&self.queue.jobs).stop = true;
        self.queue.more.notify_one();
    }
}

impl Queue {
    /// Works until the device is dropped and everything submitted has happened.
    fn run(&self, mut rng: Rng, max_delay: Duration) {
        let longest = u64::try_from(max_delay.as_nanos()).unwrap_or(u64::MAX);
        while let Some((job, completer)) = self.next() {
            thread::sleep(Duration::from_nanos(rng.below(longest.saturating_add(1))));
            let outcome = if lock(&self.jobs).failed {
                Err(Error::new(
                    ErrorKind::System,
                    "the mock device failed (injected)",
                ))
            } else {
                let (from, to) = (job.from as *const u8, job.to as *mut u8);
                // SAFETY: both addresses are of memory that `job.keep` keeps alive, were checked
                // to be this long, and by the caller's promise nobody else accesses them.
                unsafe { to.copy_from_nonoverlapping(from, job.bytes) };
                Ok(())
            };
            // What the copy kept alive is released before anybody hears of its end.
            drop(job.keep);
            completer.end(outcome);
        }
    }

    fn next(&self) -> Option<(Job, CopyCompleter)> {
        let mut jobs = lock(&self.jobs);
        loop {
            if let Some(next) = jobs.waiting.pop_front() {
                return Some(next);
            }
            if jobs.stop {
                return None;
            }
            jobs = self.more.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
