//! In which order network ports are tried.

use crate::model::NodeKind;
use crate::path::{PathKind, Topology};

/// Ports for one endpoint (or for all when `endpoint` is `None`): the preferred ones first, then
/// the others from near to far up to `farthest`.
pub(super) fn candidates(
    topology: &Topology,
    endpoint: Option<usize>,
    farthest: PathKind,
) -> Vec<usize> {
    let system = topology.system();
    let endpoints = system.of_kind(NodeKind::Endpoint);
    let nets = system.of_kind(NodeKind::Net);
    let chosen = match endpoint {
        Some(endpoint) => endpoint..endpoint + 1,
        None => 0..endpoints.len(),
    };
    let mut listed = vec![false; nets.len()];
    let mut order = Vec::new();
    let mut add = |net: usize| {
        if !std::mem::replace(&mut listed[net], true) {
            order.push(net);
        }
    };
    for endpoint in chosen.clone() {
        topology
            .local_nets()
            .nets(endpoint)
            .iter()
            .copied()
            .for_each(&mut add);
    }
    let mut kind = PathKind::Local;
    while kind <= farthest && kind < PathKind::Disconnected {
        for endpoint in chosen.clone() {
            for (net, node) in nets.iter().enumerate() {
                if topology.paths().get(endpoints[endpoint], *node).kind == kind {
                    add(net);
                }
            }
        }
        kind = kind.farther();
    }
    order
}
