//! In which order endpoints are tried.

use super::candidate::Pattern;
use super::reserve::{Place, Reserve};

/// What decides which endpoint comes next: smaller is better, in the order of the fields.
///
/// Bandwidths are whole GB/s, negated: small differences of measured speeds do not count.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Score {
    inter_gbps: i32,
    inter_host_gbps: i32,
    inter_hops: usize,
    intra_gbps: i32,
    intra_hops: usize,
    distance: usize,
    pub(super) to: usize,
}

impl Score {
    /// The score of going from `at` to `to`, seen from a port where the channel will leave.
    pub(super) fn new(
        reserve: &Reserve,
        port: Option<Place>,
        at: usize,
        to: usize,
        distance: usize,
    ) -> Self {
        let place = reserve.endpoint(to);
        let route = reserve.route(reserve.endpoint(at), place);
        let from_port = port.map(|port| reserve.route(port, place));
        Self {
            inter_gbps: from_port.map_or(0, |route| -(route.gbps as i32)),
            inter_host_gbps: from_port.map_or(0, |_| -(reserve.host_side(to) as i32)),
            inter_hops: from_port.map_or(0, |route| route.hops),
            intra_gbps: -(route.gbps as i32),
            intra_hops: route.hops,
            distance,
            to,
        }
    }

    /// Whether two endpoints are equally well connected inside the host.
    pub(super) fn ties_inside(&self, other: &Self) -> bool {
        (self.intra_gbps, self.intra_hops) == (other.intra_gbps, other.intra_hops)
    }
}

/// Behind a switch all endpoints are equal: a fixed set of neighbours keeps the search small.
pub(super) const fn behind_switch(pattern: Pattern, at: usize, count: usize) -> [Option<usize>; 2] {
    let (next, previous) = ((at + 1) % count, (at + count - 1) % count);
    match pattern {
        _ if next == previous => [Some(next), None],
        Pattern::Ring => [Some(previous), Some(next)],
        Pattern::BalancedTree | Pattern::SplitTree => [Some(next), Some(previous)],
        _ => [Some(next), None],
    }
}
