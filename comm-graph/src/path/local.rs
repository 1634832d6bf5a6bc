//! Which network port serves which endpoint.

use crate::model::{NodeId, NodeKind, System};
use crate::options::NetDevsPolicy;

use super::kind::PathKind;
use super::table::Paths;

/// Nearest ports of endpoints and nearest endpoints of ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalNets {
    /// Per endpoint: the ports it uses, one per channel in turn. Empty without networks.
    of_endpoint: Vec<Vec<usize>>,
    /// Per port: the endpoint that drives it.
    of_net: Vec<Option<usize>>,
}

impl LocalNets {
    /// The port that endpoint number `endpoint` uses on a channel.
    #[must_use]
    pub fn net(&self, endpoint: usize, channel: usize) -> Option<usize> {
        let nets = self.of_endpoint.get(endpoint)?;
        if nets.is_empty() {
            None
        } else {
            nets.get(channel % nets.len()).copied()
        }
    }

    /// The ports of an endpoint in channel order, each once.
    #[must_use]
    pub fn nets(&self, endpoint: usize) -> &[usize] {
        self.of_endpoint.get(endpoint).map_or(&[], Vec::as_slice)
    }

    /// The endpoint that drives port number `net`; `None` when no endpoint prefers it.
    #[must_use]
    pub fn endpoint(&self, net: usize) -> Option<usize> {
        self.of_net.get(net).copied().flatten()
    }

    pub(super) fn compute(system: &System, paths: &Paths, policy: NetDevsPolicy) -> Self {
        let endpoints = system.of_kind(NodeKind::Endpoint);
        let nets = system.of_kind(NodeKind::Net);
        let near_net: Vec<Vec<usize>> = nets
            .iter()
            .map(|net| nearest(paths, *net, endpoints).0)
            .collect();
        let of_endpoint: Vec<Vec<usize>> = (0..endpoints.len())
            .map(|index| ports_of(system, paths, policy, index, &near_net))
            .collect();
        // The first channel on which one of the near endpoints would use the port decides.
        let of_net = (0..nets.len())
            .map(|net| {
                let rounds = near_net[net].iter().map(|e| of_endpoint[*e].len()).max()?;
                (0..rounds).find_map(|channel| {
                    near_net[net].iter().copied().find(|endpoint| {
                        let ports = &of_endpoint[*endpoint];
                        !ports.is_empty() && ports[channel % ports.len()] == net
                    })
                })
            })
            .collect();
        Self {
            of_endpoint,
            of_net,
        }
    }
}

/// The nodes with the best path from `from`: most bandwidth first, nearest kind second.
pub(crate) fn nearest(paths: &Paths, from: NodeId, to: &[NodeId]) -> (Vec<usize>, PathKind) {
    let (mut gbps, mut kind) = (0.0_f32, PathKind::Disconnected);
    let mut found = Vec::new();
    for (index, node) in to.iter().enumerate() {
        let path = paths.get(from, *node);
        if path.gbps > gbps || (path.gbps == gbps && path.kind < kind) {
            (gbps, kind) = (path.gbps, path.kind);
            found.clear();
        }
        if path.gbps == gbps && path.kind == kind && kind != PathKind::Disconnected {
            found.push(index);
        }
    }
    (found, kind)
}

fn ports_of(
    system: &System,
    paths: &Paths,
    policy: NetDevsPolicy,
    index: usize,
    near_net: &[Vec<usize>],
) -> Vec<usize> {
    let endpoints = system.of_kind(NodeKind::Endpoint);
    let (near, _) = nearest(paths, endpoints[index], system.of_kind(NodeKind::Net));
    let Some(first) = near.first() else {
        return Vec::new();
    };
    let sharing = near_net[*first].len().max(1);
    let each = match policy {
        NetDevsPolicy::Auto => near.len().div_ceil(sharing),
        NetDevsPolicy::All => near.len(),
        NetDevsPolicy::Max(most) => near.len().min(most),
    };
    let dev = system
        .endpoint(index)
        .map_or(0, |endpoint| endpoint.dev as usize);
    let mut start = dev % sharing;
    if near.len().is_power_of_two() {
        start = mirror_bits(start, near.len());
    }
    let mut ports: Vec<usize> = Vec::with_capacity(each);
    for channel in 0..each {
        let port = near[(start + channel) % near.len()];
        if ports.first() == Some(&port) {
            break;
        }
        ports.push(port);
    }
    ports
}

/// Reverses the bits of `value` within a power of two.
fn mirror_bits(value: usize, power_of_two: usize) -> usize {
    let bits = power_of_two.trailing_zeros();
    (0..bits)
        .filter(|bit| value >> bit & 1 == 1)
        .map(|bit| 1 << (bits - 1 - bit))
        .sum()
}
