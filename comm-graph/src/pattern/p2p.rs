//! Rounds of point-to-point traffic that cannot deadlock.
//!
//! In round `k` every rank sends to one peer and receives from one, such that the send of round
//! `k` at one end is the receive of round `k` at the other: one operation at a time per rank is
//! enough to make progress. Round 0 is the rank itself. Ranks are taken in groups (at most 8 ranks
//! of one node, or all ranks where there is one node); the distance between groups follows `(x*x+x)/2 mod 2^m`, a permutation that
//! spreads traffic over the machine, the distance inside a group counts up.

/// The schedule of a communicator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct P2pSchedule {
    /// Ranks sorted by node, then by rank; `None` when that is the identity.
    order: Option<Vec<u32>>,
    /// The inverse of `order`.
    position: Option<Vec<u32>>,
    ranks: u32,
    group: u32,
}

/// Whom a rank meets in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct P2pRound {
    /// The rank it sends to.
    pub send: u32,
    /// The rank it receives from.
    pub recv: u32,
}

impl P2pSchedule {
    /// More ranks than this never share a group when there are several nodes.
    const LARGEST_GROUP: u32 = 8;

    /// The schedule for ranks of which `node_of[r]` is the node of rank `r`.
    ///
    /// Cost and memory are linear in the number of ranks.
    #[must_use]
    pub fn new(node_of: &[u32]) -> Self {
        let ranks = u32::try_from(node_of.len()).unwrap_or(u32::MAX);
        let mut order: Vec<u32> = (0..ranks).collect();
        order.sort_by_key(|rank| node_of[*rank as usize]);
        let mut nodes = order
            .chunk_by(|a, b| node_of[*a as usize] == node_of[*b as usize])
            .peekable();
        let mut group = match nodes.peek() {
            Some(first) if first.len() == order.len() => ranks,
            _ => Self::LARGEST_GROUP,
        };
        for node in nodes {
            while !node.len().is_multiple_of(group as usize) {
                group /= 2;
            }
        }
        let identity = order.iter().zip(0..).all(|(rank, index)| *rank == index);
        if identity {
            return Self {
                order: None,
                position: None,
                ranks,
                group,
            };
        }
        let mut position = vec![0; order.len()];
        for (rank, index) in order.iter().zip(0..) {
            position[*rank as usize] = index;
        }
        Self {
            order: Some(order),
            position: Some(position),
            ranks,
            group,
        }
    }

    /// The number of ranks in a group.
    #[must_use]
    pub fn group_size(&self) -> u32 {
        self.group
    }

    /// The rounds of one rank in order; as many as there are ranks, none for a foreign rank.
    pub fn rounds(&self, rank: u32) -> impl Iterator<Item = P2pRound> + '_ {
        let own = if rank < self.ranks {
            Some(self.position_of(rank))
        } else {
            None
        };
        let groups = self.ranks / self.group;
        own.into_iter().flat_map(move |own| {
            let (group, local) = (own / self.group, own % self.group);
            group_distances(groups).flat_map(move |far| {
                (0..self.group).map(move |near| {
                    let to = (group + far) % groups * self.group + (local + near) % self.group;
                    let from = (group + groups - far) % groups * self.group
                        + (local + self.group - near) % self.group;
                    P2pRound {
                        send: self.rank_at(to),
                        recv: self.rank_at(from),
                    }
                })
            })
        })
    }

    fn position_of(&self, rank: u32) -> u32 {
        self.position
            .as_ref()
            .map_or(rank, |position| position[rank as usize])
    }

    fn rank_at(&self, position: u32) -> u32 {
        self.order
            .as_ref()
            .map_or(position, |order| order[position as usize])
    }
}

/// Every distance below `groups` once: triangular numbers modulo a power of two, in order.
fn group_distances(groups: u32) -> impl Iterator<Item = u32> {
    let modulus = u64::from(groups).next_power_of_two();
    let distances = (0..modulus).map(move |x| (x * (x + 1) / 2) & (modulus - 1));
    distances.filter_map(move |distance| u32::try_from(distance).ok().filter(|d| *d < groups))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(node_of: &[u32]) {
        let schedule = P2pSchedule::new(node_of);
        let ranks = node_of.len();
        let rounds: Vec<Vec<P2pRound>> = (0..ranks as u32)
            .map(|rank| schedule.rounds(rank).collect())
            .collect();
        for rank in 0..ranks {
            assert_eq!(rounds[rank].len(), ranks);
            assert_eq!(
                rounds[rank][0],
                P2pRound {
                    send: rank as u32,
                    recv: rank as u32
                }
            );
            let mut peers: Vec<u32> = rounds[rank].iter().map(|round| round.send).collect();
            peers.sort_unstable();
            assert!(peers.iter().zip(0..).all(|(peer, index)| *peer == index));
            for (number, round) in rounds[rank].iter().enumerate() {
                assert_eq!(rounds[round.send as usize][number].recv, rank as u32);
            }
        }
    }

    #[test]
    fn every_peer_is_met_once_and_sends_meet_receives() {
        check(&[0]);
        check(&[0, 0, 0, 1, 1, 1]);
        check(&[0; 16]);
        check(&[0, 1, 0, 1, 0, 1, 0, 1]);
        check(&[0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2]);
        check(&[3, 3, 1, 0, 0, 7, 7, 7, 7]);
    }

    #[test]
    fn groups_never_span_nodes() {
        assert_eq!(P2pSchedule::new(&[0, 0, 0, 0, 1, 1]).group_size(), 2);
        assert_eq!(P2pSchedule::new(&[0, 0, 0, 1, 1]).group_size(), 1);
        assert_eq!(P2pSchedule::new(&[0; 16]).group_size(), 16);
    }

    #[test]
    fn a_foreign_rank_has_no_rounds() {
        assert_eq!(P2pSchedule::new(&[0, 0]).rounds(2).count(), 0);
        assert_eq!(P2pSchedule::new(&[]).rounds(0).count(), 0);
    }
}
