//! What all nodes agree on: the weakest of each property.

use crate::path::PathKind;
use crate::search::{Graph, Pattern};

/// The properties of a pattern that hold on every node.
#[derive(Clone, Debug, PartialEq)]
pub struct CommonGraph {
    /// The pattern on the first node; nodes may use simpler trees.
    pub pattern: Pattern,
    /// Channels that every node has.
    pub channels: usize,
    /// The smallest bandwidth per channel inside a node, GB/s.
    pub bw_intra: f32,
    /// The smallest bandwidth per channel between nodes, GB/s.
    pub bw_inter: f32,
    /// The farthest path used inside a node.
    pub type_intra: PathKind,
    /// The farthest path used to a network.
    pub type_inter: PathKind,
    /// Whether all channels of every node have one order.
    pub same_channels: bool,
    /// The most liberal use of network cards.
    pub cross_nic: u8,
    /// The largest network latency, microseconds.
    pub latency_inter: f32,
}

impl CommonGraph {
    pub(super) fn of<'a>(graphs: impl IntoIterator<Item = &'a Graph>) -> Option<Self> {
        let mut common: Option<Self> = None;
        for graph in graphs {
            let Some(so_far) = &mut common else {
                common = Some(Self::from(graph));
                continue;
            };
            so_far.channels = so_far.channels.min(graph.channels.len());
            so_far.bw_intra = so_far.bw_intra.min(graph.bw_intra);
            so_far.bw_inter = so_far.bw_inter.min(graph.bw_inter);
            so_far.type_intra = so_far.type_intra.max(graph.type_intra);
            so_far.type_inter = so_far.type_inter.max(graph.type_inter);
            so_far.same_channels &= graph.same_channels;
            so_far.cross_nic = so_far.cross_nic.max(graph.cross_nic);
            so_far.latency_inter = so_far.latency_inter.max(graph.latency_inter);
        }
        common
    }
}

impl From<&Graph> for CommonGraph {
    fn from(graph: &Graph) -> Self {
        Self {
            pattern: graph.pattern,
            channels: graph.channels.len(),
            bw_intra: graph.bw_intra,
            bw_inter: graph.bw_inter,
            type_intra: graph.type_intra,
            type_inter: graph.type_inter,
            same_channels: graph.same_channels,
            cross_nic: graph.cross_nic,
            latency_inter: graph.latency_inter,
        }
    }
}
