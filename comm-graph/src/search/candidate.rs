//! What a search yields: the channels of one pattern.

use crate::path::PathKind;

/// The shape of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pattern {
    /// A chain whose first two ranks share the network traffic.
    BalancedTree = 1,
    /// A chain that receives at its first rank and sends at its second.
    SplitTree = 2,
    /// A chain whose first rank does all network traffic.
    Tree = 3,
    /// A ring (a chain between two networks when there are several hosts).
    Ring = 4,
    /// One head per channel that reduces through the NVSwitch.
    Nvls = 5,
}

impl Pattern {
    /// Whether channels of the pattern are trees over hosts.
    #[must_use]
    pub const fn is_tree(self) -> bool {
        matches!(self, Self::BalancedTree | Self::SplitTree | Self::Tree)
    }
}

/// One channel inside a domain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChannelGraph {
    /// Endpoint indices in chain order; NVLS channels hold their head only.
    pub endpoints: Vec<usize>,
    /// Indices of the network ports through which the channel enters and leaves; `None` inside
    /// one host.
    pub nets: Option<[usize; 2]>,
}

/// The channels found for one pattern.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    /// The shape; may be simpler than the one asked for.
    pub pattern: Pattern,
    /// The channels.
    pub channels: Vec<ChannelGraph>,
    /// Bandwidth per channel between devices, in GB/s.
    pub bw_intra: f32,
    /// Bandwidth per channel on the network, in GB/s.
    pub bw_inter: f32,
    /// The farthest path between devices that channels may use.
    pub type_intra: PathKind,
    /// The farthest path to a network that channels may use.
    pub type_inter: PathKind,
    /// Whether all channels have the same order.
    pub same_channels: bool,
    /// 0: channels enter and leave on one rail; 1: on any; 2: in alternating pairs.
    pub cross_nic: u8,
    /// Latency of the network in microseconds.
    pub latency_inter: f32,
    /// Links used by all channels together, counted as NCCL does over both of its passes.
    pub hops: i64,
}

/// A solution under construction: channels stored flat.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) pattern: Pattern,
    pub(super) channels: usize,
    pub(super) order: Vec<usize>,
    pub(super) nets: Vec<[usize; 2]>,
    pub(super) bw_intra: f32,
    pub(super) bw_inter: f32,
    pub(super) type_intra: PathKind,
    pub(super) type_inter: PathKind,
    pub(super) same_channels: bool,
    pub(super) cross_nic: u8,
    pub(super) latency_inter: f32,
    pub(super) hops: i64,
    pub(super) min_channels: usize,
    pub(super) max_channels: usize,
}

impl Candidate {
    /// Takes over what a better solution is made of.
    pub(super) fn copy_from(&mut self, other: &Self, endpoints: usize) {
        let Self {
            order,
            nets,
            channels,
            ..
        } = other;
        self.order[..channels * endpoints].copy_from_slice(&order[..channels * endpoints]);
        self.nets[..*channels].copy_from_slice(&nets[..*channels]);
        self.pattern = other.pattern;
        self.channels = other.channels;
        self.bw_intra = other.bw_intra;
        self.bw_inter = other.bw_inter;
        self.type_intra = other.type_intra;
        self.type_inter = other.type_inter;
        self.same_channels = other.same_channels;
        self.cross_nic = other.cross_nic;
        self.latency_inter = other.latency_inter;
        self.hops = other.hops;
    }

    /// Whether this solution should replace `best`.
    pub(super) fn is_better_than(&self, best: &Self, endpoints: usize) -> bool {
        if self.channels < self.min_channels {
            return false;
        }
        let (new, old) = (self.channels as f32, best.channels as f32);
        if self.pattern == Pattern::Nvls {
            let more = self.channels > best.channels && self.channels <= endpoints;
            return more || new * self.bw_inter > old * best.bw_inter;
        }
        let (ours, theirs) = (new * self.bw_intra, old * best.bw_intra);
        if ours != theirs {
            return ours > theirs;
        }
        self.pattern == best.pattern && self.cross_nic == best.cross_nic && self.hops < best.hops
    }

    pub(super) fn into_graph(self, endpoints: usize, networks: bool) -> Graph {
        let length = if self.pattern == Pattern::Nvls {
            1
        } else {
            endpoints
        };
        let channels = (0..self.channels)
            .map(|channel| ChannelGraph {
                endpoints: self.order[channel * endpoints..][..length].to_vec(),
                nets: networks.then(|| self.nets[channel]),
            })
            .collect();
        Graph {
            pattern: self.pattern,
            channels,
            bw_intra: self.bw_intra,
            bw_inter: self.bw_inter,
            type_intra: self.type_intra,
            type_inter: self.type_inter,
            same_channels: self.same_channels,
            cross_nic: self.cross_nic,
            latency_inter: self.latency_inter,
            hops: self.hops,
        }
    }
}
