//! The receiving side: frames are received in order and acknowledged.

use comm_core::{DType, Error, ErrorKind, Rank, Result, TensorMut};

use super::{BUDGET_BYTES, Guest};
use crate::communicator::Core;
use crate::communicator::frames::{Arrived, FrameHead};
use crate::lane::frames::{RecvLane, RecvOp, Source};
use crate::lane::{Driving, Lane, LaneState, Submitted};
use crate::operation::frame::ack::Ack;
use crate::operation::frame::{FrameRecv, Received, frame_signature};
use crate::operation::{Ends, Progress};

impl Core {
    pub(super) fn step_receives(
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

pub(super) fn end_receive(ended: &mut Option<Result<Arrived>>, op: RecvOp, error: &Error) {
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
pub(crate) fn opened_twice() -> Error {
    Error::new(
        ErrorKind::Internal,
        "the destinations of a frame were asked for twice",
    )
}
