//! How a waiting handle drives the lane of its operation.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use comm_core::{Drive, Result};

use super::Queue;
use crate::communicator::Core;
use crate::lane::{Driving, Lane, LaneKey};
use crate::wait::{Pause, Wait};

/// How often a waiter tries to get the driver's role of a lane for frames: a worker has it for short
/// times only, and one that goes on driving would have to wake this thread for each frame.
const ATTEMPTS: u32 = 50;

/// Lets a waiting handle drive the lane of its operation.
#[derive(Debug)]
pub(crate) struct LaneDriver {
    pub(crate) core: Arc<Core>,
    pub(crate) key: LaneKey,
}

impl Drive for LaneDriver {
    fn drive(&self, done: &dyn Fn() -> bool, deadline: Option<Instant>) -> bool {
        let Some(lane) = self.core.lane(self.key) else {
            return false;
        };
        let Some(mut driving) = self.acquire(lane, done) else {
            return false;
        };
        // May be another thread than that which submitted the operation.
        self.core.note_user();
        let mut wait = Wait::new(self.core.policy);
        let mut drove = false;
        let mut hold = None;
        while !done() {
            let queue = self.core.drive_queue(lane, &mut driving);
            if queue == Queue::Empty {
                break;
            }
            drove = true;
            let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if queue == Queue::Moved {
                wait.moved();
            } else if is_over || wait.pause() == Pause::Sleep {
                if deadline.is_none() {
                    hold.get_or_insert_with(|| lane.held.hold());
                }
                // Without any time left it does not sleep, but looks at the operation's own deadline: who
                // only ever polls may keep everybody else from that.
                self.core.sleep_queue(lane, &mut driving, deadline, done);
            }
            if is_over {
                break;
            }
        }
        self.core.leave(lane, driving);
        drove
    }

    fn may_wait(&self) -> Result<()> {
        self.core.lane(self.key).map_or(Ok(()), Lane::may_wait)
    }

    fn begin_sleep(&self) {
        if let Some(lane) = self.core.lane(self.key) {
            self.core.note_user();
            lane.held.begin();
        }
    }

    fn end_sleep(&self) {
        if let Some(lane) = self.core.lane(self.key) {
            lane.held.end();
        }
    }

    fn note_caller(&self) {
        self.core.note_user();
    }

    fn begin_function(&self) {
        if let Some(lane) = self.core.lane(self.key) {
            lane.functions.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn end_function(&self) {
        if let Some(lane) = self.core.lane(self.key) {
            // Before the function stops counting.
            self.core.acted.note();
            lane.functions.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn interrupt(&self) {
        // Only requests for frames end without their driver: those that are cancelled.
        if self.key.frame_peer().is_some()
            && let Some(lane) = self.core.lane(self.key)
        {
            lane.wake(self.core.process.doorbells());
        }
    }
}

impl LaneDriver {
    /// Takes the driver's role, if need be from a worker, which has it for short times only.
    fn acquire<'a>(&self, lane: &'a Lane, done: &dyn Fn() -> bool) -> Option<Driving<'a>> {
        let attempts = if self.key.frame_peer().is_some() {
            ATTEMPTS
        } else {
            1
        };
        for _ in 0..attempts {
            if let Some(driving) = lane.try_acquire() {
                return Some(driving);
            }
            if done() {
                break;
            }
            std::thread::yield_now();
        }
        None
    }
}
