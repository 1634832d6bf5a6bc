//! Ends that were dropped before the network had let go of their memory.

use std::fmt::Debug;
use std::time::Instant;

use crate::engine::Shared;

/// An end that can be brought to rest.
pub(crate) trait Rest: Debug + Send {
    /// Brings it nearer to rest, without blocking; whether the network touches its memory no more.
    /// What still has to be sent goes on until the time has `expired`, and is withdrawn then.
    fn rest(&mut self, engine: &Shared, now: Instant, expired: bool) -> bool;

    /// Closes the connection and leaks the memory.
    fn quarantine(self: Box<Self>);
}

/// A dropped end, and how long it may take.
#[derive(Debug)]
pub(crate) struct Closing {
    end: Box<dyn Rest>,
    deadline: Instant,
}

impl Closing {
    pub(crate) fn new(end: Box<dyn Rest>, deadline: Instant) -> Self {
        Self { end, deadline }
    }

    /// Brings the end nearer to rest, without blocking; `None` once it is released or, after the
    /// deadline, quarantined.
    pub(crate) fn advance(mut self, engine: &Shared, now: Instant) -> Option<Self> {
        let expired = now >= self.deadline;
        match (self.end.rest(engine, now, expired), expired) {
            (true, _) => None,
            (false, false) => Some(self),
            (false, true) => {
                self.end.quarantine();
                None
            }
        }
    }
}
