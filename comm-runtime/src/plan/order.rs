//! The order in which the ranks stand in rings and trees.
//!
//! # Contract
//!
//! * Neighbours are near: the ranks of one host stand together, and among them those of one NUMA
//!   node, however the launcher has numbered them. A ring so enters and leaves every host once, and
//!   most edges of a tree stay on a host.
//! * The order is a pure function of the facts that all ranks exchanged, by the search of
//!   `comm-graph`; where it is not plain, the ranks compare what they came to before they use it.
//! * It changes no result but the order in which floating-point numbers are summed up.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use comm_core::{Error, ErrorKind, PeerInfo, Rank, Result};
use comm_graph::Options;
use comm_graph::model::HostMemory;
use comm_graph::plan::{RankFacts, plan_for_hosts};

use crate::control::ControlPlane;

/// Names the comparison among the exchanges of the control plane.
const COMPARISON: u64 = u64::from_le_bytes(*b"ringrank");

/// Which rank stands at which position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RankOrder {
    /// `None` if the ranks stand in the order of their numbers.
    listed: Option<Arc<Listed>>,
}

#[derive(Debug, PartialEq, Eq)]
struct Listed {
    ranks: Vec<Rank>,
    positions: Vec<Rank>,
}

impl RankOrder {
    /// The order for ranks with these facts.
    pub(crate) fn from_facts(peers: &[PeerInfo]) -> Self {
        if are_together(peers) {
            return Self::default();
        }
        match ring(peers) {
            Ok(ranks) => Self::new(ranks),
            Err(error) => {
                // The same on all ranks, since it is the same function of the same facts.
                tracing::warn!(%error, "rings go by rank number, whatever is near to what");
                Self::default()
            }
        }
    }

    /// The order in which the ranks are listed; each is there once.
    pub(crate) fn new(ranks: Vec<Rank>) -> Self {
        if ranks.iter().copied().eq(0..ranks.len() as Rank) {
            return Self::default();
        }
        let mut positions = vec![0; ranks.len()];
        for (position, rank) in (0..).zip(&ranks) {
            positions[*rank as usize] = position;
        }
        let listed = Some(Arc::new(Listed { ranks, positions }));
        Self { listed }
    }

    /// The rank at a position.
    pub(crate) fn rank_at(&self, position: usize) -> usize {
        match &self.listed {
            None => position,
            Some(listed) => listed.ranks[position] as usize,
        }
    }

    /// The position of a rank.
    pub(crate) fn position_of(&self, rank: Rank) -> usize {
        match &self.listed {
            None => rank as usize,
            Some(listed) => listed.positions[rank as usize] as usize,
        }
    }

    /// The ranks in their order.
    pub(crate) fn ranks(&self, world_size: u32) -> Vec<Rank> {
        match &self.listed {
            None => (0..world_size).collect(),
            Some(listed) => listed.ranks.clone(),
        }
    }

    /// Compares the order with those of the other ranks, if they may have come to another one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfiguration`] if they differ, which only versions of the library that
    /// differ can cause; the failure of the control plane.
    pub(crate) fn compare(
        &self,
        control: &ControlPlane,
        peers: &[PeerInfo],
        deadline: Instant,
    ) -> Result<()> {
        if are_together(peers) {
            return Ok(());
        }
        let mut hasher = blake3::Hasher::new();
        for rank in self.ranks(control.world_size()) {
            hasher.update(&rank.to_le_bytes());
        }
        let own = Bytes::copy_from_slice(hasher.finalize().as_bytes());
        let all = control.allgather(COMPARISON, own.clone(), deadline)?;
        let Some(other) = all.iter().position(|hash| *hash != own) else {
            return Ok(());
        };
        let version = |rank: usize| peers.get(rank).map_or("?", |peer| peer.version.as_str());
        let rank = control.rank();
        Err(Error::new(
            ErrorKind::InvalidConfiguration,
            format!(
                "rank {rank} (version {}) and rank {other} (version {}) order the ranks differently \
                 in rings; run the same version of the library everywhere",
                version(rank as usize),
                version(other)
            ),
        ))
    }
}

/// Where a rank runs, as far as its neighbours in a ring are concerned: its host, and the NUMA node
/// if it is bound to one.
fn place(peer: &PeerInfo) -> ([u8; 16], i32) {
    let numa = match peer.numa_nodes[..] {
        [node] => i32::try_from(node).unwrap_or(-1),
        _ => -1,
    };
    (peer.host.0, numa)
}

/// Whether no rank is farther away than another one.
fn are_together(peers: &[PeerInfo]) -> bool {
    peers.len() < 3 || peers.iter().map(place).collect::<BTreeSet<_>>().len() < 2
}

/// The ring of the first channel, from rank 0 on.
fn ring(peers: &[PeerInfo]) -> Result<Vec<Rank>> {
    // Hosts are numbered by their first ranks, so that the ring starts like the numbers do.
    let mut hosts = HashMap::new();
    let facts: Vec<_> = peers
        .iter()
        .map(|peer| {
            let (host, numa) = place(peer);
            let next = hosts.len() as u64;
            let host = *hosts.entry(host).or_insert(next);
            RankFacts { host, numa }
        })
        .collect();
    let plan = plan_for_hosts(&facts, &HostMemory::default(), &Options::default())?;
    let mut ranks = vec![0];
    while let Some(last) = ranks.last()
        && let Some(view) = plan.view(*last, 0)
        && view.ring.next != 0
        && ranks.len() < peers.len()
    {
        ranks.push(view.ring.next);
    }
    if ranks.len() != peers.len() {
        return Err(Error::new(ErrorKind::Internal, "the ring misses a rank")
            .with("ring", format!("{ranks:?}")));
    }
    Ok(ranks)
}

#[cfg(test)]
mod tests {
    use comm_core::{HostId, ProcessId};

    use super::*;

    /// One rank per entry: host and NUMA node.
    fn peers(places: &[(u8, u32)]) -> Vec<PeerInfo> {
        (0..)
            .zip(places)
            .map(|(rank, (host, node))| {
                let mut peer = PeerInfo::new(rank, HostId([*host; 16]), ProcessId([1; 16]));
                peer.numa_nodes = vec![*node];
                peer
            })
            .collect()
    }

    /// How often the ring goes from one place to another one.
    fn changes<T: PartialEq>(order: &[Rank], place: impl Fn(usize) -> T) -> usize {
        let next = order.iter().cycle().skip(1);
        let pairs = order.iter().zip(next);
        pairs
            .filter(|(a, b)| place(**a as usize) != place(**b as usize))
            .count()
    }

    #[test]
    fn a_ring_enters_every_host_and_every_numa_node_once() {
        for (hosts, nodes, each) in [(2, 1, 2), (3, 1, 4), (2, 2, 2), (4, 2, 4), (1, 2, 4)] {
            // Dealt out in turn, as `mpirun --map-by node` does.
            let count = hosts * nodes * each;
            let places: Vec<_> = (0..count)
                .map(|rank| ((rank % hosts) as u8, (rank / hosts % nodes) as u32))
                .collect();
            let order = RankOrder::from_facts(&peers(&places)).ranks(count as u32);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..count as u32), "{order:?}");
            assert_eq!(order[0], 0);
            let host_changes = changes(&order, |rank| places[rank].0);
            assert_eq!(host_changes, if hosts > 1 { hosts } else { 0 }, "{order:?}");
            let place_changes = changes(&order, |rank| places[rank]);
            assert_eq!(place_changes, hosts * nodes, "{order:?}");
        }
    }

    #[test]
    fn ranks_that_are_numbered_by_host_keep_their_order() {
        let blocks = [(0, 0), (0, 0), (0, 0), (1, 0), (1, 0), (1, 0)];
        let order = RankOrder::from_facts(&peers(&blocks));
        assert_eq!(changes(&order.ranks(6), |rank| blocks[rank].0), 2);
        assert_eq!(
            RankOrder::from_facts(&peers(&[(0, 0); 8])),
            RankOrder::default()
        );
    }

    #[test]
    fn positions_and_ranks_are_inverse() {
        let order = RankOrder::new(vec![0, 2, 1, 3]);
        for position in 0..4 {
            assert_eq!(order.position_of(order.rank_at(position) as Rank), position);
        }
        assert_eq!(RankOrder::new(vec![0, 1, 2]), RankOrder::default());
    }
}
