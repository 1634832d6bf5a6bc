//! Which reports a blocked lane passes on.
//!
//! # Contract
//!
//! * Every round of reports that a rank starts is passed on by each other blocked lane at most once for
//!   each [kind](Kind) of chain: what is sent grows with the number of ranks that wait for each other,
//!   and not with the number of ways through them.
//! * A lane in a collective does not pass on what comes from that collective only. Whoever in it waits
//!   for a rank outside of it starts a report of its own there.
//! * A circle that is none of one collective is found all the same: one of its ranks waits for one that
//!   is in something else, and what that rank starts reaches all others.

use std::collections::HashMap;

use comm_core::{Rank, Signature};

use super::circle::is_one_collective;
use super::{BlockedReport, Link};
use crate::lane::LaneKey;

/// What the decision about a circle depends on, as far as a chain has it already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    single_threaded: bool,
    frames: bool,
}

impl Kind {
    fn of(chain: &[Link]) -> Self {
        Self {
            single_threaded: chain.iter().all(|link| link.single_threaded),
            frames: chain.iter().all(|link| link.lane.frame_peer().is_some()),
        }
    }
}

/// The reports that a lane has started, and passed on since it is blocked.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    started: u64,
    /// By the rank and lane that started it: the latest round.
    rounds: HashMap<(Rank, LaneKey), Round>,
}

#[derive(Debug)]
struct Round {
    number: u64,
    /// What was passed on of it.
    kinds: Vec<Kind>,
}

impl Passed {
    /// The number of a round that the lane starts.
    pub(crate) const fn start(&mut self) -> u64 {
        self.started += 1;
        self.started
    }

    /// The lane is not blocked any more.
    pub(crate) fn forget(&mut self) {
        self.rounds.clear();
    }

    /// Whether this lane, blocked in an operation with this signature, is to pass the report on; it
    /// counts as passed on then.
    pub(crate) fn takes(
        &mut self,
        report: &BlockedReport,
        lane: LaneKey,
        signature: &Signature,
    ) -> bool {
        let Some(start) = report.chain.first() else {
            return false;
        };
        let is_same = lane == LaneKey::Collective && start.signature == *signature;
        if is_same && is_one_collective(&report.chain) {
            return false;
        }
        let latest = self.rounds.entry((start.rank, start.lane));
        let latest = latest.or_insert(Round {
            number: report.round,
            kinds: Vec::new(),
        });
        if report.round < latest.number {
            return false;
        }
        if report.round > latest.number {
            latest.number = report.round;
            latest.kinds.clear();
        }
        let kind = Kind::of(&report.chain);
        let is_new = !latest.kinds.contains(&kind);
        if is_new {
            latest.kinds.push(kind);
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use comm_core::{Algorithm, OperationKind};

    use super::*;

    /// A rank that is blocked in one lane.
    struct Waiting {
        lane: LaneKey,
        sequence: u64,
        waits_for: Vec<Rank>,
        single_threaded: bool,
    }

    fn signature(sequence: u64) -> Signature {
        Signature {
            sequence,
            kind: OperationKind::Barrier,
            algorithm: Algorithm::OneShot,
            dtype: None,
            op: None,
            root: 0,
            count: 0,
        }
    }

    fn in_collective(sequence: u64, waits_for: impl Iterator<Item = Rank>) -> Waiting {
        Waiting {
            lane: LaneKey::Collective,
            sequence,
            waits_for: waits_for.collect(),
            single_threaded: true,
        }
    }

    fn receiving(from: Rank) -> Waiting {
        Waiting {
            lane: LaneKey::Recv(from),
            sequence: 0,
            waits_for: vec![from],
            single_threaded: true,
        }
    }

    /// Lets every rank start a round; how many reports that took, and the chains that came back to the
    /// rank that had started them.
    fn round(ranks: &[Waiting], passed: &mut [Passed]) -> (usize, Vec<Vec<Link>>) {
        let mut under_way = VecDeque::new();
        let tell = |own: usize, round, chain: &[Link], under_way: &mut VecDeque<_>| {
            let waiting = &ranks[own];
            let mut chain = chain.to_vec();
            chain.push(Link {
                rank: own as Rank,
                lane: waiting.lane,
                signature: signature(waiting.sequence),
                blocked_ms: 1000,
                looked_ms: 100,
                is_held: true,
                single_threaded: waiting.single_threaded,
            });
            for peer in &waiting.waits_for {
                let chain = chain.clone();
                let report = BlockedReport {
                    round,
                    started_ms: 0,
                    chain,
                };
                under_way.push_back((*peer as usize, report));
            }
        };
        for (own, passed) in passed.iter_mut().enumerate() {
            tell(own, passed.start(), &[], &mut under_way);
        }
        let (mut sent, mut circles) = (0, Vec::new());
        while let Some((own, report)) = under_way.pop_front() {
            sent += 1;
            assert!(sent < 1_000_000, "reports without end");
            let waiting = &ranks[own];
            if report.chain[0].rank as usize == own {
                circles.push(report.chain);
            } else if report.chain.iter().all(|link| link.rank as usize != own)
                && passed[own].takes(&report, waiting.lane, &signature(waiting.sequence))
            {
                tell(own, report.round, &report.chain, &mut under_way);
            }
        }
        (sent, circles)
    }

    fn new_passed(ranks: &[Waiting]) -> Vec<Passed> {
        ranks.iter().map(|_| Passed::default()).collect()
    }

    fn all_but(own: Rank, ranks: Rank) -> impl Iterator<Item = Rank> {
        (0..ranks).filter(move |rank| *rank != own)
    }

    #[test]
    fn ranks_that_wait_for_each_other_in_one_collective_pass_nothing_on() {
        let n = 24;
        let ranks: Vec<_> = (0..n)
            .map(|own| in_collective(7, all_but(own, n)))
            .collect();
        let mut passed = new_passed(&ranks);
        for _ in 0..3 {
            let (sent, circles) = round(&ranks, &mut passed);
            assert_eq!(sent, (n * (n - 1)) as usize);
            assert!(circles.is_empty());
        }
    }

    #[test]
    fn what_is_sent_does_not_grow_with_the_ways_through_the_ranks() {
        let n = 24;
        let ranks: Vec<_> = (0..n)
            .map(|own| in_collective(own.into(), all_but(own, n)))
            .collect();
        let mut passed = new_passed(&ranks);
        for _ in 0..2 {
            let (sent, circles) = round(&ranks, &mut passed);
            assert!(sent <= (n * n * n) as usize, "{sent}");
            for own in 0..n {
                assert!(circles.iter().any(|chain| chain[0].rank == own));
            }
        }
    }

    #[test]
    fn a_circle_through_a_collective_is_found_in_every_round() {
        // Rank 9 receives from rank 3, which is in a collective with all others; only rank 5 of them
        // waits for rank 9.
        let n = 9;
        let mut ranks: Vec<_> = (0..n)
            .map(|own| in_collective(7, all_but(own, n)))
            .collect();
        ranks[5].waits_for.push(n);
        ranks.push(receiving(3));
        let mut passed = new_passed(&ranks);
        for _ in 0..3 {
            let (_, circles) = round(&ranks, &mut passed);
            let mut found = circles.iter().filter(|chain| !is_one_collective(chain));
            assert!(found.any(|chain| Kind::of(chain).single_threaded));
        }
    }

    #[test]
    fn a_circle_of_single_threads_is_found_beside_one_of_several() {
        // 0 waits for 1 and 2, both wait for 3, which waits for 0; 1 has several threads and is asked
        // first.
        let mut ranks = vec![
            in_collective(1, [1, 2].into_iter()),
            receiving(3),
            receiving(3),
            receiving(0),
        ];
        ranks[1].single_threaded = false;
        let (_, circles) = round(&ranks, &mut new_passed(&ranks));
        let ends = |kind| {
            let mut of_0 = circles.iter().filter(|chain| chain[0].rank == 0);
            of_0.any(|chain| Kind::of(chain).single_threaded == kind)
        };
        assert!(ends(true) && ends(false));
    }

    #[test]
    fn a_round_that_is_over_is_not_passed_on() {
        let report = |round| BlockedReport {
            round,
            started_ms: 0,
            chain: vec![Link {
                rank: 1,
                lane: LaneKey::Recv(0),
                signature: signature(0),
                blocked_ms: 0,
                looked_ms: 0,
                is_held: true,
                single_threaded: true,
            }],
        };
        let mut passed = Passed::default();
        let mut takes = |round| passed.takes(&report(round), LaneKey::Collective, &signature(3));
        assert_eq!(
            [4, 4, 3, 5, 5].map(&mut takes),
            [true, false, false, true, false]
        );
        passed.forget();
        assert!(passed.takes(&report(5), LaneKey::Collective, &signature(3)));
    }
}
