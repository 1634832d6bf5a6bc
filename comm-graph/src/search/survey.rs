//! What a domain looks like before the search.

use crate::model::NodeKind;
use crate::path::{PathKind, Topology};

/// Nearest and farthest kind of path from endpoints to other nodes of a kind.
pub(super) fn kinds(topology: &Topology, kind: NodeKind) -> (PathKind, PathKind) {
    let system = topology.system();
    let (mut nearest, mut farthest) = (PathKind::Disconnected, PathKind::Local);
    for from in system.of_kind(NodeKind::Endpoint) {
        for to in system.of_kind(kind).iter().filter(|to| *to != from) {
            let path = topology.paths().get(*from, *to);
            nearest = nearest.min(path.kind);
            farthest = farthest.max(path.kind);
        }
    }
    (nearest, farthest)
}

/// Whether NVLink splits the devices into exactly two groups: a single ring would cross the slow
/// link between them twice.
pub(super) fn has_two_islands(topology: &Topology) -> bool {
    let system = topology.system();
    let endpoints = system.of_kind(NodeKind::Endpoint);
    let mut island = vec![usize::MAX; endpoints.len()];
    let mut sizes: Vec<usize> = Vec::new();
    for a in 0..endpoints.len() {
        if island[a] == usize::MAX {
            island[a] = sizes.len();
            sizes.push(1);
        }
        for b in a + 1..endpoints.len() {
            let linked = topology.paths().get(endpoints[a], endpoints[b]).kind == PathKind::NvLink;
            if island[b] == usize::MAX && linked {
                island[b] = island[a];
                sizes[island[a]] += 1;
            }
        }
    }
    sizes.iter().filter(|size| **size > 1).count() == 2
}
