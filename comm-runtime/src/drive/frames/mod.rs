//! Driving the lanes for frames.
//!
//! # Contract
//!
//! * A sending lane transmits its frames in order, each while earlier ones still wait for their
//!   acknowledgement, as far as the window allows ([`Core::frame_window_bytes`]). A receiving lane
//!   receives in order, and acknowledges.
//! * An error in a lane ends that lane on both ranks and nothing else ([`Poison`]); the failure of
//!   the communicator ends all of them.
//! * A frame is begun when its lane's order has come to it and, for a receive, its first step has
//!   arrived; until then it can be cancelled.
//! * The driver can have a frame of its own under way that was never queued: its [`Guest`].
//!
//! [`Poison`]: crate::lane::poison::Poison

mod recv;
mod send;
mod waiting;

use std::time::Instant;

use comm_core::{Error, ErrorKind, Rank, Result, TensorMut};

use super::{BUDGET_BYTES, Queue};
use crate::communicator::Core;
use crate::communicator::frames::{FrameHead, FrameRef};
use crate::lane::{Driving, Lane, LaneKey, LaneState, Mail, Submitted};
use crate::operation::frame::FrameSend;
use crate::wait::{Pause, Wait};
use recv::end_receive;
pub(crate) use recv::opened_twice;
use send::{complete_send, end_send, take_acks};

/// The frame of the driver's own call.
pub(crate) enum Guest<'a> {
    Nobody,
    Send(FrameRef<'a>),
    Recv(&'a mut dyn FnMut(&FrameHead<'_>) -> Result<Vec<TensorMut>>),
}

/// The driver's role while a guest's frame is under way.
///
/// The frame is not left in the lane when the guest's call ends, not even by a panic: what it borrows
/// may be gone afterwards.
struct Visit<'a> {
    core: &'a Core,
    lane: &'a Lane,
    driving: Driving<'a>,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let send = self
            .driving
            .send
            .current
            .take_if(|op| op.source.is_driver());
        let recv = self
            .driving
            .recv
            .current
            .take_if(|op| op.source.is_driver());
        if send.is_some() || recv.is_some() {
            let error = Error::new(
                ErrorKind::Internal,
                format!("rank {} panicked in the middle of a frame", self.core.rank),
            );
            self.core.poison_lane(self.lane, error);
        }
    }
}

/// Who drives, as far as sleeping is concerned.
pub(crate) struct Sleeper<'a> {
    /// When to wake up at the latest.
    pub(crate) limit: Option<Instant>,
    /// Whether there is nothing left to wait for.
    pub(crate) done: &'a dyn Fn() -> bool,
}

impl Core {
    /// Carries the driver's own frame through, which is the lane's current one.
    pub(crate) fn drive_guest<T>(
        &self,
        lane: &Lane,
        driving: Driving<'_>,
        guest: &mut Guest<'_>,
        mut ended: impl FnMut(&mut LaneState) -> Option<Result<T>>,
    ) -> Result<T> {
        let mut visit = Visit {
            core: self,
            lane,
            driving,
        };
        let driving = &mut visit.driving;
        let mut wait = Wait::new(self.policy);
        let mut hold = None;
        let result = loop {
            let queue = self.drive_frames(lane, driving, guest);
            if let Some(result) = ended(driving) {
                break result;
            }
            match queue {
                Queue::Moved | Queue::Empty => wait.moved(),
                Queue::Blocked => {
                    if wait.pause() == Pause::Sleep {
                        hold.get_or_insert_with(|| lane.held.hold());
                        let sleeper = Sleeper {
                            limit: None,
                            done: &|| false,
                        };
                        self.sleep_frames(lane, driving, &sleeper);
                    }
                }
            }
        };
        // Acknowledgements for which there was no room are the workers' business.
        if lane.has_queued() || is_busy(driving) {
            driving.settle(is_busy(driving));
        }
        drop(visit);
        if lane.has_queued() {
            self.kick_worker(lane.key);
        }
        result
    }

    /// Drives a lane for frames once.
    pub(crate) fn drive_frames(
        &self,
        lane: &Lane,
        driving: &mut Driving<'_>,
        guest: &mut Guest<'_>,
    ) -> Queue {
        let _inside = lane.enter();
        match self.step_frames(lane, driving, guest) {
            Ok(true) => {
                if matches!(guest, Guest::Nobody) {
                    self.acted.note();
                }
                if driving.stall.end() {
                    lane.set_blocked(None);
                }
                if lane.has_queued() && driving.settle(is_busy(driving)) {
                    return Queue::Empty;
                }
                Queue::Moved
            }
            Ok(false) if is_busy(driving) || lane.has_waiting() => Queue::Blocked,
            Ok(false) => {
                driving.settle(false);
                Queue::Empty
            }
            Err(error) => {
                self.end_frames(lane, driving, error);
                Queue::Empty
            }
        }
    }

    /// Takes the lane as far as it goes without blocking; whether anything moved.
    fn step_frames(
        &self,
        lane: &Lane,
        driving: &mut Driving<'_>,
        guest: &mut Guest<'_>,
    ) -> Result<bool> {
        self.abort.check()?;
        lane.poison.check()?;
        for mail in lane.take_mail() {
            match mail {
                Mail::Send { peer, channel, end } => {
                    driving.requested.remove(&(peer, channel));
                    let end = end.map_err(|error| self.not_connected(peer, error))?;
                    driving.ends.add_send(channel, end);
                }
                Mail::Recv { channel, end } => driving.ends.add_recv(channel, end),
            }
        }
        match lane.key {
            LaneKey::FrameSend(peer) => self.step_sends(lane, peer, driving, guest),
            LaneKey::FrameRecv(peer) => self.step_receives(lane, peer, driving, guest),
            _ => Ok(false),
        }
    }

    #[cold]
    fn not_connected(&self, peer: Rank, error: Error) -> Error {
        if !self.has_left(peer) {
            return error;
        }
        Error::new(
            ErrorKind::PeerDied,
            format!("rank {peer} has left the communicator; let all ranks meet before they end"),
        )
        .with_source(error)
    }

    /// Asks for the edge to which the lane writes, unless there is one or it was asked for.
    fn request_edge(&self, lane: &Lane, peer: Rank, state: &mut LaneState) {
        if state.ends.send.is_empty() && state.requested.insert((peer, 0)) {
            self.spawn_connect(lane.key, peer, 0);
        }
    }

    /// Ends a lane for frames on both ranks, and everything that is under way or queued on it.
    #[cold]
    fn end_frames(&self, lane: &Lane, driving: &mut Driving<'_>, error: Error) {
        lane.set_blocked(None);
        let error = match self.abort.cause() {
            Some(_) => self.abort.error(),
            None => {
                self.poison_lane(lane, self.name_frame(lane.key, driving, error));
                lane.poison.note_reported();
                lane.poison.check().err().unwrap_or_else(no_cause)
            }
        };
        let state: &mut LaneState = driving;
        // What was acknowledged before the failure was received.
        let _ = take_acks(&mut state.send, &mut state.ends);
        if let Some(op) = state.send.current.take() {
            end_send(&mut state.send.ended, op, &error);
        }
        while let Some(sent) = state.send.sent.pop() {
            complete_send(&mut state.send.ended, sent.completion, Err(error.clone()));
        }
        if let Some(op) = state.recv.current.take() {
            end_receive(&mut state.recv.ended, op, &error);
        }
        state.recv.acks = Default::default();
        while let Some(submitted) = driving.next() {
            match submitted {
                Submitted::Send(request) => {
                    if let Some(body) = request.ticket.begin() {
                        (body.complete)(Err(error.clone()));
                    }
                }
                Submitted::Recv(request) => {
                    if let Some(body) = request.ticket.begin() {
                        (body.complete)(Err(error.clone()));
                    }
                }
                Submitted::Operation(queued) => queued.finish(Err(error.clone())),
            }
        }
        driving.settle(false);
    }

    /// Names both ranks and the frame of an error.
    #[cold]
    fn name_frame(&self, key: LaneKey, state: &LaneState, error: Error) -> Error {
        if self
            .lane(key)
            .is_some_and(|lane| lane.poison.check().is_err())
        {
            return error;
        }
        let error = error.with("rank", self.rank).with("operation", key);
        match frame_at(state) {
            Some(sequence) => error.with("sequence", sequence),
            None => error,
        }
    }
}

/// Whether something is under way on the lane that needs a driver.
pub(crate) fn is_busy(state: &LaneState) -> bool {
    state.send.current.is_some()
        || state.send.sent.is_awaited()
        || state.recv.current.is_some()
        || !state.recv.acks.is_empty()
}

/// The frame that the lane waits for.
fn frame_at(state: &LaneState) -> Option<u64> {
    let sent = state.send.sent.oldest_awaited().map(|sent| sent.sequence);
    let send = || {
        let op = state.send.current.as_ref()?;
        Some(
            op.run
                .as_ref()
                .map_or(state.next_sequence, FrameSend::sequence),
        )
    };
    let recv = || Some(state.recv.current.as_ref()?.run.sequence());
    sent.or_else(send).or_else(recv)
}

#[cold]
fn no_cause() -> Error {
    Error::new(ErrorKind::Internal, "a lane failed without a cause")
}
