//! The worker threads that drive lanes for which nobody waits.
//!
//! # Contract
//!
//! * One pool per process, shared by all communicators; threads start with the first
//!   asynchronous operation.
//! * A lane always goes to the same worker, so it is never driven by two of them.
//! * A worker without work sleeps. One that waits for peers sleeps armed on all of its lanes and
//!   holds no driver's role meanwhile.
//! * A communicator lives until its submitted operations are complete.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use comm_core::doorbell::{Doorbell, Doorbells};
use comm_core::{Error, Result};

use crate::communicator::Core;
use crate::drive::Queue;
use crate::lane::LaneKey;
use crate::wait::{Pause, Wait};

/// Worker threads of a process. More would only compete with the threads that compute.
const WORKERS: usize = 2;

/// The longest sleep of a worker that waits for peers; it then looks at deadlines and reports.
const WATCH: Duration = Duration::from_millis(100);

/// The worker threads of one process.
#[derive(Debug)]
pub(crate) struct WorkerPool {
    doorbells: Arc<Doorbells>,
    workers: [OnceLock<Result<Arc<Worker>>>; WORKERS],
}

#[derive(Debug)]
struct Worker {
    inbox: Mutex<Inbox>,
    doorbell: Doorbell,
}

#[derive(Debug, Default)]
struct Inbox {
    lanes: Vec<(Arc<Core>, LaneKey)>,
    closed: bool,
}

/// The pool of the process's current doorbells.
static POOL: Mutex<Weak<WorkerPool>> = Mutex::new(Weak::new());

impl WorkerPool {
    /// The pool that all communicators of this process share.
    pub(crate) fn of_process(doorbells: &Arc<Doorbells>) -> Arc<Self> {
        let mut current = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = current
            .upgrade()
            .filter(|pool| Arc::ptr_eq(&pool.doorbells, doorbells))
        {
            return pool;
        }
        let pool = Arc::new(Self::new(Arc::clone(doorbells)));
        *current = Arc::downgrade(&pool);
        pool
    }

    const fn new(doorbells: Arc<Doorbells>) -> Self {
        Self {
            doorbells,
            workers: [const { OnceLock::new() }; WORKERS],
        }
    }

    /// Has a worker drive a lane until its queue is empty.
    ///
    /// # Errors
    ///
    /// If the worker's thread cannot be started.
    pub(crate) fn kick(&self, core: Arc<Core>, key: LaneKey) -> Result<()> {
        let place = match key {
            LaneKey::Collective => 0,
            LaneKey::Send(peer) | LaneKey::FrameSend(peer) => peer as usize * 2 + 1,
            LaneKey::Recv(peer) | LaneKey::FrameRecv(peer) => peer as usize * 2,
        };
        let worker = self.workers[place % WORKERS]
            .get_or_init(|| self.start())
            .as_ref();
        let worker = worker.map_err(Clone::clone)?;
        worker
            .inbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .lanes
            .push((core, key));
        worker.doorbell.ring();
        Ok(())
    }

    fn start(&self) -> Result<Arc<Worker>> {
        let doorbell = self.doorbells.claim()?;
        let worker = Arc::new(Worker {
            inbox: Mutex::default(),
            doorbell,
        });
        let runner = Arc::clone(&worker);
        std::thread::Builder::new()
            .name("comm-worker".to_owned())
            .spawn(move || runner.run())
            .map_err(|error| Error::system("starting a worker thread", error))?;
        Ok(worker)
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        for worker in self.workers.iter().filter_map(OnceLock::get).flatten() {
            worker
                .inbox
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .closed = true;
            worker.doorbell.ring();
        }
    }
}

impl Worker {
    fn run(&self) {
        let mut lanes: Vec<(Arc<Core>, LaneKey)> = Vec::new();
        loop {
            let ticket = self.doorbell.ticket();
            if !self.take_inbox(&mut lanes) {
                return;
            }
            let Some((first, _)) = lanes.first() else {
                self.doorbell.wait(ticket, None);
                continue;
            };
            let mut wait = Wait::new(first.policy);
            while !lanes.is_empty() {
                if drive_all(&mut lanes) {
                    wait.moved();
                } else if wait.pause() == Pause::Sleep {
                    self.sleep(&lanes);
                }
                self.take_inbox(&mut lanes);
            }
        }
    }

    /// Takes new lanes over; `false` once the pool is gone.
    fn take_inbox(&self, lanes: &mut Vec<(Arc<Core>, LaneKey)>) -> bool {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        for (core, key) in inbox.lanes.drain(..) {
            if !lanes
                .iter()
                .any(|(other, held)| *held == key && Arc::ptr_eq(other, &core))
            {
                lanes.push((core, key));
            }
        }
        !inbox.closed || !lanes.is_empty()
    }

    /// Sleeps armed on all lanes that wait for peers.
    fn sleep(&self, lanes: &[(Arc<Core>, LaneKey)]) {
        let ticket = self.doorbell.ticket();
        let mut may_sleep = true;
        let mut sleepers = Vec::new();
        for (core, key) in lanes.iter() {
            sleepers.push(core.abort.sleeper(&self.doorbell));
            may_sleep &= core.arm_queue(*key, &self.doorbell);
        }
        may_sleep &= self
            .inbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .lanes
            .is_empty();
        if may_sleep {
            self.doorbell.wait(ticket, Some(WATCH));
        }
    }
}

/// Drives every lane once and drops those that are done; whether anything moved.
fn drive_all(lanes: &mut Vec<(Arc<Core>, LaneKey)>) -> bool {
    let mut moved = false;
    lanes.retain(|(core, key)| match core.drive_once(*key) {
        Some(Queue::Moved) => {
            moved = true;
            true
        }
        Some(Queue::Blocked) => true,
        // Nothing queued, or somebody else drives and hands the lane back when leaving.
        Some(Queue::Empty) | None => false,
    });
    moved
}

impl Core {
    /// Drives a lane's queue once; `None` if somebody else drives it.
    fn drive_once(&self, key: LaneKey) -> Option<Queue> {
        let lane = self.lane(key)?;
        let mut driving = lane.try_acquire()?;
        let queue = self.drive_queue(lane, &mut driving);
        let is_queued = driving.release();
        // Whoever submitted something just now and did not get the role leaves it to this thread.
        Some(if queue == Queue::Empty && is_queued {
            Queue::Moved
        } else {
            queue
        })
    }

    /// Arms a blocked lane for a worker that is about to sleep; whether it may.
    fn arm_queue(&self, key: LaneKey, doorbell: &Doorbell) -> bool {
        let Some(lane) = self.lane(key) else {
            return true;
        };
        // Whoever drives it now kicks this worker when leaving.
        let Some(mut driving) = lane.try_acquire() else {
            return true;
        };
        if self.abort.has_failed() {
            return false;
        }
        if key.frame_peer().is_some() {
            return self.arm_frames_for_worker(lane, &mut driving, doorbell);
        }
        let Some(mut queued) = driving.current.take() else {
            return false;
        };
        if let Err(error) = self.watch(lane, &mut driving, &mut queued.active, Instant::now()) {
            let error = self.fail_operation(lane, &mut driving, &queued.active, error);
            queued.finish(Err(error));
            return false;
        }
        // An end that fails is found out by the next step, so the worker stays awake for it.
        let may_sleep = self
            .arm(lane, &mut driving, &queued.active, doorbell)
            .unwrap_or(false);
        driving.current = Some(queued);
        may_sleep
    }
}
