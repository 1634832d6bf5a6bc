//! Ends that were dropped before the network had let go of their memory.

use std::time::Instant;

use comm_core::net::Quiesce;

use crate::engine::Shared;
use crate::recv::RecvState;
use crate::send::SendState;

/// A dropped end, and how long it may take.
#[derive(Debug)]
pub(crate) struct Closing {
    end: End,
    deadline: Instant,
}

#[derive(Debug)]
enum End {
    Send(SendState),
    Recv(RecvState),
}

impl Closing {
    pub(crate) const fn send(end: SendState, deadline: Instant) -> Self {
        Self {
            end: End::Send(end),
            deadline,
        }
    }

    pub(crate) const fn recv(end: RecvState, deadline: Instant) -> Self {
        Self {
            end: End::Recv(end),
            deadline,
        }
    }

    /// Brings the end nearer to rest, without blocking; `None` once it is released or, after the
    /// deadline, quarantined.
    pub(crate) fn advance(mut self, engine: &Shared, now: Instant) -> Option<Self> {
        let expired = now >= self.deadline;
        let at_rest = match &mut self.end {
            End::Send(end) => {
                end.advance(engine);
                if !end.is_drained() && !end.has_failed() && !expired {
                    return Some(self);
                }
                end.is_drained() || end.quiesce(now) == Quiesce::Quiesced
            }
            End::Recv(end) => end.quiesce(now) == Quiesce::Quiesced,
        };
        match (at_rest, expired) {
            (true, _) => None,
            (false, false) => Some(self),
            (false, true) => {
                match self.end {
                    End::Send(end) => end.quarantine(),
                    End::Recv(end) => end.quarantine(),
                }
                None
            }
        }
    }
}
