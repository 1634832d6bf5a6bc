//! Driving: taking operations of a lane forward, waiting for peers in between.
//!
//! Three callers drive: a blocking call (its own operation on an idle lane), a waiting handle
//! (whatever is queued before the operation it waits for), and a worker thread (lanes for which
//! nobody waits). All of them use [`Core::step`].

pub(crate) mod frames;
mod waiter;

pub(crate) use waiter::LaneDriver;

use std::time::{Duration, Instant};

use comm_core::doorbell::Doorbell;
use comm_core::{Armed, Error, ErrorKind, Result};

use crate::call::{Active, Call};
use crate::communicator::Core;
use crate::edge::ends::Identity;
use crate::lane::{Driving, Lane, LaneState};
use crate::operation::{BlockedOn, Progress};
use crate::wait::{Pause, Wait, until, with_doorbell};
use frames::{Guest, Sleeper};

/// Bytes that one call of `advance` moves at most before the deadline and aborts are looked at.
pub(crate) const BUDGET_BYTES: usize = 4 << 20;

/// What is queued on a lane after an attempt to drive it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// Nothing.
    Empty,
    /// Something that moved, or was completed, a moment ago.
    Moved,
    /// Something that waits for peers.
    Blocked,
}

impl Core {
    /// Carries an operation through on the calling thread, which has the driver's role.
    ///
    /// # Errors
    ///
    /// The failure of the communicator. An error after the operation began fails it everywhere.
    pub(crate) fn run(
        &self,
        lane: &Lane,
        mut driving: Driving<'_>,
        mut active: Active,
    ) -> Result<()> {
        let result = self.run_active(lane, &mut driving, &mut active);
        // Takes back what it offered to peers, before anybody else drives the lane's edges.
        drop(active);
        self.leave(lane, driving);
        result
    }

    fn run_active(&self, lane: &Lane, state: &mut LaneState, active: &mut Active) -> Result<()> {
        let mut wait = Wait::new(self.policy);
        let mut hold = None;
        loop {
            match self.step(lane, state, active)? {
                Progress::Done => return Ok(()),
                Progress::Moved => wait.moved(),
                Progress::Blocked => {
                    if wait.pause() == Pause::Sleep {
                        hold.get_or_insert_with(|| lane.held.hold());
                        self.sleep(lane, state, active, None)
                            .map_err(|error| self.fail_operation(lane, state, active, error))?;
                    }
                }
            }
        }
    }

    /// Gives the driver's role up; somebody else drives what is queued.
    pub(crate) fn leave(&self, lane: &Lane, driving: Driving<'_>) {
        if driving.release() {
            self.kick_worker(lane.key);
        }
    }

    /// Drives the queue of a lane once.
    pub(crate) fn drive_queue(&self, lane: &Lane, driving: &mut Driving<'_>) -> Queue {
        if lane.key.frame_peer().is_some() {
            return self.drive_frames(lane, driving, &mut Guest::Nobody);
        }
        let _inside = lane.enter();
        if driving.current().is_none() {
            return Queue::Empty;
        }
        // Out of the state while it is driven, so that both can be borrowed.
        let Some(mut queued) = driving.current.take() else {
            return Queue::Empty;
        };
        let result = match self.step(lane, driving, &mut queued.active) {
            Ok(Progress::Done) => Ok(()),
            Err(error) => Err(error),
            Ok(progress) => {
                driving.current = Some(queued);
                let blocked = progress == Progress::Blocked;
                return if blocked {
                    Queue::Blocked
                } else {
                    Queue::Moved
                };
            }
        };
        self.acted.note();
        queued.finish(result);
        Queue::Moved
    }

    /// Takes one operation as far as it goes without blocking.
    fn step(&self, lane: &Lane, state: &mut LaneState, active: &mut Active) -> Result<Progress> {
        self.abort.check()?;
        let result = self.step_unchecked(lane, state, active);
        match result {
            Ok(Progress::Blocked) | Err(_) => {}
            Ok(Progress::Done | Progress::Moved) => {
                if active.stall.end() {
                    lane.set_blocked(None);
                }
            }
        }
        result.map_err(|error| self.fail_operation(lane, state, active, error))
    }

    #[inline]
    fn step_unchecked(
        &self,
        lane: &Lane,
        state: &mut LaneState,
        active: &mut Active,
    ) -> Result<Progress> {
        if active.operation.is_none() {
            let identity = match active.identity {
                Some(identity) => identity,
                None => {
                    let identity = Identity::new(active.signature(state.next_sequence));
                    state.next_sequence += 1;
                    lane.history.record(&identity.signature);
                    active.identity = Some(identity);
                    identity
                }
            };
            if !self.ensure_edges(lane, state, &active.call)? {
                return Ok(Progress::Blocked);
            }
            let step_bytes = self.planner.config().step_bytes;
            active.operation = Some(active.operation(identity, step_bytes, &state.ends));
        }
        match &mut active.operation {
            Some(operation) => operation.advance(&mut state.ends, BUDGET_BYTES),
            None => Ok(Progress::Blocked),
        }
    }

    /// Sleeps until an edge of the operation moves, mail comes, the communicator fails, `limit`
    /// passes, or the sleep is over. Reports an operation that stays blocked.
    pub(crate) fn sleep(
        &self,
        lane: &Lane,
        state: &mut LaneState,
        active: &mut Active,
        limit: Option<Instant>,
    ) -> Result<()> {
        let now = Instant::now();
        self.watch(lane, state, active, now)?;
        let deadline = match (active.deadline(), limit) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let Some(timeout) = until(deadline, active.stall.nap(now)) else {
            return Ok(());
        };
        with_doorbell(self.process.doorbells(), |doorbell| {
            let ticket = doorbell.ticket();
            let _sleeper = self.abort.sleeper(doorbell);
            self.abort.check()?;
            if self.arm(lane, state, active, doorbell)? {
                doorbell.wait(ticket, Some(timeout));
            }
            self.disarm(lane, state, active);
            Ok(())
        })
    }

    /// Arms everything that the operation waits for; whether the thread may sleep.
    pub(crate) fn arm(
        &self,
        lane: &Lane,
        state: &mut LaneState,
        active: &Active,
        doorbell: &Doorbell,
    ) -> Result<bool> {
        if lane.arm(doorbell) && active.operation.is_none() {
            return Ok(false);
        }
        let mut ready = false;
        let mut failure = None;
        if let Some(operation) = &active.operation {
            operation.blocked_on(&mut |on| {
                let armed = match on {
                    BlockedOn::Credit(index) => state.ends.send[index].arm(doorbell),
                    BlockedOn::Acknowledgement(index) => {
                        state.ends.send[index].arm_acknowledged(doorbell)
                    }
                    BlockedOn::Step(index) => state.ends.recv[index].arm(doorbell),
                    BlockedOn::DirectSend(index) => state.ends.send[index].arm_direct(doorbell),
                    BlockedOn::DirectRecv(index) => state.ends.recv[index].arm_direct(doorbell),
                };
                match armed {
                    Ok(Armed::Ready) => ready = true,
                    Ok(Armed::WillRing) => {}
                    Err(error) => failure = Some(error),
                }
            });
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(!ready),
        }
    }

    /// Takes back what [`Core::arm`] asked for.
    pub(crate) fn disarm(&self, lane: &Lane, state: &mut LaneState, active: &Active) {
        lane.disarm();
        if let Some(operation) = &active.operation {
            operation.blocked_on(&mut |on| match on {
                BlockedOn::Credit(index)
                | BlockedOn::Acknowledgement(index)
                | BlockedOn::DirectSend(index) => state.ends.send[index].disarm(),
                BlockedOn::Step(index) | BlockedOn::DirectRecv(index) => {
                    state.ends.recv[index].disarm();
                }
            });
        }
    }

    #[cold]
    pub(crate) fn timeout_error(
        &self,
        state: &LaneState,
        active: &Active,
        waited: Duration,
    ) -> Error {
        let waits_for = self.waits_for(state, active);
        let what = active
            .identity
            .map_or_else(String::new, |identity| identity.signature.to_string());
        Error::new(
            ErrorKind::Timeout,
            format!(
                "rank {} waited {:.1} s in {what} for rank(s) {waits_for:?} and gave up; \
                 see whether they are stuck elsewhere, or raise the operation timeout",
                self.rank,
                waited.as_secs_f64()
            ),
        )
    }

    /// The ranks without which the operation cannot go on.
    pub(crate) fn waits_for(&self, state: &LaneState, active: &Active) -> Vec<u32> {
        let mut ranks = Vec::new();
        match (&active.operation, &active.call) {
            (Some(operation), _) => operation.blocked_on(&mut |on| {
                ranks.push(match on {
                    BlockedOn::Credit(index)
                    | BlockedOn::Acknowledgement(index)
                    | BlockedOn::DirectSend(index) => state.ends.send[index].peer,
                    BlockedOn::Step(index) | BlockedOn::DirectRecv(index) => {
                        state.ends.recv[index].peer
                    }
                });
            }),
            (None, Call::Message(message)) => ranks.push(message.peer),
            (None, Call::Collective { plan, .. }) => {
                for flow in plan.flows() {
                    let sends = flow
                        .sends_to
                        .iter()
                        .filter(|peer| state.ends.send_to(**peer, flow.channel).is_none());
                    let receives = flow
                        .receives_from
                        .iter()
                        .filter(|peer| state.ends.recv_from(**peer, flow.channel).is_none());
                    ranks.extend(sends.chain(receives));
                }
            }
        }
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }
}

impl Core {
    /// Sleeps for the queued operation under way; its failure completes it at the next step.
    pub(crate) fn sleep_queue(
        &self,
        lane: &Lane,
        driving: &mut Driving<'_>,
        limit: Option<Instant>,
        done: &dyn Fn() -> bool,
    ) {
        if lane.key.frame_peer().is_some() {
            return self.sleep_frames(lane, driving, &Sleeper { limit, done });
        }
        let Some(mut queued) = driving.current.take() else {
            return;
        };
        match self.sleep(lane, driving, &mut queued.active, limit) {
            Ok(()) => driving.current = Some(queued),
            Err(error) => {
                let error = self.fail_operation(lane, driving, &queued.active, error);
                queued.finish(Err(error));
            }
        }
    }
}
