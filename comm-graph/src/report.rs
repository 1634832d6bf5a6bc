//! A plan as one serialisable value, in the field names of NCCL's own answers.
//!
//! Serialise [`GraphReport`] with any serde format; in JSON it has `rank_domain`,
//! `domains[].paths` and `domains[].graphs`, `final`, `p2p_schedule` and `tuning`. Lists of ranks
//! grow with the square of ranks for `p2p_schedule` and linearly otherwise; very large jobs leave
//! `p2p_schedule` out (see [`GraphReport::LARGEST_SCHEDULE`]).

use std::collections::BTreeMap;

use serde::Serialize;

use crate::model::{NodeKind, System};
use crate::path::{PathKind, Topology};
use crate::plan::{DomainClass, Plan};
use crate::search::Graph;
use crate::tuning::{Algorithm, Collective, CostModel, Protocol};

/// Everything about a plan.
#[derive(Clone, Debug, Serialize)]
pub struct GraphReport {
    /// The number of ranks.
    pub nranks: usize,
    /// The number of connectivity domains, NCCL's "nodes".
    pub nccl_nodes: usize,
    /// Lowest compute capability of all GPUs; `None` without GPUs.
    pub min_cc: Option<u32>,
    /// Highest compute capability of all GPUs; `None` without GPUs.
    pub max_cc: Option<u32>,
    /// Per rank: the kind of its domain, an index into `domains`.
    pub rank_domain: Vec<usize>,
    /// The kinds of domains.
    pub domains: Vec<DomainReport>,
    /// The channels over all hosts.
    #[serde(rename = "final")]
    pub final_channels: FinalReport,
    /// Whom every rank meets in every round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p2p_schedule: Option<ScheduleReport>,
    /// Per collective: latency and bandwidth by algorithm and protocol.
    pub tuning: BTreeMap<&'static str, TuningReport>,
}

/// One kind of domain.
#[derive(Clone, Debug, Serialize)]
pub struct DomainReport {
    /// Its devices and ports.
    pub system: SystemReport,
    /// Its paths.
    pub paths: PathsReport,
    /// Its searched channels.
    pub graphs: GraphsReport,
}

/// Devices and ports of a domain.
#[derive(Clone, Debug, Serialize)]
pub struct SystemReport {
    /// Largest bandwidth of a path, GB/s.
    pub max_bw: f32,
    /// Largest sum of link bandwidths of a device, GB/s.
    pub total_bw: f32,
    /// 1 when the communicator has ranks outside the domain.
    pub inter: u8,
    /// Rank, device number and PCI address of each endpoint.
    pub gpus: Vec<EndpointReport>,
    /// Device number, bandwidth and nearest endpoint of each port.
    pub nets: Vec<NetReport>,
}

/// One endpoint.
#[derive(Clone, Debug, Serialize)]
pub struct EndpointReport {
    /// Position among the endpoints of the domain.
    pub index: usize,
    /// Rank in the topology file.
    pub rank: u32,
    /// Device number on its host.
    pub dev: u32,
    /// PCI address; `None` for host memory.
    pub busid: Option<String>,
    /// Compute capability; `None` for host memory.
    pub sm: Option<u32>,
}

/// One network port.
#[derive(Clone, Debug, Serialize)]
pub struct NetReport {
    /// Position among the ports.
    pub index: usize,
    /// Port number on its host.
    pub dev: u32,
    /// Bandwidth, GB/s.
    pub bw: f32,
    /// The endpoint that drives it, -1 for none.
    pub local_gpu: i64,
}

/// `[kind, GB/s, hops]`.
pub type PathReport = (PathKind, f32, usize);

/// Path tables, row by source.
#[derive(Clone, Debug, Serialize)]
pub struct PathsReport {
    /// Between endpoints.
    pub gpu_gpu: Vec<Vec<PathReport>>,
    /// From endpoints to ports.
    pub gpu_net: Vec<Vec<PathReport>>,
    /// From ports to endpoints.
    pub net_gpu: Vec<Vec<PathReport>>,
    /// From endpoints to CPUs.
    pub gpu_cpu: Vec<Vec<PathReport>>,
}

/// The searched channels of a domain.
#[derive(Clone, Debug, Serialize)]
pub struct GraphsReport {
    /// Rings.
    pub ring: PatternReport,
    /// Trees.
    pub tree: PatternReport,
    /// NVLS heads, where there is an NVSwitch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvls: Option<PatternReport>,
}

/// The channels of one pattern.
#[derive(Clone, Debug, Serialize)]
pub struct PatternReport {
    /// 1 balanced tree, 2 split tree, 3 tree, 4 ring, 5 NVLS.
    pub pattern: u8,
    /// Number of channels.
    pub nchannels: usize,
    /// GB/s per channel between devices.
    pub bw_intra: f32,
    /// GB/s per channel on the network.
    pub bw_inter: f32,
    /// Farthest path between devices.
    pub type_intra: PathKind,
    /// Farthest path to the network.
    pub type_inter: PathKind,
    /// 1 when all channels have one order.
    pub same_channels: u8,
    /// How rings change network cards (0, 1, 2).
    pub cross_nic: u8,
    /// Network latency, microseconds.
    pub latency_inter: f32,
    /// Links used by all channels.
    pub nhops: i64,
    /// What the search took, in milliseconds of the clock given to the planner; 0 without one.
    pub search_ms: f64,
    /// The channels.
    pub channels: Vec<ChannelReport>,
}

/// One channel of one domain.
#[derive(Clone, Debug, Serialize)]
pub struct ChannelReport {
    /// Ranks (of the topology file) in chain order.
    pub intra: Vec<u32>,
    /// Port numbers in hexadecimal by which the channel enters and leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net: Option<[String; 2]>,
}

/// Channels over all hosts.
#[derive(Clone, Debug, Serialize)]
pub struct FinalReport {
    /// Number of channels.
    pub nchannels: usize,
    /// Per channel: ranks in travel order from rank 0.
    pub rings: Vec<Vec<u32>>,
    /// Per channel and rank: the parent, -1 at the root.
    pub tree_up: Vec<Vec<i64>>,
    /// Per channel and rank: the children, -1 for none.
    pub tree_down: Vec<Vec<[i64; 3]>>,
}

/// Rounds of point-to-point traffic.
#[derive(Clone, Debug, Serialize)]
pub struct ScheduleReport {
    /// Per rank and round: whom the rank sends to.
    pub send: Vec<Vec<u32>>,
    /// Ranks per group.
    pub group_size: u32,
}

/// Costs of one collective.
#[derive(Clone, Debug, Serialize)]
pub struct TuningReport {
    /// By "algorithm/protocol": latency in microseconds, algorithm bandwidth in GB/s.
    pub lat_bw: BTreeMap<String, [f64; 2]>,
    /// By size: `[log2 bytes, algorithm, protocol, channels, warps, microseconds]` of the fastest
    /// way for 8 bytes to 8 GiB.
    pub choice: Vec<ChoiceReport>,
}

/// One size: log2 of its bytes, algorithm, protocol, channels, warps per channel, microseconds.
pub type ChoiceReport = (u32, &'static str, &'static str, usize, u64, f64);

impl GraphReport {
    /// Jobs with more ranks than this leave `p2p_schedule` out: it grows with their square.
    pub const LARGEST_SCHEDULE: usize = 4096;

    /// Describes a plan.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let ranges = plan
            .domains()
            .iter()
            .filter_map(|d| d.topology.system().compute_capabilities());
        let ranks = plan.ranks() as u32;
        let model = CostModel::new(plan);
        Self {
            nranks: plan.ranks(),
            nccl_nodes: plan.nodes(),
            min_cc: ranges.clone().map(|range| range.0).min(),
            max_cc: ranges.map(|range| range.1).max(),
            rank_domain: (0..ranks).filter_map(|rank| plan.domain_of(rank)).collect(),
            domains: plan.domains().iter().map(DomainReport::new).collect(),
            final_channels: FinalReport::new(plan),
            p2p_schedule: (plan.ranks() <= Self::LARGEST_SCHEDULE)
                .then(|| ScheduleReport::new(plan)),
            tuning: Collective::ALL
                .iter()
                .map(|collective| (collective.as_str(), TuningReport::new(&model, *collective)))
                .collect(),
        }
    }
}

impl DomainReport {
    fn new(domain: &DomainClass) -> Self {
        let topology = &domain.topology;
        let pattern = |graph: &Graph, ms| PatternReport::new(topology.system(), graph, ms);
        let [ring, tree, nvls] = domain.search_ms;
        Self {
            system: SystemReport::new(topology),
            paths: PathsReport {
                gpu_gpu: table(topology, NodeKind::Endpoint, NodeKind::Endpoint),
                gpu_net: table(topology, NodeKind::Endpoint, NodeKind::Net),
                net_gpu: table(topology, NodeKind::Net, NodeKind::Endpoint),
                gpu_cpu: table(topology, NodeKind::Endpoint, NodeKind::Cpu),
            },
            graphs: GraphsReport {
                ring: pattern(&domain.ring, ring),
                tree: pattern(&domain.tree, tree),
                nvls: (!domain.nvls.channels.is_empty()).then(|| pattern(&domain.nvls, nvls)),
            },
        }
    }
}

fn table(topology: &Topology, from: NodeKind, to: NodeKind) -> Vec<Vec<PathReport>> {
    let system = topology.system();
    let row = |from| {
        let paths = system
            .of_kind(to)
            .iter()
            .map(|to| topology.paths().get(from, *to));
        paths
            .map(|path| (path.kind, path.gbps, path.hops()))
            .collect()
    };
    system.of_kind(from).iter().map(|from| row(*from)).collect()
}

impl SystemReport {
    fn new(topology: &Topology) -> Self {
        let system = topology.system();
        let endpoints = system.of_kind(NodeKind::Endpoint).iter().enumerate();
        let gpus = endpoints.filter_map(|(index, node)| {
            let (endpoint, (_, device)) = (system.endpoint(index)?, system.device_of(*node)?);
            Some(EndpointReport {
                index,
                rank: endpoint.rank,
                dev: endpoint.dev,
                busid: device.bus_id.map(|id| id.to_string()),
                sm: device.compute_capability(),
            })
        });
        let nets = (0..system.of_kind(NodeKind::Net).len()).filter_map(|index| {
            let net = system.net(index)?;
            let local = topology.local_nets().endpoint(index);
            let local_gpu = local.map_or(-1, |endpoint| endpoint as i64);
            Some(NetReport {
                index,
                dev: net.dev,
                bw: net.gbps,
                local_gpu,
            })
        });
        Self {
            max_bw: topology.max_gbps(),
            total_bw: topology.total_gbps(),
            inter: u8::from(topology.is_part()),
            gpus: gpus.collect(),
            nets: nets.collect(),
        }
    }
}

impl PatternReport {
    fn new(system: &System, graph: &Graph, search_ms: f64) -> Self {
        let ranks = system.ranks();
        let port = |net: usize| {
            system
                .net(net)
                .map_or(String::new(), |net| format!("{:x}", net.dev))
        };
        let channels = graph.channels.iter().map(|channel| ChannelReport {
            intra: channel
                .endpoints
                .iter()
                .map(|endpoint| ranks[*endpoint])
                .collect(),
            net: channel.nets.map(|nets| nets.map(port)),
        });
        Self {
            pattern: graph.pattern as u8,
            nchannels: graph.channels.len(),
            bw_intra: graph.bw_intra,
            bw_inter: graph.bw_inter,
            type_intra: graph.type_intra,
            type_inter: graph.type_inter,
            same_channels: u8::from(graph.same_channels),
            cross_nic: graph.cross_nic,
            latency_inter: graph.latency_inter,
            nhops: graph.hops,
            search_ms,
            channels: channels.collect(),
        }
    }
}

impl FinalReport {
    fn new(plan: &Plan) -> Self {
        let number = |rank: Option<u32>| rank.map_or(-1, i64::from);
        let ranks = || 0..plan.ranks() as u32;
        let channels = || 0..plan.channels();
        let trees = |channel| ranks().filter_map(move |rank| plan.tree(rank, channel));
        Self {
            nchannels: plan.channels(),
            rings: channels().map(|channel| plan.ring_order(channel)).collect(),
            tree_up: channels()
                .map(|channel| trees(channel).map(|tree| number(tree.up)).collect())
                .collect(),
            tree_down: channels()
                .map(|channel| trees(channel).map(|tree| tree.down.map(number)).collect())
                .collect(),
        }
    }
}

impl ScheduleReport {
    fn new(plan: &Plan) -> Self {
        let schedule = plan.p2p_schedule();
        let sends = |rank| schedule.rounds(rank).map(|round| round.send).collect();
        Self {
            send: (0..plan.ranks() as u32).map(sends).collect(),
            group_size: schedule.group_size(),
        }
    }
}

impl TuningReport {
    fn new(model: &CostModel, collective: Collective) -> Self {
        let mut lat_bw = BTreeMap::new();
        for algorithm in Algorithm::ALL {
            for protocol in Protocol::ALL {
                if let Some(cost) = model.cost(collective, *algorithm, *protocol) {
                    let pair = [cost.latency_us, cost.gbps];
                    lat_bw.insert(format!("{algorithm}/{protocol}"), pair);
                }
            }
        }
        let choice = (3..=33).filter_map(|exponent| {
            let choice = model.choose(collective, 1 << exponent)?;
            let found = choice.prediction;
            Some((
                exponent,
                found.algorithm.as_str(),
                found.protocol.as_str(),
                choice.channels,
                choice.warps,
                found.time_us,
            ))
        });
        Self {
            lat_bw,
            choice: choice.collect(),
        }
    }
}
