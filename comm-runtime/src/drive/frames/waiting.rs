//! Waiting in a lane for frames: sleeping, deadlines, and what the peer is told of it.

use std::time::{Duration, Instant};

use comm_core::doorbell::Doorbell;
use comm_core::{Armed, Error, ErrorKind, Result};

use super::{Sleeper, frame_at, is_busy};
use crate::communicator::Core;
use crate::lane::frames::SendOp;
use crate::lane::{BlockedState, Driving, Lane, LaneKey, LaneState};
use crate::operation::BlockedOn;
use crate::operation::frame::{FrameRecv, FrameSend, frame_signature};
use crate::wait::{until, with_doorbell};

impl Core {
    /// Lets the driver sleep until something of the lane moves, `sleeper` has enough, or a while
    /// has passed. Ends the lane if a deadline has.
    pub(crate) fn sleep_frames(
        &self,
        lane: &Lane,
        driving: &mut Driving<'_>,
        sleeper: &Sleeper<'_>,
    ) {
        if let Err(error) = self.try_sleep_frames(lane, driving, sleeper) {
            self.end_frames(lane, driving, error);
        }
    }

    fn try_sleep_frames(
        &self,
        lane: &Lane,
        driving: &mut Driving<'_>,
        sleeper: &Sleeper<'_>,
    ) -> Result<()> {
        let now = Instant::now();
        let deadline = self.watch_frames(lane, driving, now)?;
        let deadline = match (deadline, sleeper.limit) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let Some(timeout) = until(deadline, driving.stall.nap(now)) else {
            return Ok(());
        };
        with_doorbell(self.process.doorbells(), |doorbell| {
            let ticket = doorbell.ticket();
            let _sleeper = self.abort.sleeper(doorbell);
            self.abort.check()?;
            if self.arm_frames(lane, driving, doorbell)? && !(sleeper.done)() {
                doorbell.wait(ticket, Some(timeout));
            }
            self.disarm_frames(lane, driving);
            Ok(())
        })
    }

    /// Arms everything that the lane waits for; whether the thread may sleep.
    fn arm_frames(&self, lane: &Lane, state: &mut LaneState, doorbell: &Doorbell) -> Result<bool> {
        if lane.arm(doorbell) {
            return Ok(false);
        }
        // What is queued behind a frame that waits for its turn does not matter yet.
        let is_free = state.send.current.is_none() && state.recv.current.is_none();
        if lane.poison.check().is_err() || is_free && lane.has_waiting() {
            return Ok(false);
        }
        let mut ready = false;
        for on in waits_for(lane.key, state) {
            let armed = match on {
                BlockedOn::Credit(index) => state.ends.send[index].arm(doorbell)?,
                BlockedOn::Acknowledgement(index) => {
                    state.ends.send[index].arm_acknowledged(doorbell)?
                }
                BlockedOn::Step(index) => state.ends.recv[index].arm(doorbell)?,
                BlockedOn::DirectSend(index) => state.ends.send[index].arm_direct(doorbell)?,
                BlockedOn::DirectRecv(index) => state.ends.recv[index].arm_direct(doorbell)?,
            };
            ready |= armed == Armed::Ready;
        }
        Ok(!ready)
    }

    fn disarm_frames(&self, lane: &Lane, state: &mut LaneState) {
        lane.disarm();
        for end in &mut state.ends.send {
            end.disarm();
        }
        for end in &mut state.ends.recv {
            end.disarm();
        }
    }

    /// Arms a blocked lane for a worker that is about to sleep; whether it may.
    pub(crate) fn arm_frames_for_worker(
        &self,
        lane: &Lane,
        driving: &mut Driving<'_>,
        doorbell: &Doorbell,
    ) -> bool {
        if !is_busy(driving) {
            return false;
        }
        let armed = self
            .watch_frames(lane, driving, Instant::now())
            .and_then(|_| self.arm_frames(lane, driving, doorbell));
        match armed {
            Ok(may_sleep) => may_sleep,
            Err(error) => {
                self.end_frames(lane, driving, error);
                false
            }
        }
    }

    /// Looks at the deadlines of the lane and tells the peer of a frame that stays blocked; the
    /// next deadline.
    fn watch_frames(
        &self,
        lane: &Lane,
        driving: &mut Driving<'_>,
        now: Instant,
    ) -> Result<Option<Instant>> {
        let cancelled = |send: &SendOp| send.source.is_cancelled();
        let is_given_up = driving.send.current.as_ref().is_some_and(cancelled)
            || driving
                .recv
                .current
                .as_ref()
                .is_some_and(|op| op.source.is_cancelled());
        // Nobody waits for what is under way, but perhaps for what comes after it.
        let mut behind = is_given_up.then(|| driving.queued_limit(now)).flatten();
        let state: &mut LaneState = driving;
        let since = state.stall.watch(now);
        let mut next: Option<Instant> = None;
        let sent = state.send.sent.awaited_mut().map(|sent| &mut sent.limit);
        let send = state.send.current.as_mut().map(|op| &mut op.limit);
        let recv = state.recv.current.as_mut().map(|op| &mut op.limit);
        let current = send.into_iter().chain(recv).filter(|_| !is_given_up);
        for limit in sent.chain(current).chain(&mut behind) {
            let Some(deadline) = limit.deadline(now) else {
                continue;
            };
            if deadline <= now {
                let waited = limit.waited(now);
                return Err(self.frame_timeout(lane.key, waited));
            }
            next = Some(next.map_or(deadline, |next| next.min(deadline)));
        }
        let due = state.stall.is_report_due(now);
        if let (true, Some(peer), Some(sequence)) = (due, lane.key.frame_peer(), frame_at(state)) {
            let signature = frame_signature(sequence);
            if self.has_left(peer) {
                let is_connected = !state.ends.recv.is_empty();
                if state.stall.outlasts_goodbye(now, is_connected) {
                    return Err(self.has_left_waiting(&signature, peer));
                }
                return Ok(next);
            }
            state.stall.report(now);
            let blocked = BlockedState {
                signature,
                waits_for: vec![peer],
                since,
                looked: state.stall.looked().unwrap_or(since),
            };
            lane.set_blocked(Some(blocked.clone()));
            self.report_blocked(lane, &blocked)?;
        }
        Ok(next)
    }

    #[cold]
    fn frame_timeout(&self, key: LaneKey, waited: Duration) -> Error {
        let (doing, peer) = match key {
            LaneKey::FrameSend(peer) => ("to receive a frame", peer),
            LaneKey::FrameRecv(peer) => ("to send a frame", peer),
            _ => ("", self.rank),
        };
        Error::new(
            ErrorKind::Timeout,
            format!(
                "rank {} waited {:.1} s for rank {peer} {doing} and gave up; see whether it is \
                 stuck elsewhere, or raise the timeout",
                self.rank,
                waited.as_secs_f64()
            ),
        )
    }
}

/// The edges for which the lane waits, as far as they are connected.
fn waits_for(key: LaneKey, state: &LaneState) -> impl Iterator<Item = BlockedOn> + use<> {
    let has_send = !state.ends.send.is_empty();
    let has_recv = !state.ends.recv.is_empty();
    let (data, ack) = match key {
        LaneKey::FrameSend(_) => {
            let run = state.send.current.as_ref().and_then(|op| op.run.as_ref());
            (
                run.map(FrameSend::blocked_on),
                (!state.send.sent.is_empty() && has_recv).then_some(BlockedOn::Step(0)),
            )
        }
        _ => {
            let run = state.recv.current.as_ref().map(|op| &op.run);
            (
                // Without an edge for acknowledgements no frame is begun, arrived or not.
                run.filter(|_| has_recv && has_send)
                    .map(FrameRecv::blocked_on),
                (!state.recv.acks.is_empty() && has_send).then_some(BlockedOn::Credit(0)),
            )
        }
    };
    data.into_iter().chain(ack)
}
