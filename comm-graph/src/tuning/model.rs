//! The model: latency and bandwidth per (collective, algorithm, protocol).

use crate::model::{CpuArch, CpuVendor};
use crate::path::PathKind;
use crate::plan::{CommonGraph, Plan};
use crate::search::Pattern;

use super::constants::{CostTable, HopLatency, ProtocolLatency};
use super::names::{Algorithm, Collective, Protocol};

impl ProtocolLatency {
    const fn of(&self, protocol: Protocol) -> f64 {
        match protocol {
            Protocol::Ll => self.ll,
            Protocol::Ll128 => self.ll128,
            Protocol::Simple => self.simple,
        }
    }
}

/// Latency and bandwidth of one way to run a collective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Latency in microseconds.
    pub latency_us: f64,
    /// Algorithm bandwidth (message bytes over time) in GB/s.
    pub gbps: f64,
}

/// A predicted run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The protocol.
    pub protocol: Protocol,
    /// Predicted time in microseconds.
    pub time_us: f64,
    /// Bus bandwidth in GB/s: what each link carries, comparable between collectives.
    pub bus_gbps: f64,
}

/// The costs of a communicator.
#[derive(Clone, Debug)]
pub struct CostModel {
    table: CostTable,
    pub(super) ranks: f64,
    nodes: usize,
    channels: usize,
    pub(super) final_channels: usize,
    pub(super) ring: CommonGraph,
    tree: CommonGraph,
    nvls: Option<CommonGraph>,
    uniform: bool,
    recent: bool,
}

impl CostModel {
    /// The model with the built-in constants: GPUs if every domain has them, host memory otherwise.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let systems = plan.domains().iter().map(|domain| domain.topology.system());
        let slowest = systems
            .clone()
            .map(|system| system.compute_capabilities().map(|(slowest, _)| slowest))
            .try_fold(u32::MAX, |least, slowest| {
                slowest.map(|slowest| least.min(slowest))
            });
        let vendors: Vec<_> = systems
            .filter_map(|system| system.cpu(0))
            .map(|cpu| (cpu.arch, std::mem::discriminant(&cpu.vendor)))
            .collect();
        let amd = (CpuArch::X86, std::mem::discriminant(&CpuVendor::Amd));
        let mixed = vendors.windows(2).any(|pair| pair[0] != pair[1]);
        let table = match slowest {
            Some(slowest) => CostTable::gpu(slowest, plan.nodes(), mixed || vendors.contains(&amd)),
            None => CostTable::host_memory(),
        };
        Self::with_table(plan, table)
    }

    /// The model with given constants.
    #[must_use]
    pub fn with_table(plan: &Plan, table: CostTable) -> Self {
        let systems = plan.domains().iter().map(|domain| domain.topology.system());
        let ranges: Vec<_> = systems
            .map(|s| s.compute_capabilities().unwrap_or((0, 0)))
            .collect();
        let slowest = ranges.iter().map(|range| range.0).min().unwrap_or(0);
        let fastest = ranges.iter().map(|range| range.1).max().unwrap_or(0);
        Self {
            table,
            ranks: plan.ranks() as f64,
            nodes: plan.nodes(),
            channels: plan.ring_graph().channels.min(plan.tree_graph().channels),
            final_channels: plan.channels(),
            ring: plan.ring_graph().clone(),
            tree: plan.tree_graph().clone(),
            nvls: plan.nvls_graph().cloned(),
            uniform: slowest == fastest || slowest >= 90,
            recent: slowest >= 90,
        }
    }

    /// Latency and bandwidth; `None` for combinations that do not exist on this communicator.
    #[must_use]
    pub fn cost(
        &self,
        collective: Collective,
        algorithm: Algorithm,
        protocol: Protocol,
    ) -> Option<Cost> {
        use Collective::{AllGather, AllReduce, Broadcast, Reduce, ReduceScatter};
        if self.ranks < 2.0 {
            return None;
        }
        let simple = protocol == Protocol::Simple;
        let share = matches!(collective, AllGather | ReduceScatter);
        let exists = match algorithm {
            Algorithm::Ring => true,
            Algorithm::Tree => collective == AllReduce,
            Algorithm::Nvls => {
                simple && self.nodes == 1 && !matches!(collective, Broadcast | Reduce)
            }
            Algorithm::NvlsTree => simple && self.nodes > 1 && collective == AllReduce,
            Algorithm::Pat => simple && share && self.ranks == self.nodes as f64,
        };
        if !exists || (protocol == Protocol::Ll128 && !self.ll128_works(algorithm)) {
            return None;
        }
        let steps = match collective {
            AllReduce => 2.0 * (self.ranks - 1.0),
            AllGather | ReduceScatter => self.ranks - 1.0,
            Broadcast | Reduce => self.ranks,
        };
        let bus = self.bus_gbps(collective, algorithm, protocol)?;
        let gbps = match algorithm {
            Algorithm::Ring => bus * self.ranks / steps,
            _ if share => bus,
            Algorithm::Nvls | Algorithm::NvlsTree => bus * self.ranks / steps,
            Algorithm::Tree | Algorithm::Pat => bus * 0.5,
        };
        let latency_us = self.latency_us(collective, algorithm, protocol, steps);
        Some(Cost { latency_us, gbps })
    }

    /// Predicted time in microseconds for a message of `bytes` (per rank for AllGather's output
    /// and ReduceScatter's input, as NCCL counts).
    ///
    /// Beyond latency and bandwidth, two effects of size count: pipelines of trees fill up slowly,
    /// and rings of the Simple protocol over several nodes have a longer latency when every rank
    /// handles at least 64 bytes per channel.
    #[must_use]
    pub fn time_us(
        &self,
        collective: Collective,
        algorithm: Algorithm,
        protocol: Protocol,
        bytes: u64,
    ) -> Option<f64> {
        let Cost {
            mut latency_us,
            mut gbps,
        } = self.cost(collective, algorithm, protocol)?;
        let size_class = (bytes >> 6).checked_ilog2().map(|class| class as usize);
        let shares = &self.table.tree_share_by_size[protocol as usize];
        if algorithm == Algorithm::Tree
            && let Some(share) = size_class.and_then(|class| shares.get(class))
        {
            gbps *= share;
        }
        let each = bytes as f64 / (self.final_channels as f64 * self.ranks);
        let large_ring = algorithm == Algorithm::Ring
            && protocol == Protocol::Simple
            && self.nodes > 1
            && collective == Collective::AllReduce
            && each >= 64.0;
        if large_ring {
            latency_us *= self.table.large_ring_latency_factor;
        }
        Some(latency_us + bytes as f64 / (1000.0 * gbps))
    }

    /// Predictions for all algorithms and protocols, fastest first.
    #[must_use]
    pub fn predict(&self, collective: Collective, bytes: u64) -> Vec<Prediction> {
        let factor = match collective {
            Collective::AllReduce => 2.0 * (self.ranks - 1.0) / self.ranks,
            Collective::AllGather | Collective::ReduceScatter => (self.ranks - 1.0) / self.ranks,
            Collective::Broadcast | Collective::Reduce => 1.0,
        };
        let mut found = Vec::new();
        for algorithm in Algorithm::ALL {
            for protocol in Protocol::ALL {
                let time = self.time_us(collective, *algorithm, *protocol, bytes);
                let Some(time_us) = time.filter(|time| time.is_finite()) else {
                    continue;
                };
                found.push(Prediction {
                    algorithm: *algorithm,
                    protocol: *protocol,
                    time_us,
                    bus_gbps: bytes as f64 / (1000.0 * time_us) * factor,
                });
            }
        }
        found.sort_by(|a, b| a.time_us.total_cmp(&b.time_us));
        found
    }

    /// Stores of 128 bytes arrive as one only over NVLink and with the network card near the GPU.
    fn ll128_works(&self, algorithm: Algorithm) -> bool {
        let graph = if algorithm == Algorithm::Tree {
            &self.tree
        } else {
            &self.ring
        };
        let farthest = if self.recent {
            PathKind::Pxn
        } else {
            PathKind::Pxb
        };
        self.table.ll128
            && self.uniform
            && graph.type_intra <= PathKind::NvLinkRelay
            && graph.type_inter <= farthest
    }

    fn bus_gbps(
        &self,
        collective: Collective,
        algorithm: Algorithm,
        protocol: Protocol,
    ) -> Option<f64> {
        let table = &self.table;
        let graph = match algorithm {
            Algorithm::Tree => &self.tree,
            Algorithm::Nvls | Algorithm::NvlsTree => self.nvls.as_ref()?,
            Algorithm::Ring | Algorithm::Pat => &self.ring,
        };
        let searched = if matches!(algorithm, Algorithm::Nvls | Algorithm::NvlsTree) {
            graph.channels
        } else {
            self.channels
        };
        let channels = searched as f64;
        let (intra, inter) = (f64::from(graph.bw_intra), f64::from(graph.bw_inter));
        let raw = channels * if self.nodes <= 2 { intra } else { inter };
        Some(match algorithm {
            Algorithm::Ring => match protocol {
                Protocol::Ll => table.ll_max_gbps.min(raw * table.ring_ll_share),
                Protocol::Ll128 => (0.92 * raw).min(channels * table.ring_ll128_channel_gbps),
                Protocol::Simple => raw,
            },
            Algorithm::Tree => {
                let tree = (0.92 * raw).min(channels * table.tree_channel_gbps);
                let line = if self.nodes == 1 {
                    7.0 / 9.0
                } else {
                    120.0 / 128.0
                };
                let reached = match protocol {
                    Protocol::Ll => (tree * table.tree_ll_share).min(table.ll_max_gbps),
                    Protocol::Ll128 => (tree * line).min(channels * table.tree_ll128_channel_gbps),
                    Protocol::Simple => tree,
                };
                if graph.pattern == Pattern::Tree {
                    reached * 0.85
                } else {
                    reached
                }
            }
            Algorithm::Pat => raw * 0.75,
            Algorithm::Nvls | Algorithm::NvlsTree => {
                let per_node = self.ranks / self.nodes as f64;
                let both_ways = match collective {
                    Collective::AllReduce => 2.0,
                    _ => (per_node - 1.0) / per_node,
                };
                let switch = intra * table.nvls_share * (channels - 1.0) / channels * both_ways;
                let network = match self.nodes {
                    // Two nodes send each other only half of what a tree node passes on.
                    2 => 2.0 * inter,
                    _ => inter,
                };
                let mut channel = switch.min(network);
                if algorithm == Algorithm::NvlsTree {
                    channel = channel.min(table.nvls_tree_channel_gbps);
                }
                channels * channel
            }
        })
    }

    fn latency_us(
        &self,
        collective: Collective,
        algorithm: Algorithm,
        protocol: Protocol,
        steps: f64,
    ) -> f64 {
        let table = &self.table;
        let simple = protocol == Protocol::Simple;
        let nodes = self.nodes as f64;
        let per_node = self.ranks / nodes;
        let levels = f64::from(self.nodes.max(1).ilog2());
        // Simple has to flush what arrived, which costs another network latency.
        let flushes = if simple { 2.0 } else { 1.0 };
        let network = |graph: &CommonGraph| f64::from(graph.latency_inter) * flushes;
        let wire = |graph: &CommonGraph| -> &HopLatency {
            if graph.type_intra == PathKind::NvLink {
                &table.near_hop
            } else {
                &table.far_hop
            }
        };
        match algorithm {
            Algorithm::Ring => {
                let base = table.base.ring.of(protocol);
                if matches!(collective, Collective::Broadcast | Collective::Reduce) {
                    let hop = if self.nodes == 1 {
                        wire(&self.ring)
                    } else {
                        &table.net_hop
                    };
                    return base
                        + match (self.ring.same_channels, simple) {
                            (true, _) => hop.ring.of(protocol),
                            (false, true) => steps * hop.tree.of(protocol),
                            (false, false) => steps * hop.ring.of(protocol),
                        };
                }
                // With one rank per node nothing hides the network.
                let hop = if per_node == 1.0 {
                    table.net_hop.tree
                } else {
                    table.net_hop.ring
                };
                let inter = hop.of(protocol) + network(&self.ring);
                let least = match (self.nodes, simple) {
                    (1, _) => 0.0,
                    (_, true) => 3.0 * table.net_step_us,
                    (_, false) => table.net_step_us,
                };
                let intra = wire(&self.ring).ring.of(protocol).max(least);
                let rounds = if collective == Collective::AllReduce {
                    2.0
                } else {
                    1.0
                };
                let inter_steps = rounds * (nodes - 1.0);
                base + (steps - inter_steps) * intra + inter_steps * inter
            }
            Algorithm::Tree => {
                let intra = wire(&self.tree).tree.of(protocol);
                let inter = table.net_hop.tree.of(protocol) + network(&self.tree);
                let chain = per_node.floor() - 1.0;
                table.base.tree.of(protocol) + 2.0 * (chain * intra + levels * inter)
            }
            Algorithm::Nvls => table.nvls_us,
            Algorithm::NvlsTree => {
                let latency = self.nvls.as_ref().map_or(0.0, network);
                table.nvls_us + 2.0 * levels * (table.nvls_tree_hop_us + latency)
            }
            Algorithm::Pat => {
                let [base, level, rank] = table.pat_us;
                base + levels * (level + network(&self.ring) / 3.5) + rank * self.ranks
            }
        }
    }
}
