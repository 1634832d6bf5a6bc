//! The worker threads that drive lanes for which nobody waits.
//!
//! # Contract
//!
//! * One pool per process, shared by all communicators; threads start with the first
//!   asynchronous operation.
//! * A lane always goes to the same worker, so it is never driven by two of them.
//! * A worker without work sleeps. One that waits for peers sleeps armed on all of its lanes and
//!   holds no driver's role meanwhile.
//! * All lanes of a worker are looked at every [`WATCH`], for deadlines and reports, however much moves in
//!   some of them.
//! * User's code that a worker calls may block, if it must: another thread [takes
//!   over](comm_core::blocking) all that the worker does. If it panics, the worker goes on.
//! * A communicator lives until its submitted operations are complete.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use comm_core::blocking::OnDuty;
use comm_core::doorbell::{Doorbell, Doorbells};
use comm_core::{Error, Result};

use crate::communicator::Core;
use crate::drive::Queue;
use crate::lane::LaneKey;
use crate::wait::{Pause, Wait};

/// Worker threads of a process. More would only compete with the threads that compute.
const WORKERS: usize = 2;

/// How often a worker with lanes that wait for peers looks at deadlines and reports.
const WATCH: Duration = Duration::from_millis(100);

/// The worker threads of one process.
#[derive(Debug)]
pub(crate) struct WorkerPool {
    doorbells: Arc<Doorbells>,
    workers: [OnceLock<Result<Arc<Worker>>>; WORKERS],
}

/// What one thread at a time takes care of.
#[derive(Debug)]
struct Worker {
    inbox: Mutex<Inbox>,
    /// The lanes that are driven. Changed by the worker's thread only.
    lanes: Mutex<Vec<(Arc<Core>, LaneKey)>>,
    doorbell: Doorbell,
}

#[derive(Debug, Default)]
struct Inbox {
    lanes: Vec<(Arc<Core>, LaneKey)>,
    closed: bool,
}

/// Another thread has taken the worker over: this one is to end.
struct Relieved;

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
        worker.map_err(Clone::clone)?.give(core, key);
        Ok(())
    }

    fn start(&self) -> Result<Arc<Worker>> {
        let doorbell = self.doorbells.claim()?;
        let worker = Arc::new(Worker {
            inbox: Mutex::default(),
            lanes: Mutex::default(),
            doorbell,
        });
        worker.start()?;
        Ok(worker)
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        for worker in self.workers.iter().filter_map(OnceLock::get).flatten() {
            worker.inbox().closed = true;
            worker.doorbell.ring();
        }
    }
}

impl Worker {
    /// Has a thread take care of the worker's lanes, in place of the one that did.
    fn start(self: &Arc<Self>) -> Result<()> {
        let worker = Arc::clone(self);
        std::thread::Builder::new()
            .name("comm-worker".to_owned())
            .spawn(move || {
                let stand_in = Arc::clone(&worker);
                let duty = OnDuty::new(move || match stand_in.start() {
                    Ok(()) => true,
                    Err(error) => {
                        tracing::warn!(%error, "a continuation blocks, and nobody stands in");
                        false
                    }
                });
                // Whoever was relieved has nothing more to do.
                let _ = worker.run(&duty);
            })
            .map_err(|error| Error::system("starting a worker thread", error))?;
        Ok(())
    }

    /// Has a lane driven.
    fn give(&self, core: Arc<Core>, key: LaneKey) {
        self.inbox().lanes.push((core, key));
        self.doorbell.ring();
    }

    fn run(&self, duty: &OnDuty) -> Result<(), Relieved> {
        loop {
            let ticket = self.doorbell.ticket();
            if !self.take_inbox() {
                return Ok(());
            }
            let Some((first, _)) = self.lane(0) else {
                self.doorbell.wait(ticket, None);
                continue;
            };
            let mut wait = Wait::new(first.policy);
            drop(first);
            let mut watched = Instant::now();
            while !self.lanes().is_empty() {
                if self.drive_all(duty)? {
                    wait.moved();
                    if watched.elapsed() >= WATCH {
                        self.arm_all(duty)?;
                        watched = Instant::now();
                    }
                } else if wait.pause() == Pause::Sleep {
                    self.sleep(duty)?;
                    watched = Instant::now();
                }
                self.take_inbox();
            }
        }
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lanes(&self) -> MutexGuard<'_, Vec<(Arc<Core>, LaneKey)>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lane(&self, place: usize) -> Option<(Arc<Core>, LaneKey)> {
        self.lanes().get(place).cloned()
    }

    /// Takes new lanes over; `false` once the pool is gone.
    fn take_inbox(&self) -> bool {
        let (mut inbox, mut lanes) = (self.inbox(), self.lanes());
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

    /// Drives every lane once and drops those that are done; whether anything moved.
    fn drive_all(&self, duty: &OnDuty) -> Result<bool, Relieved> {
        let mut moved = false;
        let mut place = 0;
        while let Some((core, key)) = self.lane(place) {
            // Dropping a result, for instance, is foreign code. Other lanes rely on this thread.
            let queue =
                catch_unwind(AssertUnwindSafe(|| core.drive_once(key))).unwrap_or_else(|_| {
                    tracing::error!(lane = %key, "foreign code panicked on a worker thread");
                    Some(Queue::Moved)
                });
            self.check(duty, &core, key)?;
            match queue {
                Some(Queue::Moved) => {
                    moved = true;
                    place += 1;
                }
                Some(Queue::Blocked) => place += 1,
                // Nothing queued, or somebody else drives and hands the lane back when leaving.
                Some(Queue::Empty) | None => {
                    let gone = self.lanes().remove(place);
                    // Without the lock: this may be the end of its communicator.
                    drop(gone);
                }
            }
        }
        Ok(moved)
    }

    /// Looks after all lanes that wait for peers and arms them; whether the thread may sleep.
    fn arm_all(&self, duty: &OnDuty) -> Result<bool, Relieved> {
        let mut may_sleep = true;
        let mut place = 0;
        while let Some((core, key)) = self.lane(place) {
            let arm = || core.arm_queue(key, &self.doorbell);
            may_sleep &= catch_unwind(AssertUnwindSafe(arm)).unwrap_or(false);
            self.check(duty, &core, key)?;
            place += 1;
        }
        Ok(may_sleep)
    }

    /// Whether this thread is still the worker's, after it has driven a lane.
    fn check(&self, duty: &OnDuty, core: &Arc<Core>, key: LaneKey) -> Result<(), Relieved> {
        if !duty.is_relieved() {
            return Ok(());
        }
        // The other thread may have met this one as the lane's driver, and have left the lane to it.
        self.give(Arc::clone(core), key);
        Err(Relieved)
    }

    /// Sleeps armed on all lanes that wait for peers.
    fn sleep(&self, duty: &OnDuty) -> Result<(), Relieved> {
        let ticket = self.doorbell.ticket();
        // They must not end while their sleepers are noted.
        let lanes = self.lanes().clone();
        let sleepers: Vec<_> = lanes
            .iter()
            .map(|(core, _)| core.abort.sleeper(&self.doorbell))
            .collect();
        let may_sleep = self.arm_all(duty)? && self.inbox().lanes.is_empty();
        if may_sleep {
            self.doorbell.wait(ticket, Some(WATCH));
        }
        drop(sleepers);
        Ok(())
    }
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
