//! What a lane of frames keeps beside its queue.
//!
//! # Contract
//!
//! * A request that was not begun can be cancelled, from any thread: its [`Ticket`] is given to
//!   whoever comes first, the driver that begins it or the caller that cancels it. A cancelled
//!   request keeps its place in the order; the driver sends or receives an empty one for it.
//! * Only the driver touches [`SendLane`] and [`RecvLane`].

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use comm_core::{Result, TensorMut};

use crate::communicator::frames::{Arrived, Frame, FrameHead};
use crate::operation::frame::ack::{PendingAcks, Unacknowledged};
use crate::operation::frame::{FrameRecv, FrameSend};

/// What a request holds until it begins, for whoever comes first.
pub(crate) struct Ticket<B> {
    phase: Mutex<Phase<B>>,
}

enum Phase<B> {
    /// The body is still to be filled in.
    Empty,
    Waiting(B),
    Begun,
    Cancelled,
}

impl<B> Ticket<B> {
    /// A ticket without a body, which [`Ticket::fill`] must give it before anybody looks.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            phase: Mutex::new(Phase::Empty),
        })
    }

    pub(crate) fn fill(&self, body: B) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = Phase::Waiting(body);
    }

    /// The body, for the driver; `None` if it was cancelled.
    pub(crate) fn begin(&self) -> Option<B> {
        self.replace(Phase::Begun)
    }

    /// The body, for a caller that cancels; `None` if it has begun.
    pub(crate) fn cancel(&self) -> Option<B> {
        self.replace(Phase::Cancelled)
    }

    fn replace(&self, next: Phase<B>) -> Option<B> {
        let mut phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*phase, Phase::Waiting(_)) {
            return None;
        }
        match std::mem::replace(&mut *phase, next) {
            Phase::Waiting(body) => Some(body),
            Phase::Empty | Phase::Begun | Phase::Cancelled => None,
        }
    }

    /// Whether it was cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        let phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(*phase, Phase::Cancelled)
    }
}

impl<B> fmt::Debug for Ticket<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            match *self.phase.lock().unwrap_or_else(PoisonError::into_inner) {
                Phase::Empty => "Empty",
                Phase::Waiting(_) => "Waiting",
                Phase::Begun => "Begun",
                Phase::Cancelled => "Cancelled",
            },
        )
    }
}

/// How long an operation may take, from the first look at the clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    timeout: Option<Duration>,
    first_look: Option<Instant>,
}

impl Limit {
    pub(crate) const fn new(timeout: Option<Duration>) -> Self {
        Self {
            timeout,
            first_look: None,
        }
    }

    /// When the time is up; the first call starts it.
    pub(crate) fn deadline(&mut self, now: Instant) -> Option<Instant> {
        let first_look = *self.first_look.get_or_insert(now);
        first_look.checked_add(self.timeout?)
    }

    /// How long the operation has waited at `now`.
    pub(crate) fn waited(&self, now: Instant) -> Duration {
        self.first_look
            .map_or(Duration::ZERO, |first| now.saturating_duration_since(first))
    }
}

/// A frame to be sent.
pub(crate) struct SendBody {
    pub(crate) frame: Frame,
    pub(crate) complete: Box<dyn FnOnce(Result<()>) + Send>,
}

impl fmt::Debug for SendBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.frame.fmt(f)
    }
}

#[derive(Debug)]
pub(crate) struct SendRequest {
    pub(crate) ticket: Arc<Ticket<SendBody>>,
    pub(crate) bytes: u64,
    pub(crate) is_eager: bool,
    pub(crate) limit: Limit,
}

/// What finds the destinations of a frame.
pub(crate) type Open = dyn FnOnce(&FrameHead<'_>) -> Result<Vec<TensorMut>> + Send;

/// Where a frame's destinations come from, and where it goes.
pub(crate) struct RecvBody {
    /// Taken when it is called.
    pub(crate) open: Option<Box<Open>>,
    pub(crate) complete: Box<dyn FnOnce(Result<Arrived>) + Send>,
}

impl fmt::Debug for RecvBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvBody").finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(crate) struct RecvRequest {
    pub(crate) ticket: Arc<Ticket<RecvBody>>,
    pub(crate) limit: Limit,
}

/// Whose frame is under way.
#[derive(Debug)]
pub(crate) enum Source<B> {
    /// A queued request that has not begun.
    Waiting(Arc<Ticket<B>>),
    /// A queued request that has begun.
    Begun(B),
    /// One that was cancelled before it began.
    Cancelled,
    /// The call of the driver itself, which passes its frame or destinations to every step.
    Driver,
}

impl<B> Source<B> {
    /// Whether it is the frame of the driver's own call.
    pub(crate) const fn is_driver(&self) -> bool {
        matches!(self, Self::Driver)
    }

    /// Whether nobody waits for it any more.
    pub(crate) fn is_cancelled(&self) -> bool {
        match self {
            Self::Cancelled => true,
            Self::Waiting(ticket) => ticket.is_cancelled(),
            Self::Begun(_) | Self::Driver => false,
        }
    }
}

/// The send under way.
#[derive(Debug)]
pub(crate) struct SendOp {
    // Declared before the source, whose memory it may have offered to the peer.
    pub(crate) run: Option<FrameSend>,
    pub(crate) source: Source<SendBody>,
    pub(crate) bytes: u64,
    pub(crate) is_eager: bool,
    pub(crate) limit: Limit,
}

impl From<SendRequest> for SendOp {
    fn from(request: SendRequest) -> Self {
        Self {
            run: None,
            source: Source::Waiting(request.ticket),
            bytes: request.bytes,
            is_eager: request.is_eager,
            limit: request.limit,
        }
    }
}

/// The receive under way.
#[derive(Debug)]
pub(crate) struct RecvOp {
    pub(crate) run: FrameRecv,
    pub(crate) source: Source<RecvBody>,
    pub(crate) limit: Limit,
}

/// The sending side of a lane.
#[derive(Debug, Default)]
pub(crate) struct SendLane {
    pub(crate) current: Option<SendOp>,
    pub(crate) sent: Unacknowledged<Limit>,
    /// What became of the driver's own send.
    pub(crate) ended: Option<Result<()>>,
}

/// The receiving side of a lane.
#[derive(Debug, Default)]
pub(crate) struct RecvLane {
    pub(crate) current: Option<RecvOp>,
    pub(crate) acks: PendingAcks,
    /// What became of the driver's own receive.
    pub(crate) ended: Option<Result<Arrived>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_begun_or_cancelled_and_never_both() {
        let begun = Ticket::new();
        begun.fill(1);
        assert_eq!(begun.begin(), Some(1));
        assert_eq!(begun.cancel(), None);
        assert!(!begun.is_cancelled());
        let cancelled = Ticket::new();
        cancelled.fill(2);
        assert_eq!(cancelled.cancel(), Some(2));
        assert_eq!(cancelled.begin(), None);
        assert!(cancelled.is_cancelled());
    }

    #[test]
    fn the_time_of_an_operation_starts_with_the_first_look() {
        let now = Instant::now();
        let mut limit = Limit::new(Some(Duration::from_secs(3)));
        assert_eq!(limit.waited(now), Duration::ZERO);
        assert_eq!(limit.deadline(now), Some(now + Duration::from_secs(3)));
        let later = now + Duration::from_secs(2);
        assert_eq!(limit.deadline(later), Some(now + Duration::from_secs(3)));
        assert_eq!(limit.waited(later), Duration::from_secs(2));
        assert_eq!(Limit::new(None).deadline(now), None);
    }
}
