//! The processes of one host that a communicator reaches.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use comm_core::{PeerInfo, ProcessId, Rank};

use super::{Pair, Regions, Route};
use crate::communicator::Core;

/// What kept a rank from mapping this one's memory; nothing, if it has mapped it.
pub(crate) type Obstacle = Option<String>;

/// The pairs of a communicator's process with those of its other ranks on the same host.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    pairs: HashMap<Rank, Arc<Pair>>,
    uses: Mutex<HashMap<ProcessId, Use>>,
    /// What became of the latest allocation, by rank.
    readers: Mutex<BTreeMap<Rank, Obstacle>>,
}

/// A communicator's use of a pair; the pair's mappings end with the last one.
#[derive(Debug)]
struct Use {
    pair: Arc<Pair>,
    route: Route,
}

impl Drop for Use {
    fn drop(&mut self) {
        self.pair.end_use(&self.route);
    }
}

impl Neighbours {
    /// Those of `rank` among `peers`.
    pub(crate) fn new(regions: &Regions, rank: Rank, peers: &[PeerInfo]) -> Self {
        let own = peers.get(rank as usize);
        let near = peers
            .iter()
            .filter(|peer| peer.rank != rank && own.is_some_and(|own| own.host == peer.host));
        Self {
            pairs: near
                .map(|peer| (peer.rank, regions.pair(peer.process)))
                .collect(),
            ..Self::default()
        }
    }

    /// The communicator uses the pairs from now on.
    pub(crate) fn begin(&self, core: &Weak<Core>, peers: &[PeerInfo]) {
        let mut uses = self.uses();
        for peer in peers {
            if let Some(pair) = self.pairs.get(&peer.rank) {
                uses.entry(peer.process).or_insert_with(|| {
                    let route = Route {
                        core: core.clone(),
                        rank: peer.rank,
                    };
                    pair.begin_use(route.clone());
                    Use {
                        pair: Arc::clone(pair),
                        route,
                    }
                });
            }
        }
    }

    fn uses(&self) -> MutexGuard<'_, HashMap<ProcessId, Use>> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The communicator has no use any more for the pair with this process.
    pub(crate) fn end(&self, process: ProcessId) {
        let ended = self.uses().remove(&process);
        drop(ended);
    }

    /// The communicator has no use any more for any pair.
    pub(crate) fn end_all(&self) {
        let ended = std::mem::take(&mut *self.uses());
        drop(ended);
    }

    /// The pair with the process of a rank, if that is on this host.
    pub(crate) fn pair(&self, rank: Rank) -> Option<&Arc<Pair>> {
        self.pairs.get(&rank)
    }

    /// Notes what became of the latest allocation at a rank.
    pub(crate) fn note(&self, rank: Rank, obstacle: Obstacle) {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        readers.insert(rank, obstacle);
    }

    /// What became of the latest allocation, by rank.
    pub(crate) fn readers(&self) -> Vec<(Rank, Obstacle)> {
        let readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        readers
            .iter()
            .map(|(rank, obstacle)| (*rank, obstacle.clone()))
            .collect()
    }
}
