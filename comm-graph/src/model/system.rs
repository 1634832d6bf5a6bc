//! The graph itself: node and link storage, insertion and removal.

use super::kinds::{Cpu, Device, Endpoint, LinkKind, Net, Node, NodeKind, NodeRole};

/// The position of a node inside its [`System`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(crate) u32);

/// The position of a directed link inside its [`System`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub(crate) u32);

impl NodeId {
    /// The position as an index, below [`System::node_count`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl LinkId {
    /// The position as an index, below [`System::link_count`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A directed link.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Where the link starts.
    pub from: NodeId,
    /// Where the link ends.
    pub to: NodeId,
    /// What it is made of.
    pub kind: LinkKind,
    /// Bandwidth in GB/s; parallel links are summed.
    pub gbps: f32,
}

/// The graph of one topology file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct System {
    nodes: Vec<Node>,
    links: Vec<Link>,
    by_kind: [Vec<NodeId>; 7],
    hosts: u32,
}

impl System {
    /// A graph without nodes for `hosts` hosts.
    pub(super) fn empty(hosts: u32) -> Self {
        Self {
            hosts,
            ..Self::default()
        }
    }

    /// The number of hosts in the graph.
    #[must_use]
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// The number of node ids given out; ids of removed nodes stay unused.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The number of directed links given out.
    #[must_use]
    pub fn link_count(&self) -> usize {
        self.links.len()
    }

    /// A node.
    ///
    /// # Panics
    ///
    /// When the id belongs to another, larger system.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// A link.
    ///
    /// # Panics
    ///
    /// When the id belongs to another, larger system.
    #[must_use]
    pub fn link(&self, id: LinkId) -> &Link {
        &self.links[id.index()]
    }

    /// The nodes of a kind, in the order of the file.
    #[must_use]
    pub fn of_kind(&self, kind: NodeKind) -> &[NodeId] {
        &self.by_kind[kind as usize]
    }

    /// Position of a node among those of its kind.
    #[must_use]
    pub fn index_of(&self, id: NodeId) -> Option<usize> {
        self.of_kind(self.node(id).kind())
            .iter()
            .position(|other| *other == id)
    }

    /// Links that leave a node, in search order.
    pub fn links_of(&self, id: NodeId) -> impl Iterator<Item = (LinkId, &Link)> {
        self.node(id)
            .links
            .iter()
            .map(|link| (*link, self.link(*link)))
    }

    /// What hangs directly below a CPU or switch in the tree of PCI links, process slots included,
    /// in file order.
    #[must_use]
    pub fn below(&self, id: NodeId) -> Vec<NodeId> {
        let mut found: Vec<NodeId> = self
            .links_of(id)
            .filter(|(_, link)| {
                let kind = self.node(link.to).kind();
                let slot = link.kind == LinkKind::Local && kind == NodeKind::Device;
                let inside = matches!(kind, NodeKind::Pci | NodeKind::Device | NodeKind::Nic);
                // Whatever hangs on a node was added after it.
                (link.kind == LinkKind::Pci || slot) && inside && link.to > id
            })
            .map(|(_, link)| link.to)
            .collect();
        found.sort_unstable();
        found
    }

    /// The link by which a device, card or switch hangs on what is above it; `None` for others.
    #[must_use]
    pub fn up_link(&self, id: NodeId) -> Option<&Link> {
        if !matches!(
            self.node(id).kind(),
            NodeKind::Pci | NodeKind::Device | NodeKind::Nic
        ) {
            return None;
        }
        let up = |link: &Link| {
            let above = matches!(self.node(link.to).kind(), NodeKind::Pci | NodeKind::Cpu);
            above && link.to < id && matches!(link.kind, LinkKind::Pci | LinkKind::Local)
        };
        self.links_of(id)
            .map(|(_, link)| link)
            .find(|link| up(link))
    }

    /// The ports of a network card, in file order.
    #[must_use]
    pub fn ports_of(&self, nic: NodeId) -> Vec<NodeId> {
        let nets = self.links_of(nic).map(|(_, link)| link.to);
        let mut nets: Vec<NodeId> = nets
            .filter(|to| self.node(*to).kind() == NodeKind::Net)
            .collect();
        nets.sort_unstable();
        nets
    }

    /// The endpoints on a device, in file order.
    #[must_use]
    pub fn endpoints_of(&self, device: NodeId) -> Vec<NodeId> {
        let links = self.links_of(device).map(|(_, link)| link.to);
        let mut endpoints: Vec<NodeId> = links
            .filter(|to| self.node(*to).kind() == NodeKind::Endpoint)
            .collect();
        endpoints.sort_unstable();
        endpoints
    }

    /// The endpoint with a position among the endpoints.
    #[must_use]
    pub fn endpoint(&self, index: usize) -> Option<&Endpoint> {
        match &self
            .node(*self.of_kind(NodeKind::Endpoint).get(index)?)
            .role
        {
            NodeRole::Endpoint(endpoint) => Some(endpoint),
            _ => None,
        }
    }

    /// The device that an endpoint hangs on.
    #[must_use]
    pub fn device_of(&self, endpoint: NodeId) -> Option<(NodeId, &Device)> {
        self.links_of(endpoint)
            .find_map(|(_, link)| match &self.node(link.to).role {
                NodeRole::Device(device) => Some((link.to, device)),
                _ => None,
            })
    }

    /// The network port with a position among the ports.
    #[must_use]
    pub fn net(&self, index: usize) -> Option<&Net> {
        match &self.node(*self.of_kind(NodeKind::Net).get(index)?).role {
            NodeRole::Net(net) => Some(net),
            _ => None,
        }
    }

    /// The CPU with a position among the CPUs.
    #[must_use]
    pub fn cpu(&self, index: usize) -> Option<&Cpu> {
        match &self.node(*self.of_kind(NodeKind::Cpu).get(index)?).role {
            NodeRole::Cpu(cpu) => Some(cpu),
            _ => None,
        }
    }

    /// Ranks of the endpoints in index order.
    #[must_use]
    pub fn ranks(&self) -> Vec<u32> {
        let count = self.of_kind(NodeKind::Endpoint).len();
        (0..count)
            .filter_map(|index| self.endpoint(index))
            .map(|e| e.rank)
            .collect()
    }

    /// Lowest and highest compute capability of the GPUs; `None` without GPUs.
    #[must_use]
    pub fn compute_capabilities(&self) -> Option<(u32, u32)> {
        let endpoints = self.of_kind(NodeKind::Endpoint).iter();
        let capabilities: Vec<u32> = endpoints
            .filter_map(|id| self.device_of(*id)?.1.compute_capability())
            .collect();
        Some((*capabilities.iter().min()?, *capabilities.iter().max()?))
    }

    pub(super) fn add_node(&mut self, role: NodeRole, host: u32) -> NodeId {
        let id = NodeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        let node = Node {
            role,
            host,
            links: Vec::new(),
        };
        self.by_kind[node.kind() as usize].push(id);
        self.nodes.push(node);
        id
    }

    /// Adds bandwidth from one node to another; parallel links of a kind are one link.
    ///
    /// The links of a node stay sorted by bandwidth, fastest first, older first among equals.
    pub(super) fn connect(&mut self, from: NodeId, to: NodeId, kind: LinkKind, gbps: f32) {
        let links = &self.nodes[from.index()].links;
        let known = links.iter().position(|link| {
            let link = &self.links[link.index()];
            link.to == to && link.kind == kind
        });
        match known {
            Some(position) => self.widen(from, position, gbps),
            None => self.connect_new(from, to, kind, gbps),
        }
    }

    /// [`connect`](Self::connect) for a pair that is known to have no link of the kind yet.
    fn connect_new(&mut self, from: NodeId, to: NodeId, kind: LinkKind, gbps: f32) {
        let id = LinkId(u32::try_from(self.links.len()).unwrap_or(u32::MAX));
        self.links.push(Link {
            from,
            to,
            kind,
            gbps: 0.0,
        });
        let links = &mut self.nodes[from.index()].links;
        links.push(id);
        let position = links.len() - 1;
        self.widen(from, position, gbps);
    }

    fn widen(&mut self, from: NodeId, mut position: usize, gbps: f32) {
        let links = &mut self.nodes[from.index()].links;
        let id = links[position];
        self.links[id.index()].gbps += gbps;
        while position > 0
            && self.links[links[position - 1].index()].gbps < self.links[id.index()].gbps
        {
            links.swap(position, position - 1);
            position -= 1;
        }
    }

    pub(super) fn connect_both(&mut self, a: NodeId, b: NodeId, kind: LinkKind, gbps: f32) {
        self.connect(a, b, kind, gbps);
        self.connect(b, a, kind, gbps);
    }

    /// Links both ways between a new node and the node it hangs on.
    ///
    /// No search for an existing link: a switch with very many children stays cheap.
    pub(super) fn attach(&mut self, new: NodeId, to: NodeId, kind: LinkKind, gbps: f32) {
        self.connect_new(new, to, kind, gbps);
        self.connect_new(to, new, kind, gbps);
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.index()]
    }

    pub(super) fn link_mut(&mut self, id: LinkId) -> &mut Link {
        &mut self.links[id.index()]
    }

    /// Takes a node out: it is in no kind's list and no link leads to it or leaves it.
    pub(crate) fn remove_node(&mut self, id: NodeId) {
        let kind = self.node(id).kind();
        self.by_kind[kind as usize].retain(|other| *other != id);
        self.nodes[id.index()].links.clear();
        let links = &self.links;
        for node in &mut self.nodes {
            node.links.retain(|link| links[link.index()].to != id);
        }
    }

    /// The link of a kind that leads back from `link`'s end to its start.
    #[must_use]
    pub fn reverse(&self, link: LinkId) -> Option<LinkId> {
        let Link { from, to, kind, .. } = *self.link(link);
        let back = self
            .links_of(to)
            .find(|(_, back)| back.to == from && back.kind == kind);
        back.map(|(id, _)| id)
    }
}
