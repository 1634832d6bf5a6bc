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

use std::time::{Duration, Instant};

use comm_core::doorbell::Doorbell;
use comm_core::{Armed, DType, Error, ErrorKind, Rank, Result, TensorMut};

use super::{BUDGET_BYTES, FIRST_SLEEP, Queue, later_sleep};
use crate::communicator::Core;
use crate::communicator::frames::{Arrived, FrameHead, FrameRef};
use crate::lane::frames::{RecvLane, RecvOp, SendBody, SendLane, SendOp, Source};
use crate::lane::{BlockedState, Driving, Lane, LaneKey, LaneState, Mail, Submitted};
use crate::operation::frame::ack::{Ack, Completion, Sent};
use crate::operation::frame::{FrameRecv, FrameSend, Received, frame_signature};
use crate::operation::{BlockedOn, Ends, Progress};
use crate::wait::{until, with_doorbell};

/// How long a peer that has said goodbye may take to send what it still had to: its workers go on
/// until that is done, and closing the edges tells that it was the last.
const LEAVING: Duration = Duration::from_secs(1);

/// The frame of the driver's own call.
pub(crate) enum Guest<'a> {
    Nobody,
    Send(FrameRef<'a>),
    Recv(&'a mut dyn FnMut(&FrameHead<'_>) -> Result<Vec<TensorMut>>),
}

/// Who drives, as far as sleeping is concerned.
pub(crate) struct Sleeper<'a> {
    /// When to wake up at the latest.
    pub(crate) limit: Option<Instant>,
    /// Whether there is nothing left to wait for.
    pub(crate) done: &'a dyn Fn() -> bool,
}

impl Core {
    /// Drives a lane for frames once.
    pub(crate) fn drive_frames(
        &self,
        lane: &Lane,
        driving: &mut Driving<'_>,
        guest: &mut Guest<'_>,
    ) -> Queue {
        match self.step_frames(lane, driving, guest) {
            Ok(true) => {
                if driving.stall.since.is_some() {
                    driving.stall = Default::default();
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

    fn step_sends(
        &self,
        lane: &Lane,
        peer: Rank,
        driving: &mut Driving<'_>,
        guest: &Guest<'_>,
    ) -> Result<bool> {
        let mut moved = {
            let state: &mut LaneState = driving;
            take_acks(&mut state.send, &mut state.ends)?
        };
        loop {
            if driving.send.current.is_none() {
                let Some(Submitted::Send(request)) = driving.next() else {
                    return Ok(moved);
                };
                driving.send.current = Some(request.into());
            }
            let state: &mut LaneState = driving;
            let Some(op) = &mut state.send.current else {
                return Ok(moved);
            };
            if op.run.is_none() {
                if state.ends.send.is_empty() {
                    self.request_edge(lane, peer, state);
                    return Ok(moved);
                }
                let waiting = state.send.sent.bytes();
                if waiting > 0 && waiting.saturating_add(op.bytes) > self.frame_window_bytes {
                    return Ok(moved);
                }
                let sequence = state.next_sequence;
                state.next_sequence += 1;
                lane.history.record(&frame_signature(sequence));
                self.begin_send(op, sequence, guest);
            }
            let frame = match (&op.source, guest) {
                (Source::Begun(body), _) => Some(body.frame.as_ref()),
                (Source::Driver, Guest::Send(frame)) => Some(*frame),
                _ => None,
            };
            let Some(run) = &mut op.run else {
                return Ok(moved);
            };
            match run.advance(frame, &mut state.ends, BUDGET_BYTES)? {
                Progress::Blocked => return Ok(moved),
                Progress::Moved => return Ok(true),
                Progress::Done => moved = true,
            }
            if let Some(op) = state.send.current.take() {
                transmitted(&mut state.send, op);
            }
        }
    }

    /// Gives a send its place in the order.
    fn begin_send(&self, op: &mut SendOp, sequence: u64, guest: &Guest<'_>) {
        let step_bytes = self.planner.config().step_bytes;
        let source = std::mem::replace(&mut op.source, Source::Cancelled);
        op.source = match source {
            Source::Waiting(ticket) => match ticket.begin() {
                Some(body) => Source::Begun(body),
                None => {
                    op.bytes = 0;
                    Source::Cancelled
                }
            },
            other => other,
        };
        op.run = Some(match (&op.source, guest) {
            (Source::Begun(body), _) => {
                FrameSend::new(sequence, Some(body.frame.as_ref()), step_bytes)
            }
            (Source::Driver, Guest::Send(frame)) => {
                FrameSend::new(sequence, Some(*frame), step_bytes)
            }
            _ => FrameSend::new(sequence, None, step_bytes),
        });
    }

    fn step_receives(
        &self,
        lane: &Lane,
        peer: Rank,
        driving: &mut Driving<'_>,
        guest: &mut Guest<'_>,
    ) -> Result<bool> {
        self.request_edge(lane, peer, driving);
        let mut moved = {
            let state: &mut LaneState = driving;
            state.recv.acks.flush(state.ends.send.first_mut())
        };
        loop {
            if driving.recv.current.is_none() {
                let Some(Submitted::Recv(request)) = driving.next() else {
                    return Ok(moved);
                };
                let run = self.new_receive(lane, driving);
                driving.recv.current = Some(RecvOp {
                    run,
                    source: Source::Waiting(request.ticket),
                    limit: request.limit,
                });
            }
            let state: &mut LaneState = driving;
            let Some(op) = &mut state.recv.current else {
                return Ok(moved);
            };
            // Not before it can be acknowledged: this rank may leave as soon as it has the frame.
            if state.ends.recv.is_empty() || state.ends.send.is_empty() {
                return Ok(moved);
            }
            if let Source::Waiting(ticket) = &op.source {
                if !op.run.has_arrived(&mut state.ends)? {
                    return Ok(moved);
                }
                op.source = match ticket.begin() {
                    Some(body) => Source::Begun(body),
                    None => Source::Cancelled,
                };
            }
            let progress = advance_receive(op, &mut state.ends, guest)?;
            match progress {
                Progress::Blocked => return Ok(moved),
                Progress::Moved => return Ok(true),
                Progress::Done => moved = true,
            }
            if let Some(op) = state.recv.current.take() {
                received(&mut state.recv, &mut state.ends, op);
            }
        }
    }

    /// The receive of the next frame.
    pub(crate) fn new_receive(&self, lane: &Lane, state: &mut LaneState) -> FrameRecv {
        let sequence = state.next_sequence;
        state.next_sequence += 1;
        lane.history.record(&frame_signature(sequence));
        FrameRecv::new(sequence, self.planner.config().step_bytes)
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
        let first = driving.stall.since.is_none();
        let deadline = self.watch_frames(lane, driving, now, true)?;
        let deadline = match (deadline, sleeper.limit) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let stalled = driving
            .stall
            .since
            .map_or(Duration::ZERO, |since| now - since);
        let nap = if first {
            FIRST_SLEEP
        } else {
            later_sleep(stalled)
        };
        let Some(timeout) = until(deadline, nap) else {
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
            .watch_frames(lane, driving, Instant::now(), false)
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
        holds_user: bool,
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
        let since = *state.stall.since.get_or_insert(now);
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
        let due = match state.stall.reported {
            None => now - since >= FIRST_SLEEP,
            Some(reported) => now - reported >= later_sleep(now - since),
        };
        if let (true, Some(peer), Some(sequence)) = (due, lane.key.frame_peer(), frame_at(state)) {
            if self.has_left(peer) && !state.ends.recv.is_empty() && now - since < LEAVING {
                return Ok(next);
            }
            state.stall.reported = Some(now);
            let blocked = BlockedState {
                signature: frame_signature(sequence),
                waits_for: vec![peer],
                since,
                holds_user,
            };
            lane.set_blocked(Some(blocked.clone()));
            self.report_blocked(lane.key, &blocked)?;
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
                run.filter(|_| has_recv).map(FrameRecv::blocked_on),
                (!state.recv.acks.is_empty() && has_send).then_some(BlockedOn::Credit(0)),
            )
        }
    };
    data.into_iter().chain(ack)
}

/// Takes the acknowledgements that have come; whether there were any.
fn take_acks(lane: &mut SendLane, ends: &mut Ends) -> Result<bool> {
    let mut moved = false;
    while !lane.sent.is_empty() {
        let Some(end) = ends.recv.first_mut() else {
            break;
        };
        let Some(ack) = Ack::try_receive(end)? else {
            break;
        };
        moved = true;
        let ended = &mut lane.ended;
        lane.sent.take(ack, |sent, result| {
            complete_send(ended, sent.completion, result);
        })?;
    }
    Ok(moved)
}

/// A frame has left: whoever is content with that is told, others wait for the acknowledgement.
fn transmitted(lane: &mut SendLane, op: SendOp) {
    let Some(run) = op.run else { return };
    let completion = match op.source {
        Source::Begun(SendBody { frame, complete }) => {
            drop(frame);
            if op.is_eager {
                complete(Ok(()));
                Completion::Nothing
            } else {
                Completion::Handle(complete)
            }
        }
        Source::Driver if op.is_eager => {
            lane.ended = Some(Ok(()));
            Completion::Nothing
        }
        Source::Driver => Completion::Driver,
        Source::Waiting(_) | Source::Cancelled => Completion::Nothing,
    };
    lane.sent.push(Sent {
        sequence: run.sequence(),
        bytes: op.bytes,
        limit: op.limit,
        completion,
    });
}

fn complete_send(ended: &mut Option<Result<()>>, completion: Completion, result: Result<()>) {
    match completion {
        Completion::Nothing => {}
        Completion::Handle(complete) => complete(result),
        Completion::Driver => *ended = Some(result),
    }
}

fn end_send(ended: &mut Option<Result<()>>, op: SendOp, error: &Error) {
    // First of all takes back what it offered to the peer.
    drop(op.run);
    match op.source {
        Source::Waiting(ticket) => {
            if let Some(body) = ticket.begin() {
                (body.complete)(Err(error.clone()));
            }
        }
        Source::Begun(SendBody { frame, complete }) => {
            drop(frame);
            complete(Err(error.clone()));
        }
        Source::Driver => *ended = Some(Err(error.clone())),
        Source::Cancelled => {}
    }
}

fn advance_receive(op: &mut RecvOp, ends: &mut Ends, guest: &mut Guest<'_>) -> Result<Progress> {
    match (&mut op.source, guest) {
        (Source::Begun(body), _) => {
            let mut open = |head: &FrameHead<'_>| match body.open.take() {
                Some(open) => open(head),
                None => Err(opened_twice()),
            };
            op.run.advance(ends, BUDGET_BYTES, &mut open)
        }
        (Source::Driver, Guest::Recv(open)) => op.run.advance(ends, BUDGET_BYTES, *open),
        _ => op.run.advance(ends, BUDGET_BYTES, &mut sink),
    }
}

/// Destinations of a frame that nobody wants.
fn sink(head: &FrameHead<'_>) -> Result<Vec<TensorMut>> {
    let zeros = |bytes: &u64| TensorMut::zeros(DType::U8, &[*bytes as usize]);
    head.segment_bytes.iter().map(zeros).collect()
}

/// A frame was received: it is acknowledged, then its receiver is told.
fn received(lane: &mut RecvLane, ends: &mut Ends, op: RecvOp) {
    let sequence = op.run.sequence();
    let received = op.run.finish();
    let ack = match (&op.source, &received) {
        (Source::Cancelled, Received::Whole(_)) => Ack::Cancelled(sequence),
        _ => Ack::ReceivedThrough(sequence),
    };
    lane.acks.push(ack);
    lane.acks.flush(ends.send.first_mut());
    let result = match received {
        Received::Whole(arrived) => Ok(arrived),
        Received::Cancelled => Err(cancelled_by_sender(sequence)),
    };
    match op.source {
        Source::Begun(body) => (body.complete)(result),
        Source::Driver => lane.ended = Some(result),
        Source::Waiting(_) | Source::Cancelled => {}
    }
}

fn end_receive(ended: &mut Option<Result<Arrived>>, op: RecvOp, error: &Error) {
    drop(op.run);
    match op.source {
        Source::Waiting(ticket) => {
            if let Some(body) = ticket.begin() {
                (body.complete)(Err(error.clone()));
            }
        }
        Source::Begun(body) => (body.complete)(Err(error.clone())),
        Source::Driver => *ended = Some(Err(error.clone())),
        Source::Cancelled => {}
    }
}

#[cold]
fn cancelled_by_sender(sequence: u64) -> Error {
    Error::new(
        ErrorKind::CancelledByPeer,
        "the sending rank cancelled the frame that this receive met; the next receive gets the \
         next frame",
    )
    .with("sequence", sequence)
}

#[cold]
fn opened_twice() -> Error {
    Error::new(
        ErrorKind::Internal,
        "the destinations of a frame were asked for twice",
    )
}

#[cold]
fn no_cause() -> Error {
    Error::new(ErrorKind::Internal, "a lane failed without a cause")
}
