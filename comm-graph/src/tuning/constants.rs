//! Constants of the cost model.

use serde::{Deserialize, Serialize};

/// A latency per protocol, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProtocolLatency {
    /// LL: flag beside every word.
    pub ll: f64,
    /// LL128: flag per 128-byte line.
    pub ll128: f64,
    /// Simple: FIFO steps.
    pub simple: f64,
}

/// Latencies of one hop over one kind of wire.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HopLatency {
    /// In trees.
    pub tree: ProtocolLatency,
    /// In rings.
    pub ring: ProtocolLatency,
}

/// All constants that apply to one communicator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostTable {
    /// Fixed cost of an operation.
    pub base: HopLatency,
    /// One hop over NVLink.
    pub near_hop: HopLatency,
    /// One hop inside a host otherwise.
    pub far_hop: HopLatency,
    /// One hop over the network.
    pub net_hop: HopLatency,
    /// What each ring step costs at least when there are several nodes (three times for Simple).
    pub net_step_us: f64,
    /// NVLS inside a node, and over the network in a tree of nodes.
    pub nvls_us: f64,
    /// One level of an NVLS tree over the network.
    pub nvls_tree_hop_us: f64,
    /// PAT: fixed cost, one level, and the part per rank.
    pub pat_us: [f64; 3],
    /// The most bandwidth of LL over all channels, GB/s.
    pub ll_max_gbps: f64,
    /// Share of bandwidth that LL reaches in rings.
    pub ring_ll_share: f64,
    /// Share of a tree's bandwidth that LL reaches.
    pub tree_ll_share: f64,
    /// The most bandwidth of LL128 per ring channel, GB/s.
    pub ring_ll128_channel_gbps: f64,
    /// The most bandwidth per tree channel, GB/s.
    pub tree_channel_gbps: f64,
    /// The most bandwidth of LL128 per tree channel, GB/s.
    pub tree_ll128_channel_gbps: f64,
    /// The most bandwidth per NVLS tree channel, GB/s.
    pub nvls_tree_channel_gbps: f64,
    /// Share of NVLink bandwidth that NVLS reaches.
    pub nvls_share: f64,
    /// Whether LL128 can be used at all (stores of 128 bytes must arrive as one).
    pub ll128: bool,
    /// Share of a tree's bandwidth by message size, per protocol (LL, LL128, Simple): entry `i` is
    /// for `64 << i` bytes up to twice that. Other sizes reach all of it.
    pub tree_share_by_size: [[f64; 24]; 3],
    /// By how much latencies of large Simple rings over several nodes grow.
    pub large_ring_latency_factor: f64,
}

const fn latency(ll: f64, ll128: f64, simple: f64) -> ProtocolLatency {
    ProtocolLatency { ll, ll128, simple }
}

/// Rows: Volta, Ampere, Hopper, Blackwell; columns: 1, 2, more nodes.
type ByGeneration = [[f64; 3]; 4];

const LL_MAX: ByGeneration = [
    [39.0, 39.0, 20.4],
    [87.7, 22.5, 19.0],
    [141.0, 45.0, 35.0],
    [282.0, 90.0, 70.0],
];
const RING_LL128: ByGeneration = [[20.0; 3], [20.0; 3], [36.7; 3], [40.0; 3]];
const TREE_LL128: ByGeneration = [
    [20.0; 3],
    [20.0; 3],
    [36.7, 36.7, 29.0],
    [55.6, 31.67, 20.0],
];
const TREE: ByGeneration = [
    [26.5, 18.5, 10.0],
    [24.0, 23.6, 17.8],
    [38.7, 41.4, 36.0],
    [70.0, 42.8, 24.0],
];
const NVLS_TREE: ByGeneration = [[0.0; 3], [0.0; 3], [0.0, 57.7, 45.5], [0.0, 96.0, 80.0]];

/// Pipelines of trees fill up slowly: medium sizes reach less.
const TREE_SHARE: [[f64; 24]; 3] = [
    [
        1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8,
        0.9, 1.0, 1.0, 1.0, 1.0, 1.0,
    ],
    [
        1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9,
        0.9, 0.9, 0.9, 1.0, 1.0, 1.0,
    ],
    [
        0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8,
        0.7, 0.7, 0.8, 0.9, 0.9, 1.0,
    ],
];

impl CostTable {
    /// NCCL's constants for GPUs.
    ///
    /// `slowest` is the lowest compute capability, `nodes` the number of connectivity domains,
    /// `amd` whether a host has an AMD CPU (or hosts differ in their CPU's maker).
    #[must_use]
    pub fn gpu(slowest: u32, nodes: usize, amd: bool) -> Self {
        let generation = match slowest {
            100.. => 3,
            90.. => 2,
            80.. => 1,
            _ => 0,
        };
        let column = nodes.clamp(1, 3) - 1;
        // Over the network the CPU limits LL, not the GPU.
        let ll_row = if nodes <= 1 {
            generation
        } else {
            usize::from(amd)
        };
        Self {
            base: HopLatency {
                tree: latency(6.8, 14.0, 8.4),
                ring: latency(6.6, 14.0, 8.4),
            },
            near_hop: HopLatency {
                tree: latency(0.6, 1.25, 4.0),
                ring: latency(0.6, 1.9, 3.4),
            },
            far_hop: HopLatency {
                tree: latency(1.0, 1.9, 4.0),
                ring: latency(1.0, 2.5, 5.7),
            },
            net_hop: HopLatency {
                tree: latency(5.0, 8.5, 14.0),
                ring: latency(2.7, 4.0, 14.0),
            },
            net_step_us: if amd { 2.0 } else { 1.0 },
            nvls_us: 25.0,
            nvls_tree_hop_us: 20.9,
            pat_us: [8.0, 14.0 / 3.5, 2.8],
            ll_max_gbps: LL_MAX[ll_row][column],
            ring_ll_share: 0.5,
            tree_ll_share: 1.0 / 3.8,
            ring_ll128_channel_gbps: RING_LL128[generation][column],
            tree_channel_gbps: TREE[generation][column],
            tree_ll128_channel_gbps: TREE_LL128[generation][column],
            nvls_tree_channel_gbps: NVLS_TREE[generation][column],
            nvls_share: if generation == 3 { 0.74 } else { 0.85 },
            ll128: true,
            tree_share_by_size: TREE_SHARE,
            large_ring_latency_factor: if generation == 0 { 1.9 } else { 1.4 },
        }
    }

    /// Our defaults for host memory: shared memory inside a host, TCP between hosts.
    ///
    /// LL stands for the small-message line protocol. Replace the table by measured values where
    /// they are known.
    #[must_use]
    pub fn host_memory() -> Self {
        let shared = latency(1.0, 1.0, 2.0);
        let network = latency(20.0, 20.0, 25.0);
        let hop = HopLatency {
            tree: shared,
            ring: shared,
        };
        Self {
            base: hop,
            near_hop: hop,
            far_hop: hop,
            net_hop: HopLatency {
                tree: network,
                ring: network,
            },
            net_step_us: 0.0,
            nvls_us: 0.0,
            nvls_tree_hop_us: 0.0,
            pat_us: [2.0, 25.0, 0.1],
            ll_max_gbps: 2.0,
            ring_ll_share: 0.25,
            tree_ll_share: 0.25,
            ring_ll128_channel_gbps: 0.0,
            tree_channel_gbps: f64::MAX,
            tree_ll128_channel_gbps: 0.0,
            nvls_tree_channel_gbps: 0.0,
            nvls_share: 0.0,
            ll128: false,
            tree_share_by_size: [[1.0; 24]; 3],
            large_ring_latency_factor: 1.0,
        }
    }
}
