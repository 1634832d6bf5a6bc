//! The table of best paths.

use comm_core::{Error, ErrorKind};

use crate::model::{LOCAL_GBPS, LinkId, LinkKind, NodeId, NodeKind, System};

use super::kind::PathKind;

/// A way from one node to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// How near the nodes are.
    pub kind: PathKind,
    /// The smallest bandwidth on the way, in GB/s; 0 when disconnected.
    pub gbps: f32,
    /// The links in travel order.
    pub links: Vec<LinkId>,
}

impl Path {
    /// The number of links on the way.
    #[must_use]
    pub fn hops(&self) -> usize {
        self.links.len()
    }

    const fn none() -> Self {
        Self {
            kind: PathKind::Disconnected,
            gbps: 0.0,
            links: Vec::new(),
        }
    }

    fn is_better_than(&self, other: &Self) -> bool {
        if self.kind != other.kind {
            return self.kind < other.kind;
        }
        if self.gbps != other.gbps {
            return self.gbps > other.gbps;
        }
        self.links.len() < other.links.len()
    }
}

/// The best path between every two nodes that matter.
///
/// Rows exist for endpoints, devices, NVSwitches, CPUs and networks as destinations.
#[derive(Clone, Debug)]
pub struct Paths {
    /// Per destination node: its row, if it has one.
    row_of: Vec<Option<usize>>,
    /// Per row: the path from every node.
    rows: Vec<Vec<Path>>,
}

static NONE: Path = Path::none();

impl Paths {
    /// More entries than this (about 400 MB) are refused instead of running out of memory.
    const MOST_ENTRIES: usize = 1 << 22;

    /// Refuses work that no real host asks for: `tables` tables of all paths of a system.
    pub(super) fn check_size(system: &System, tables: usize, most: usize) -> Result<(), Error> {
        let destinations: usize = Self::DESTINATIONS
            .iter()
            .map(|k| system.of_kind(*k).len())
            .sum();
        let entries = destinations
            .saturating_mul(system.node_count())
            .saturating_mul(tables);
        if entries <= most {
            return Ok(());
        }
        let error = Error::new(
            ErrorKind::ResourceExhausted,
            "the topology is too large for a table of all paths; describe one host per file",
        );
        Err(error
            .with("nodes", system.node_count())
            .with("domains", tables))
    }

    /// Refuses to compute the paths of very many domains one by one.
    pub(super) fn check_domains(system: &System, domains: usize) -> Result<(), Error> {
        Self::check_size(system, domains, 8 * Self::MOST_ENTRIES)
    }

    const DESTINATIONS: [NodeKind; 5] = [
        NodeKind::Cpu,
        NodeKind::Device,
        NodeKind::Endpoint,
        NodeKind::Net,
        NodeKind::NvSwitch,
    ];

    /// Searches the best path from every node to every destination.
    pub(super) fn search(system: &System, nvb_disable: bool) -> Result<Self, Error> {
        Self::check_size(system, 1, Self::MOST_ENTRIES)?;
        let nodes = Self::DESTINATIONS
            .iter()
            .flat_map(|kind| system.of_kind(*kind));
        let destinations: Vec<NodeId> = nodes.copied().collect();
        let mut row_of = vec![None; system.node_count()];
        let mut rows = Vec::with_capacity(destinations.len());
        for destination in destinations {
            row_of[destination.index()] = Some(rows.len());
            rows.push(search_from(system, destination, nvb_disable));
        }
        Ok(Self { row_of, rows })
    }

    /// The path between two nodes; a disconnected one when there is none.
    #[must_use]
    pub fn get(&self, from: NodeId, to: NodeId) -> &Path {
        let row = self.row_of.get(to.index()).copied().flatten();
        row.and_then(|row| self.rows[row].get(from.index()))
            .unwrap_or(&NONE)
    }

    pub(super) fn set(&mut self, from: NodeId, to: NodeId, path: Path) {
        if let Some(row) = self.row_of.get(to.index()).copied().flatten() {
            self.rows[row][from.index()] = path;
        }
    }

    /// The way over an intermediate node; its kind is the farther of the two parts.
    pub(super) fn over(&self, from: NodeId, by: NodeId, to: NodeId) -> Path {
        let (first, second) = (self.get(from, by), self.get(by, to));
        let links = first.links.iter().chain(&second.links).copied().collect();
        Path {
            kind: first.kind.max(second.kind),
            gbps: first.gbps.min(second.gbps),
            links,
        }
    }
}

/// Breadth-first search outwards from `base`; entry `n` is the path from node `n` to `base`.
fn search_from(system: &System, base: NodeId, nvb_disable: bool) -> Vec<Path> {
    let mut best = vec![Path::none(); system.node_count()];
    best[base.index()] = Path {
        kind: PathKind::Local,
        gbps: LOCAL_GBPS,
        links: Vec::new(),
    };
    let mut frontier = vec![base];
    let mut queued = vec![false; system.node_count()];
    while !frontier.is_empty() {
        let mut next = Vec::new();
        for node in frontier {
            for (out, link) in system.links_of(node) {
                let here = &best[node.index()];
                if !may_pass(system, here, node, base, out, nvb_disable) {
                    continue;
                }
                // Traffic runs the other way, so the way back is what the path is made of.
                let Some(back) = system.reverse(out) else {
                    continue;
                };
                let mut links = Vec::with_capacity(here.links.len() + 1);
                links.push(back);
                links.extend_from_slice(&here.links);
                let found = Path {
                    kind: extended_kind(system, here, node, out),
                    gbps: here.gbps.min(link.gbps),
                    links,
                };
                if found.is_better_than(&best[link.to.index()]) {
                    best[link.to.index()] = found;
                    if !std::mem::replace(&mut queued[link.to.index()], true) {
                        next.push(link.to);
                    }
                }
            }
        }
        for node in &next {
            queued[node.index()] = false;
        }
        frontier = next;
    }
    best
}

/// Whether a path to `base` may go on through `node`: traffic passes a device only on NVLink, and
/// only one of them.
fn may_pass(
    system: &System,
    here: &Path,
    node: NodeId,
    base: NodeId,
    out: LinkId,
    nvb_disable: bool,
) -> bool {
    if system.node(node).kind() != NodeKind::Device || node == base {
        return true;
    }
    let link = system.link(out);
    let wires = here
        .links
        .iter()
        .filter(|link| system.link(**link).kind != LinkKind::Local);
    let to_endpoint = system.node(link.to).kind() == NodeKind::Endpoint;
    let own_device = here.kind == PathKind::Local;
    let relay = !nvb_disable
        && link.kind == LinkKind::NvLink
        && system.node(link.to).kind() == NodeKind::Device
        && wires.count() <= 1;
    to_endpoint || own_device || relay
}

/// The kind of the path when it is lengthened by the link `out` of `node`.
fn extended_kind(system: &System, here: &Path, node: NodeId, out: LinkId) -> PathKind {
    let link = system.link(out);
    let (near, far) = (system.node(node).kind(), system.node(link.to).kind());
    let mut kind = match link.kind {
        LinkKind::Local | LinkKind::Net => PathKind::Local,
        LinkKind::NvLink => PathKind::NvLink,
        LinkKind::C2c => PathKind::C2c,
        LinkKind::Pci => PathKind::Pix,
        LinkKind::System => PathKind::System,
    };
    if near == NodeKind::Pci && far == NodeKind::Pci {
        kind = PathKind::Pxb;
    }
    let cpu = near == NodeKind::Cpu || far == NodeKind::Cpu;
    let enters_cpu = match link.kind {
        LinkKind::Pci => true,
        // Host memory: two slots of one NUMA node meet in their CPU.
        LinkKind::Local => far == NodeKind::Device || near == NodeKind::Device,
        _ => false,
    };
    if cpu && enters_cpu {
        kind = PathKind::HostBridge;
    }
    let relayed =
        near == NodeKind::Device && here.kind == PathKind::NvLink && kind == PathKind::NvLink;
    if relayed {
        kind = PathKind::NvLinkRelay;
    }
    here.kind.max(kind)
}
