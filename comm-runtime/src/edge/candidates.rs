//! Which transports may serve an edge: pure functions of the exchanged facts.

use std::sync::Arc;

use comm_core::{Capabilities, ConnectionIndex, Edge, PeerInfo, Transport, Verdict};

use crate::plan::MOST_ONE_SHOT_RANKS;

/// Why a transport cannot serve an edge; `None` if it can.
pub(crate) fn candidate(transport: &dyn Transport, edge: &Edge<'_>) -> Option<String> {
    for end in [edge.sender, edge.receiver] {
        if end.transport_facts(transport.name()).is_none() {
            return Some(match end.unavailable.get(transport.name()) {
                Some(reason) => format!("rank {} cannot use it: {reason}", end.rank),
                None => format!("rank {} does not have it", end.rank),
            });
        }
    }
    match transport.can_connect(edge) {
        Verdict::Yes => None,
        Verdict::No(reason) => Some(reason),
    }
}

/// Whether the first candidate of every edge between two of `peers` gives access to the peer's
/// memory; all ranks come to the same answer.
pub(crate) fn all_share_memory(
    transports: &[Arc<dyn Transport>],
    peers: &[PeerInfo],
    step_bytes: usize,
) -> bool {
    // The cheap look first: most worlds span processes.
    let Some((first, others)) = peers.split_first() else {
        return false;
    };
    if others.iter().any(|peer| peer.process != first.process) {
        return false;
    }
    all_edges(transports, peers, step_bytes, |capabilities| {
        capabilities.shares_address_space
    })
}

/// Whether the first candidate of every edge between two of `peers` may lead to memory that one
/// process has mapped of the other one's; all ranks come to the same answer.
pub(crate) fn all_may_map_memory(
    transports: &[Arc<dyn Transport>],
    peers: &[PeerInfo],
    step_bytes: usize,
) -> bool {
    let Some((first, others)) = peers.split_first() else {
        return false;
    };
    if peers.len() > MOST_ONE_SHOT_RANKS as usize {
        return false;
    }
    others.iter().all(|peer| peer.host == first.host)
        && all_edges(transports, peers, step_bytes, |capabilities| {
            capabilities.maps_memory && !capabilities.shares_address_space
        })
}

/// Whether the first candidate of every edge between two of `peers` can do something.
fn all_edges(
    transports: &[Arc<dyn Transport>],
    peers: &[PeerInfo],
    step_bytes: usize,
    can: impl Fn(&Capabilities) -> bool,
) -> bool {
    let can = |edge: &Edge<'_>| {
        transports
            .iter()
            .find(|transport| candidate(transport.as_ref(), edge).is_none())
            .is_some_and(|transport| can(&transport.capabilities()))
    };
    peers.iter().all(|sender| {
        let receivers = peers.iter().filter(|peer| peer.rank != sender.rank);
        receivers
            .map(|peer| Edge::new(sender, peer, ConnectionIndex::Collective, step_bytes))
            .all(|edge| can(&edge))
    })
}
