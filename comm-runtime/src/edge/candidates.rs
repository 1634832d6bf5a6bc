//! Which transports may serve an edge: pure functions of the exchanged facts.

use std::sync::Arc;

use comm_core::{ConnectionIndex, Edge, PeerInfo, Transport, Verdict};

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
    let shares = |edge: &Edge<'_>| {
        transports
            .iter()
            .find(|transport| candidate(transport.as_ref(), edge).is_none())
            .is_some_and(|transport| transport.capabilities().shares_address_space)
    };
    peers.iter().all(|sender| {
        let receivers = peers.iter().filter(|peer| peer.rank != sender.rank);
        receivers
            .map(|peer| Edge::new(sender, peer, ConnectionIndex::Collective, step_bytes))
            .all(|edge| shares(&edge))
    })
}
