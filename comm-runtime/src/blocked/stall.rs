//! How long something has not moved, and what follows from that.
//!
//! # Contract
//!
//! * Peers are told of a stall after the first sleep, and then ever less often: a long wait costs
//!   little. That something moves in between does not make the reports more frequent.
//! * That a rank has left is told over the control plane, what it sent before over its edges: either
//!   may come first. Whoever waits for it goes on looking at its edges after the goodbye, and gives up
//!   only if they have not moved for a while. An edge that closes tells at once that nothing more comes;
//!   the limits here are for edges that do not tell, and for those that were never connected. Of the time
//!   in which it could not look, for instance because its host stood still, only a [nap](LONGEST_NAP) counts.

use std::time::{Duration, Instant};

/// Length of the first sleep; an operation that is still blocked after it reports to its peers.
const FIRST_SLEEP: Duration = Duration::from_millis(20);

/// How long a rank that has left may take to close its connected edges: transports that hold data go
/// on for some seconds until it is delivered.
const CLOSING: Duration = Duration::from_secs(6);

/// How long an edge may take to appear that a rank asked for just before it left.
const CONNECTING: Duration = Duration::from_secs(1);

/// The longest that anything sleeps which has not moved.
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// The time in which nothing has moved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stall {
    since: Option<Instant>,
    /// When it was watched last, and the time before.
    watched: Option<(Instant, Instant)>,
    /// When the peers were told last.
    reported: Option<Instant>,
    /// How long a rank that is waited for is known to have left, and when that was counted last.
    left: Option<(Duration, Instant)>,
}

impl Stall {
    pub(crate) const fn new() -> Self {
        Self {
            since: None,
            watched: None,
            reported: None,
            left: None,
        }
    }

    /// Something has moved; whether nothing had for a while before.
    pub(crate) const fn end(&mut self) -> bool {
        self.left = None;
        self.watched = None;
        self.since.take().is_some()
    }

    /// Since when nothing has moved, at the latest since `now`. Everything that could move has been looked
    /// at between two calls.
    pub(crate) fn watch(&mut self, now: Instant) -> Instant {
        self.watched = Some((now, self.watched.map_or(now, |(last, _)| last)));
        *self.since.get_or_insert(now)
    }

    /// When the last look began, or before that; nothing had moved until then.
    pub(crate) fn looked(&self) -> Option<Instant> {
        self.watched.map(|(_, before)| before)
    }

    /// How long the next sleep may last.
    pub(crate) fn nap(&self, now: Instant) -> Duration {
        match self.since {
            Some(since) if since < now => later_sleep(now - since),
            _ => FIRST_SLEEP,
        }
    }

    /// Whether the peers should be told.
    pub(crate) fn is_report_due(&self, now: Instant) -> bool {
        let Some(since) = self.since else {
            return false;
        };
        let stalled = now.saturating_duration_since(since);
        let limit = |reported| now.saturating_duration_since(reported) >= later_sleep(stalled);
        stalled >= FIRST_SLEEP && self.reported.is_none_or(limit)
    }

    /// The peers have been told.
    pub(crate) const fn report(&mut self, now: Instant) {
        self.reported = Some(now);
    }

    /// Whether nothing more is to be expected from a rank that has left. Its edges must have been
    /// looked at since the last call, so the answer to the first one is no.
    pub(crate) fn outlasts_goodbye(&mut self, now: Instant, is_connected: bool) -> bool {
        let (counted, last) = self.left.unwrap_or((Duration::ZERO, now));
        let counted = counted + now.saturating_duration_since(last).min(LONGEST_NAP);
        self.left = Some((counted, now));
        counted >= if is_connected { CLOSING } else { CONNECTING }
    }
}

/// Length of sleeps after the first one, and with that the interval between reports.
fn later_sleep(stalled: Duration) -> Duration {
    (stalled / 10).clamp(Duration::from_millis(100), LONGEST_NAP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_told_after_the_first_sleep_and_then_ever_less_often() {
        let start = Instant::now();
        let mut stall = Stall::new();
        assert!(!stall.is_report_due(start));
        stall.watch(start);
        assert_eq!(stall.nap(start), FIRST_SLEEP);
        assert!(!stall.is_report_due(start));
        let first = start + FIRST_SLEEP;
        assert!(stall.is_report_due(first));
        stall.report(first);
        assert!(!stall.is_report_due(first + Duration::from_millis(99)));
        assert!(stall.is_report_due(first + Duration::from_millis(100)));
        let late = start + Duration::from_secs(60);
        stall.report(late);
        assert!(!stall.is_report_due(late + Duration::from_millis(999)));
    }

    #[test]
    fn the_last_look_began_when_it_was_watched_the_time_before() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut stall = Stall::new();
        assert_eq!(stall.looked(), None);
        for (now, looked) in [(0, 0), (1, 0), (5, 1), (9, 5)] {
            assert_eq!(stall.watch(at(now)), start);
            assert_eq!(stall.looked(), Some(at(looked)));
        }
        stall.end();
        assert_eq!(stall.watch(at(10)), at(10));
        assert_eq!(stall.looked(), Some(at(10)));
    }

    #[test]
    fn something_that_moves_in_between_does_not_make_reports_more_frequent() {
        let start = Instant::now();
        let mut stall = Stall::new();
        stall.watch(start);
        stall.report(start + FIRST_SLEEP);
        assert!(stall.end() && !stall.end());
        stall.watch(start + FIRST_SLEEP);
        assert!(!stall.is_report_due(start + 2 * FIRST_SLEEP));
        assert!(stall.is_report_due(start + FIRST_SLEEP + Duration::from_millis(100)));
    }

    #[test]
    fn the_edges_of_a_rank_that_has_left_are_looked_at_again_until_its_time_is_over() {
        let start = Instant::now();
        for (is_connected, limit) in [(false, CONNECTING), (true, CLOSING)] {
            let mut stall = Stall::new();
            stall.watch(start);
            let mut now = start + Duration::from_secs(100);
            // How long it takes until the answer is yes, looking every tenth of a second.
            let mut patience = |stall: &mut Stall, longest: Duration| {
                let begin = now;
                while !stall.outlasts_goodbye(now, is_connected) && now - begin < longest {
                    now += Duration::from_millis(100);
                }
                now - begin
            };
            assert_eq!(patience(&mut stall, limit / 2), limit / 2);
            // What moves may be followed by more.
            stall.end();
            assert_eq!(patience(&mut stall, 2 * limit), limit);
        }
    }

    #[test]
    fn time_in_which_the_edges_were_not_looked_at_counts_as_one_nap_after_a_goodbye() {
        let goodbye = Instant::now();
        let mut stall = Stall::new();
        assert!(!stall.outlasts_goodbye(goodbye, true));
        assert!(!stall.outlasts_goodbye(goodbye + Duration::from_secs(3600), true));
    }
}
