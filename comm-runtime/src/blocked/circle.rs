//! Ranks that wait for each other in a circle.
//!
//! # Contract
//!
//! * A circle in which every rank was only ever used by one thread, and that thread waits in it without
//!   a time limit, cannot resolve itself: when it
//!   [has stood](has_stood) for [`CIRCLE_MUST_STAND`] the communicator fails and the error lists the
//!   circle. That a rank is said to be blocked is not enough: what it waits for may have come, and its
//!   thread not have run since.
//! * If all of its ranks wait in frames, the lanes that end here fail and nothing else.
//! * If several threads use a communicator, another one may still send what is waited for: the circle is
//!   then logged once as a warning, and the deadline decides.
//! * Ranks that are all in the same collective, or at the two ends of a message, wait for each other's edges
//!   and turns and for what is under way, not for another call: that is no circle.

use std::time::Duration;

use comm_core::{Error, ErrorKind};

use super::{Link, in_ms};
use crate::communicator::Core;
use crate::lane::{Lane, LaneKey};

/// How long a circle must stand, and all its ranks look at their edges afterwards, before it counts as a
/// deadlock. What is under way between two hosts has arrived by then.
const CIRCLE_MUST_STAND: Duration = Duration::from_millis(400);

/// Whether all these ranks were blocked for [`CIRCLE_MUST_STAND`] before any of them looked at its edges
/// for the last time, and found nothing: then what they wait for was not under way either. The links were
/// made within the last `elapsed_ms`.
fn has_stood(chain: &[Link], elapsed_ms: u64) -> bool {
    // By whatever clock: the last one was blocked this long ago at least, the first look began that
    // long ago at most.
    let blocked_ms = chain.iter().map(|link| link.blocked_ms).min();
    let looked_ms = chain.iter().map(|link| link.looked_ms).max();
    let (Some(blocked_ms), Some(looked_ms)) = (blocked_ms, looked_ms) else {
        return false;
    };
    let needed_ms = in_ms(CIRCLE_MUST_STAND)
        .saturating_add(elapsed_ms)
        .saturating_add(looked_ms);
    blocked_ms >= needed_ms
}

/// Whether all these ranks are in one and the same collective.
pub(super) fn is_one_collective(chain: &[Link]) -> bool {
    chain
        .iter()
        .all(|link| link.lane == LaneKey::Collective && link.signature == chain[0].signature)
}

/// Whether all these ranks are in one and the same operation: a collective, or the two ends of a message.
/// What they wait for is under way, or their turn: nobody is to call anything else.
fn is_one_operation(chain: &[Link]) -> bool {
    match chain {
        [one, other] if one.lane != LaneKey::Collective => {
            one.signature == other.signature && other.lane == one.lane.other_end(one.rank)
        }
        _ => is_one_collective(chain),
    }
}

impl Core {
    /// A report came back: everybody in `chain` waits for the next one, the last for the first.
    pub(super) fn on_circle(&self, chain: &[Link], elapsed_ms: u64) {
        let own = &chain[0];
        let Some(blocked) = self.lane(own.lane).and_then(Lane::blocked) else {
            return;
        };
        if blocked.signature != own.signature || is_one_operation(chain) {
            return;
        }
        if !has_stood(chain, elapsed_ms) {
            return;
        }
        let places: Vec<_> = chain
            .iter()
            .map(|link| {
                format!(
                    "rank {} is in {} ({})",
                    link.rank, link.signature, link.lane
                )
            })
            .collect();
        let text = format!(
            "ranks wait for each other in a circle: {}; each waits for the next one and the last \
             for the first",
            places.join(", ")
        );
        if chain.iter().all(|link| link.single_threaded) {
            if chain.iter().all(|link| link.lane.frame_peer().is_some()) {
                return self.end_circle_of_frames(chain, &text);
            }
            self.fail(Error::new(ErrorKind::Mismatch, text));
        } else {
            self.warn_of_circle(text);
        }
    }

    /// Every rank of the circle waits in frames only: the lanes that end here are ended, not more.
    fn end_circle_of_frames(&self, chain: &[Link], text: &str) {
        let sends = |link: &Link| matches!(link.lane, LaneKey::FrameSend(_));
        let what = if chain.iter().all(sends) {
            "both sending: each rank waits for the other one to receive its frame first. Send \
             asynchronously or let one of them receive first; "
        } else if chain.iter().any(sends) {
            ""
        } else {
            "both receiving: each rank waits for a frame of the other one; "
        };
        let error = Error::new(ErrorKind::Mismatch, format!("{what}{text}"));
        let (Some(first), Some(last)) = (chain.first(), chain.last()) else {
            return;
        };
        // What this rank waits in, and what the rank that waits for it waits in.
        for key in [first.lane, last.lane.other_end(last.rank)] {
            if let Some(lane) = self.lane(key) {
                self.poison_lane(lane, error.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use comm_core::{Algorithm, OperationKind, Rank, Signature};

    use super::*;

    fn link(rank: Rank, lane: LaneKey, sequence: u64) -> Link {
        Link {
            rank,
            lane,
            signature: Signature {
                sequence,
                kind: OperationKind::Barrier,
                algorithm: Algorithm::Dissemination,
                dtype: None,
                op: None,
                root: 0,
                count: 0,
            },
            blocked_ms: 1000,
            looked_ms: 100,
            is_held: true,
            single_threaded: true,
        }
    }

    #[test]
    fn a_circle_has_not_stood_if_a_rank_has_not_looked_since_another_one_is_blocked() {
        let must_stand = in_ms(CIRCLE_MUST_STAND);
        let waits = |blocked_ms, looked_ms| Link {
            blocked_ms,
            looked_ms,
            ..link(0, LaneKey::Recv(1), 3)
        };
        let long = waits(60_000, 5_000);
        // Its thread has not run for five seconds: it may have what the other one has sent since.
        assert!(!has_stood(&[waits(4_000, 100), long.clone()], 10));
        assert!(!has_stood(&[long.clone(), waits(4_000, 100)], 10));
        assert!(has_stood(
            &[waits(5_010 + must_stand, 100), long.clone()],
            10
        ));
        // The report itself may have been under way for long.
        assert!(!has_stood(&[waits(5_010 + must_stand, 100), long], 11));
        assert!(!has_stood(&[], 0));
    }

    #[test]
    fn the_two_ends_of_a_message_or_frame_are_no_circle_and_all_others_are() {
        let ends =
            |one, other, sequence| is_one_operation(&[link(0, one, 5), link(1, other, sequence)]);
        assert!(ends(LaneKey::Send(1), LaneKey::Recv(0), 5));
        assert!(ends(LaneKey::Recv(1), LaneKey::Send(0), 5));
        assert!(ends(LaneKey::FrameSend(1), LaneKey::FrameRecv(0), 5));
        assert!(!ends(LaneKey::Send(1), LaneKey::Recv(0), 6));
        assert!(!ends(LaneKey::Send(1), LaneKey::Send(0), 5));
        assert!(!ends(LaneKey::FrameRecv(1), LaneKey::FrameRecv(0), 5));
        assert!(!ends(LaneKey::Recv(1), LaneKey::Collective, 5));
        assert!(ends(LaneKey::Collective, LaneKey::Collective, 5));
    }

    #[test]
    fn ranks_in_one_collective_are_no_circle_and_all_others_are() {
        let same = [0, 1].map(|rank| link(rank, LaneKey::Collective, 5));
        assert!(is_one_collective(&same));
        for other in [
            link(1, LaneKey::Collective, 6),
            link(1, LaneKey::Recv(0), 5),
        ] {
            assert!(!is_one_collective(&[same[0].clone(), other]));
        }
    }
}
