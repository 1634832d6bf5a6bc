//! From hosts to nodes: searching each kind of host once and placing its ranks.

use comm_core::{Error, ErrorKind};

use crate::model::System;
use crate::options::Options;
use crate::path::Topology;
use crate::search::{Graph, Limits, MAX_CHANNELS, Pattern, search};

use super::align::CommonGraph;
use super::duplicate::final_channels;

/// One host of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRanks {
    /// Which of the systems describes the host.
    pub system: usize,
    /// The rank on each endpoint, in ascending order of the ranks that the system's file gives.
    pub ranks: Vec<u32>,
}

/// A connectivity domain of one kind of host, with its channels.
#[derive(Clone, Debug)]
pub struct DomainClass {
    /// The trimmed system and its paths.
    pub topology: Topology,
    /// Rings.
    pub ring: Graph,
    /// Trees, as many as rings.
    pub tree: Graph,
    /// NVLS heads; without channels where there is no NVSwitch.
    pub nvls: Graph,
    /// Which system the domain belongs to.
    pub system: usize,
    /// What the searches of ring, tree and NVLS took, in milliseconds of the planner's clock.
    pub search_ms: [f64; 3],
    /// Per endpoint index: its position among all endpoints of the system in rank order.
    pub(super) slots: Vec<u32>,
    /// Per ring channel and endpoint index: the place in the order.
    pub(super) ring_place: Vec<Vec<u32>>,
    /// Per tree channel and endpoint index: the place in the order.
    pub(super) tree_place: Vec<Vec<u32>>,
}

/// One node of the job.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodePlace {
    pub(super) class: u32,
    /// Where the host's ranks start in the table of ranks.
    pub(super) first: u32,
}

/// All channels of a communicator.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(super) classes: Vec<DomainClass>,
    pub(super) nodes: Vec<NodePlace>,
    /// Ranks of all hosts, host after host, in the order of each host's endpoints.
    pub(super) table: Vec<u32>,
    /// Per rank: its node and its endpoint index there.
    pub(super) place: Vec<(u32, u32)>,
    pub(super) ring: CommonGraph,
    pub(super) tree: CommonGraph,
    pub(super) nvls: Option<CommonGraph>,
    /// Per final channel: the searched channel it copies, and which of the two trees it uses.
    pub(super) channels: Vec<(u32, u8)>,
}

impl Plan {
    /// Plans a job on hosts that are all alike, with consecutive ranks.
    ///
    /// # Errors
    ///
    /// As [`Plan::new`].
    pub fn uniform(system: System, hosts: usize, options: &Options) -> Result<Self, Error> {
        let total = system.ranks().len().checked_mul(hosts);
        if total.is_none_or(|total| u32::try_from(total).is_err()) {
            let error = Error::new(ErrorKind::InvalidArgument, "a plan needs 1 to 2^32-1 ranks");
            return Err(error.with("hosts", hosts));
        }
        let systems = vec![system];
        let hosts = Self::hosts_in_turn(&systems, hosts);
        Self::new(systems, &hosts, options)
    }

    /// Hosts that take the systems in turn until there are `hosts`, with consecutive ranks.
    ///
    /// One system gives hosts that are all alike; as many hosts as systems gives one of each.
    #[must_use]
    pub fn hosts_in_turn(systems: &[System], hosts: usize) -> Vec<HostRanks> {
        let sizes: Vec<u32> = systems
            .iter()
            .map(|system| system.ranks().len() as u32)
            .collect();
        let mut next = 0_u32;
        let turns = (0..hosts).filter(|_| !systems.is_empty()).map(|host| {
            let system = host % systems.len();
            let first = next;
            next = next.saturating_add(sizes[system]);
            HostRanks {
                system,
                ranks: (first..next).collect(),
            }
        });
        turns.collect()
    }

    /// Plans a job.
    ///
    /// `systems` holds each kind of host once; `hosts` tells the kind and the ranks of every host.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` when there is no rank, when ranks are not 0 to n-1 each once, or when a
    /// host's ranks do not fit its system; and the errors of domains and search.
    pub fn new(
        systems: Vec<System>,
        hosts: &[HostRanks],
        options: &Options,
    ) -> Result<Self, Error> {
        Self::with_clock(systems, hosts, options, || 0.0)
    }

    /// [`Plan::new`] that also notes what each search took on a clock that counts milliseconds.
    ///
    /// The plan does not depend on the clock.
    ///
    /// # Errors
    ///
    /// As [`Plan::new`].
    pub fn with_clock(
        systems: Vec<System>,
        hosts: &[HostRanks],
        options: &Options,
        mut clock_ms: impl FnMut() -> f64,
    ) -> Result<Self, Error> {
        let total: usize = hosts.iter().map(|host| host.ranks.len()).sum();
        if total == 0 || u32::try_from(total).is_err() {
            let error = Error::new(ErrorKind::InvalidArgument, "a plan needs 1 to 2^32-1 ranks");
            return Err(error.with("ranks", total));
        }
        let mut needed = vec![false; systems.len()];
        for host in hosts {
            if let Some(needed) = needed.get_mut(host.system) {
                *needed = true;
            }
        }
        let mut classes = Vec::new();
        let mut classes_of: Vec<Vec<u32>> = Vec::new();
        for (index, system) in systems.into_iter().enumerate() {
            if !needed[index] {
                classes_of.push(Vec::new());
                continue;
            }
            let found = DomainClass::of_system(&system, index, total, options, &mut clock_ms)?;
            let first = classes.len() as u32;
            classes_of.push((first..first + found.len() as u32).collect());
            classes.extend(found);
        }
        let (nodes, table, place) = place_ranks(&classes, &classes_of, hosts, total)?;
        let mut used: Vec<u32> = nodes.iter().map(|node| node.class).collect();
        used.sort_unstable();
        used.dedup();
        let used: Vec<&DomainClass> = used.iter().map(|class| &classes[*class as usize]).collect();
        let internal = || {
            Error::new(
                ErrorKind::Internal,
                "a plan without nodes; please report it",
            )
        };
        let ring = CommonGraph::of(used.iter().map(|class| &class.ring)).ok_or_else(internal)?;
        let tree = CommonGraph::of(used.iter().map(|class| &class.tree)).ok_or_else(internal)?;
        let nvls = CommonGraph::of(used.iter().map(|class| &class.nvls));
        let nvls = nvls.filter(|graph| graph.channels > 0);
        let capability = used
            .iter()
            .map(|class| class.topology.system().compute_capabilities());
        let slowest = capability
            .map(|range| range.map_or(0, |(slowest, _)| slowest))
            .min();
        let channels = final_channels(&ring, &tree, nodes.len(), slowest.unwrap_or(0), options);
        Ok(Self {
            classes,
            nodes,
            table,
            place,
            ring,
            tree,
            nvls,
            channels,
        })
    }

    /// The number of ranks.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.place.len()
    }

    /// The number of nodes (connectivity domains).
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The number of channels every rank has.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// The node of a rank, counted in the order of the nodes' lowest ranks.
    #[must_use]
    pub fn node_of(&self, rank: u32) -> Option<usize> {
        self.place
            .get(rank as usize)
            .map(|(node, _)| *node as usize)
    }

    /// The kind of domain a rank belongs to: an index into [`Plan::domains`].
    #[must_use]
    pub fn domain_of(&self, rank: u32) -> Option<usize> {
        self.node_of(rank)
            .map(|node| self.nodes[node].class as usize)
    }

    /// The kinds of domains with their channels.
    #[must_use]
    pub fn domains(&self) -> &[DomainClass] {
        &self.classes
    }

    /// What holds for rings on every node.
    #[must_use]
    pub fn ring_graph(&self) -> &CommonGraph {
        &self.ring
    }

    /// What holds for trees on every node.
    #[must_use]
    pub fn tree_graph(&self) -> &CommonGraph {
        &self.tree
    }

    /// What holds for NVLS on every node; `None` where a node has no NVSwitch.
    #[must_use]
    pub fn nvls_graph(&self) -> Option<&CommonGraph> {
        self.nvls.as_ref()
    }

    /// The rounds of point-to-point traffic.
    #[must_use]
    pub fn p2p_schedule(&self) -> crate::pattern::P2pSchedule {
        let nodes: Vec<u32> = self.place.iter().map(|(node, _)| *node).collect();
        crate::pattern::P2pSchedule::new(&nodes)
    }
}

impl DomainClass {
    fn of_system(
        system: &System,
        index: usize,
        total: usize,
        options: &Options,
        clock_ms: &mut dyn FnMut() -> f64,
    ) -> Result<Vec<Self>, Error> {
        let (domains, _) = Topology::domains(system, total, options)?;
        let mut in_order = system.ranks();
        in_order.sort_unstable();
        let classes = domains.into_iter().map(|topology| {
            let mut times = [clock_ms(); 4];
            let find = |pattern, min_channels, max_channels| {
                search(
                    &topology,
                    pattern,
                    Limits {
                        min_channels,
                        max_channels,
                    },
                    options,
                )
            };
            let ring = find(Pattern::Ring, 1, MAX_CHANNELS / 2)?;
            times[1] = clock_ms();
            let tree = find(
                Pattern::BalancedTree,
                ring.channels.len(),
                ring.channels.len(),
            )?;
            times[2] = clock_ms();
            let nvls = find(Pattern::Nvls, 1, MAX_CHANNELS)?;
            times[3] = clock_ms();
            let search_ms = [0, 1, 2].map(|search| times[search + 1] - times[search]);
            let ranks = topology.system().ranks();
            let slot = |rank: &u32| in_order.binary_search(rank).unwrap_or(0) as u32;
            let slots = ranks.iter().map(slot).collect();
            let places = |graph: &Graph| {
                let channels = graph.channels.iter().map(|channel| {
                    let mut place = vec![0; ranks.len()];
                    for (at, endpoint) in (0..).zip(&channel.endpoints) {
                        place[*endpoint] = at;
                    }
                    place
                });
                channels.collect()
            };
            let (ring_place, tree_place) = (places(&ring), places(&tree));
            Ok(Self {
                topology,
                ring,
                tree,
                nvls,
                system: index,
                search_ms,
                slots,
                ring_place,
                tree_place,
            })
        });
        classes.collect()
    }
}

type Placement = (Vec<NodePlace>, Vec<u32>, Vec<(u32, u32)>);

fn place_ranks(
    classes: &[DomainClass],
    classes_of: &[Vec<u32>],
    hosts: &[HostRanks],
    total: usize,
) -> Result<Placement, Error> {
    let refuse = |message: &'static str, host: usize| {
        Err(Error::new(ErrorKind::InvalidArgument, message).with("host", host))
    };
    let mut table = Vec::with_capacity(total);
    let mut nodes: Vec<(u32, NodePlace)> = Vec::new();
    let mut seen = vec![false; total];
    for (index, host) in hosts.iter().enumerate() {
        let Some(domains) = classes_of.get(host.system) else {
            return refuse("the host names a system that was not given", index);
        };
        let endpoints: usize = domains
            .iter()
            .map(|class| classes[*class as usize].slots.len())
            .sum();
        if endpoints != host.ranks.len() {
            return refuse(
                "the host has not as many ranks as its system has endpoints",
                index,
            );
        }
        for rank in &host.ranks {
            match seen.get_mut(*rank as usize) {
                Some(seen) if !*seen => *seen = true,
                _ => return refuse("ranks must be 0 to n-1, each on one host", index),
            }
        }
        let first = table.len() as u32;
        table.extend_from_slice(&host.ranks);
        for class in domains {
            let slots = classes[*class as usize].slots.iter();
            let lowest = slots
                .map(|slot| table[(first + slot) as usize])
                .min()
                .unwrap_or(0);
            nodes.push((
                lowest,
                NodePlace {
                    class: *class,
                    first,
                },
            ));
        }
    }
    nodes.sort_by_key(|(lowest, _)| *lowest);
    let nodes: Vec<NodePlace> = nodes.into_iter().map(|(_, node)| node).collect();
    let mut place = vec![(0, 0); total];
    for (number, node) in (0..).zip(&nodes) {
        for (endpoint, slot) in (0..).zip(&classes[node.class as usize].slots) {
            place[table[(node.first + slot) as usize] as usize] = (number, endpoint);
        }
    }
    Ok((nodes, table, place))
}
