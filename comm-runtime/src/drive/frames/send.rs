//! The sending side: frames leave in order, acknowledgements come back.

use comm_core::{Error, Rank, Result};

use super::{BUDGET_BYTES, Guest};
use crate::communicator::Core;
use crate::lane::frames::{SendBody, SendLane, SendOp, Source};
use crate::lane::{Driving, Lane, LaneState, Submitted};
use crate::operation::frame::ack::{Ack, Completion, Sent};
use crate::operation::frame::{FrameSend, frame_signature};
use crate::operation::{Ends, Progress};

impl Core {
    pub(super) fn step_sends(
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
}

/// Takes the acknowledgements that have come; whether there were any.
pub(super) fn take_acks(lane: &mut SendLane, ends: &mut Ends) -> Result<bool> {
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

pub(super) fn complete_send(
    ended: &mut Option<Result<()>>,
    completion: Completion,
    result: Result<()>,
) {
    match completion {
        Completion::Nothing => {}
        Completion::Handle(complete) => complete(result),
        Completion::Driver => *ended = Some(result),
    }
}

pub(super) fn end_send(ended: &mut Option<Result<()>>, op: SendOp, error: &Error) {
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
