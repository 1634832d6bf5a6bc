//! The driver's role, which is the only access to a lane's state.

use std::ops::{Deref, DerefMut};
use std::time::Instant;

use super::frames::Limit;
use super::{Lane, LaneState, Queued, Submitted};

/// The driver's role; given up when dropped.
pub(crate) struct Driving<'a> {
    pub(super) lane: &'a Lane,
}

impl Driving<'_> {
    /// The queued operation to be driven now.
    pub(crate) fn current(&mut self) -> Option<&mut Queued> {
        if self.current.is_none() {
            // A lane holds operations or frames, never both.
            self.current = match self.next() {
                Some(Submitted::Operation(queued)) => Some(queued),
                _ => None,
            };
            if self.current.is_none() {
                self.settle(false);
            }
        }
        // Through the field, so that the borrow is of the state alone.
        let state: &mut LaneState = self;
        state.current.as_mut()
    }

    /// Takes what was queued first.
    pub(crate) fn next(&self) -> Option<Submitted> {
        self.lane.roster.next()
    }

    /// The deadline of the first queued request for a frame that was not cancelled; the first call
    /// starts its time.
    pub(crate) fn queued_limit(&self, now: Instant) -> Option<Limit> {
        self.lane.roster.find(|submitted| {
            let limit = match submitted {
                Submitted::Send(request) if !request.ticket.is_cancelled() => &mut request.limit,
                Submitted::Recv(request) if !request.ticket.is_cancelled() => &mut request.limit,
                _ => return None,
            };
            limit.deadline(now);
            Some(*limit)
        })
    }

    /// Says whether something is under way that needs a driver beside what is queued; whether the
    /// lane is idle now.
    pub(crate) fn settle(&self, is_busy: bool) -> bool {
        self.lane.roster.settle(is_busy)
    }

    /// Gives the role up; whether something is queued, which somebody must drive then.
    #[inline]
    pub(crate) fn release(self) -> bool {
        let lane = self.lane;
        std::mem::forget(self);
        lane.roster.release()
    }
}

impl Deref for Driving<'_> {
    type Target = LaneState;

    #[inline]
    fn deref(&self) -> &LaneState {
        // SAFETY: this guard is the only one of its lane, so nobody else accesses the state.
        unsafe { &*self.lane.state.get() }
    }
}

impl DerefMut for Driving<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut LaneState {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { &mut *self.lane.state.get() }
    }
}

impl Drop for Driving<'_> {
    #[inline]
    fn drop(&mut self) {
        // What is queued is somebody else's business: see `release`.
        self.lane.roster.release();
    }
}
