//! One connectivity domain: a trimmed system with its paths.

use comm_core::{Error, ErrorKind};

use crate::model::{LOCAL_GBPS, LinkKind, NodeKind, System};
use crate::options::Options;

use super::compute::compute;
use super::kind::PathKind;
use super::local::LocalNets;
use super::rules::gdr_allowed;
use super::table::Paths;

/// The endpoints that reach each other without the network, with everything a search needs.
#[derive(Clone, Debug)]
pub struct Topology {
    system: System,
    paths: Paths,
    local: LocalNets,
    inter: bool,
    max_gbps: f32,
    total_gbps: f32,
}

impl Topology {
    /// Splits a system into its connectivity domains.
    ///
    /// Endpoints belong to one domain when they reach each other inside the host: directly or by
    /// shared memory, and not slower than over the network. `ranks_total` is the size of the
    /// whole communicator: networks matter where a domain does not hold all of it.
    ///
    /// Returns the domains in the order of their first endpoint, and the domain of each endpoint.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` when the system has no endpoint; `ResourceExhausted` when it is too large
    /// for a table of all paths.
    pub fn domains(
        system: &System,
        ranks_total: usize,
        options: &Options,
    ) -> Result<(Vec<Self>, Vec<usize>), Error> {
        let endpoints = system.of_kind(NodeKind::Endpoint);
        if endpoints.is_empty() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the topology has no device with a rank; add <gpu> or <endpoint> elements",
            ));
        }
        // A first pass over all endpoints only tells who reaches whom.
        let alone = endpoints.len() == ranks_total;
        let (paths, _) = compute(system, options, !alone)?;
        let mut domain_of: Vec<usize> = Vec::with_capacity(endpoints.len());
        for (index, to) in endpoints.iter().enumerate() {
            let reached = (0..index)
                .filter(|earlier| paths.get(*to, endpoints[*earlier]).kind < PathKind::Net)
                .map(|earlier| domain_of[earlier]);
            domain_of.push(reached.min().unwrap_or(index));
        }
        let mut firsts: Vec<usize> = domain_of.clone();
        firsts.sort_unstable();
        firsts.dedup();
        Paths::check_domains(system, firsts.len())?;
        let mut domains = Vec::with_capacity(firsts.len());
        for first in &firsts {
            let mut trimmed = system.clone();
            for (index, endpoint) in endpoints.iter().enumerate() {
                if domain_of[index] != *first {
                    trimmed.remove_node(*endpoint);
                }
            }
            domains.push(Self::settle(trimmed, ranks_total, options)?);
        }
        let position = |first: &usize| firsts.binary_search(first).unwrap_or(0);
        Ok((domains, domain_of.iter().map(position).collect()))
    }

    fn settle(system: System, ranks_total: usize, options: &Options) -> Result<Self, Error> {
        let inter = system.of_kind(NodeKind::Endpoint).len() != ranks_total;
        let (paths, local) = compute(&system, options, true)?;
        let mut topology = Self {
            system,
            paths,
            local,
            inter,
            max_gbps: 0.0,
            total_gbps: 0.0,
        };
        topology.measure();
        Ok(topology)
    }

    /// The largest single path and the largest sum of links of a device.
    fn measure(&mut self) {
        let endpoints = self.system.of_kind(NodeKind::Endpoint);
        let networks = self.uses_networks();
        if endpoints.len() == 1 && !networks {
            (self.max_gbps, self.total_gbps) = (LOCAL_GBPS, LOCAL_GBPS);
            return;
        }
        let goals = self.system.of_kind(if networks {
            NodeKind::Net
        } else {
            NodeKind::Endpoint
        });
        let (mut max, mut total) = (0.0_f32, 0.0_f32);
        for endpoint in endpoints {
            for goal in goals {
                let path = self.paths.get(*endpoint, *goal);
                if path.hops() > 0 {
                    max = max.max(path.gbps);
                }
            }
        }
        // Devices whose ranks were trimmed away count too: their wires are still there.
        for device in self.system.of_kind(NodeKind::Device) {
            let (mut nvlink, mut other) = (0.0_f32, 0.0_f32);
            for (_, link) in self.system.links_of(*device) {
                match link.kind {
                    LinkKind::NvLink => nvlink += link.gbps,
                    LinkKind::Pci => other = link.gbps,
                    LinkKind::Local if self.system.node(link.to).kind() == NodeKind::Cpu => {
                        other = link.gbps;
                    }
                    _ => {}
                }
            }
            total = total.max(nvlink.max(other));
        }
        (self.max_gbps, self.total_gbps) = (max, total);
    }

    /// The graph without the endpoints of other domains.
    #[must_use]
    pub fn system(&self) -> &System {
        &self.system
    }

    /// The paths.
    #[must_use]
    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Which port serves which endpoint.
    #[must_use]
    pub fn local_nets(&self) -> &LocalNets {
        &self.local
    }

    /// Whether a port uses the memory of an endpoint's device directly, for sending or receiving.
    ///
    /// Never for host memory, which every port uses directly anyway.
    #[must_use]
    pub fn uses_gdr(&self, options: &Options, endpoint: usize, net: usize, sending: bool) -> bool {
        let endpoint = self.system.of_kind(NodeKind::Endpoint).get(endpoint);
        let net = self.system.of_kind(NodeKind::Net).get(net);
        let (Some(endpoint), Some(net)) = (endpoint, net) else {
            return false;
        };
        gdr_allowed(&self.system, &self.paths, options, *endpoint, *net, sending)
    }

    /// Whether the communicator has ranks outside this domain.
    #[must_use]
    pub fn is_part(&self) -> bool {
        self.inter
    }

    /// Whether channels of this domain leave and enter through networks.
    #[must_use]
    pub fn uses_networks(&self) -> bool {
        self.inter && !self.system.of_kind(NodeKind::Net).is_empty()
    }

    /// The largest bandwidth of a single path, in GB/s.
    #[must_use]
    pub fn max_gbps(&self) -> f32 {
        self.max_gbps
    }

    /// The largest sum of link bandwidths of a device, in GB/s.
    #[must_use]
    pub fn total_gbps(&self) -> f32 {
        self.total_gbps
    }
}
