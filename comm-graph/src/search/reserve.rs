//! Bandwidth bookkeeping: taking a route's bandwidth off its links and giving it back.
//!
//! Routes between all places a search moves between are laid out flat once, because a search takes
//! and gives back bandwidth millions of times.

use crate::model::{CpuArch, CpuVendor, LinkId, LinkKind, NodeId, NodeKind, NodeRole};
use crate::path::{Path, PathKind, Topology};

/// A place of a search: endpoints first, then network ports, then the NVSwitch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(usize);

/// Traffic that a link causes in the other direction.
#[derive(Clone, Copy, Debug)]
enum Backlash {
    None,
    /// An eighth on this link.
    Eighth(usize),
    /// All of it on this link.
    Full(usize),
}

#[derive(Clone, Copy, Debug)]
struct Leg {
    link: usize,
    pci: bool,
    backlash: Backlash,
}

/// A way between two places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) kind: PathKind,
    /// The kind of the way back.
    pub(super) back: PathKind,
    pub(super) hops: usize,
    pub(super) gbps: f32,
    /// Whether the way counts as inside the host.
    pub(super) inside: bool,
    /// PCI traffic of a GPU through the root complex of an Intel CPU is less efficient.
    intel: bool,
    first_leg: usize,
}

/// All routes of a domain and what is left on every link.
#[derive(Clone, Debug)]
pub(super) struct Reserve {
    endpoints: usize,
    places: usize,
    routes: Vec<Route>,
    legs: Vec<Leg>,
    left: Vec<f32>,
    /// Per endpoint: the link from its device to the host, and the way back.
    host_links: Vec<Option<(usize, usize)>>,
}

impl Reserve {
    pub(super) fn new(topology: &Topology) -> Self {
        let system = topology.system();
        let endpoints = system.of_kind(NodeKind::Endpoint);
        let mut places: Vec<NodeId> = endpoints.to_vec();
        places.extend(system.of_kind(NodeKind::Net));
        places.extend(system.of_kind(NodeKind::NvSwitch).first());
        let links = || (0..system.link_count()).map(|index| LinkId(index as u32));
        let mut reserve = Self {
            endpoints: endpoints.len(),
            places: places.len(),
            routes: Vec::with_capacity(places.len() * places.len()),
            legs: Vec::new(),
            left: links().map(|link| system.link(link).gbps).collect(),
            host_links: endpoints
                .iter()
                .map(|endpoint| host_link(topology, *endpoint))
                .collect(),
        };
        for from in &places {
            for to in &places {
                reserve.add_route(topology, *from, *to);
            }
        }
        reserve
    }

    fn add_route(&mut self, topology: &Topology, from: NodeId, to: NodeId) {
        let system = topology.system();
        let path = topology.paths().get(from, to);
        let inside = |node| system.node(node).kind() != NodeKind::Net;
        let from_endpoint = system.node(from).kind() == NodeKind::Endpoint;
        self.routes.push(Route {
            kind: path.kind,
            back: topology.paths().get(to, from).kind,
            hops: path.hops(),
            gbps: path.gbps,
            inside: inside(from) && inside(to),
            intel: from_endpoint && crosses_intel(topology, path),
            first_leg: self.legs.len(),
        });
        for id in &path.links {
            let link = system.link(*id);
            let reverse = || system.reverse(*id).map(LinkId::index);
            let backlash = match &system.node(link.to).role {
                // Older GPUs answer writes from outside with noticeable traffic of their own.
                NodeRole::Device(device)
                    if !from_endpoint
                        && device
                            .compute_capability()
                            .is_some_and(|capability| capability < 80) =>
                {
                    reverse().map_or(Backlash::None, Backlash::Eighth)
                }
                // NVLink into a POWER CPU shares its bandwidth between the directions.
                NodeRole::Cpu(cpu)
                    if cpu.arch == CpuArch::Power && link.kind == LinkKind::NvLink =>
                {
                    reverse().map_or(Backlash::None, Backlash::Full)
                }
                _ => Backlash::None,
            };
            let pci = link.kind == LinkKind::Pci;
            self.legs.push(Leg {
                link: id.index(),
                pci,
                backlash,
            });
        }
    }

    pub(super) const fn endpoint(&self, index: usize) -> Place {
        Place(index)
    }

    pub(super) const fn net(&self, index: usize) -> Place {
        Place(self.endpoints + index)
    }

    /// The NVSwitch; meaningless in a domain without one.
    pub(super) const fn switch(&self) -> Place {
        Place(self.places - 1)
    }

    pub(super) fn is_net(&self, place: Place, nets: usize) -> bool {
        (self.endpoints..self.endpoints + nets).contains(&place.0)
    }

    pub(super) fn route(&self, from: Place, to: Place) -> &Route {
        &self.routes[from.0 * self.places + to.0]
    }

    /// What is left on a device's link to the host, in the busier direction.
    pub(super) fn host_side(&self, endpoint: usize) -> f32 {
        self.host_links[endpoint].map_or(0.0, |(out, back)| self.left[out].min(self.left[back]))
    }

    /// Takes `gbps` off every link of a route; all or nothing.
    pub(super) fn take(&mut self, from: Place, to: Place, gbps: f32) -> bool {
        let hops = self.route(from, to).hops;
        let taken = self.change(from, to, hops, gbps);
        if taken < hops {
            self.change(from, to, taken, -gbps);
            return false;
        }
        true
    }

    /// Gives back what [`take`](Self::take) took.
    pub(super) fn give_back(&mut self, from: Place, to: Place, gbps: f32) {
        let hops = self.route(from, to).hops;
        self.change(from, to, hops, -gbps);
    }

    /// Subtracts from the first `steps` links; returns how many of them had enough.
    fn change(&mut self, from: Place, to: Place, steps: usize, gbps: f32) -> usize {
        let Route {
            intel, first_leg, ..
        } = *self.route(from, to);
        let pci_gbps = if intel { gbps * 6.0 / 5.0 } else { gbps };
        for (step, leg) in self.legs[first_leg..first_leg + steps].iter().enumerate() {
            let forward = if leg.pci { pci_gbps } else { gbps };
            if self.left[leg.link] < forward {
                return step;
            }
            match leg.backlash {
                Backlash::None => {}
                Backlash::Eighth(back) | Backlash::Full(back) => {
                    let whole = matches!(leg.backlash, Backlash::Full(_));
                    let backward = if whole { forward } else { forward / 8.0 };
                    if self.left[back] < backward {
                        return step;
                    }
                    subtract(&mut self.left[back], backward);
                }
            }
            subtract(&mut self.left[leg.link], forward);
        }
        steps
    }
}

/// Rounds to MB/s after each step, so that giving back restores the value exactly.
fn subtract(left: &mut f32, gbps: f32) {
    *left = rounded((*left - gbps) * 1000.0) / 1000.0;
}

/// [`f32::round`] without the library call that it is on most processors; searches do this most.
///
/// In double precision neither the sum nor the conversion loses anything for a number of MB/s.
fn rounded(value: f32) -> f32 {
    (f64::from(value) + 0.5_f64.copysign(f64::from(value))) as i64 as f32
}

fn host_link(topology: &Topology, endpoint: NodeId) -> Option<(usize, usize)> {
    let system = topology.system();
    let (device, _) = system.device_of(endpoint)?;
    let (out, _) = system.links_of(device).find(|(_, link)| {
        link.kind == LinkKind::Pci
            || (link.kind == LinkKind::Local && system.node(link.to).kind() == NodeKind::Cpu)
    })?;
    Some((out.index(), system.reverse(out)?.index()))
}

fn crosses_intel(topology: &Topology, path: &Path) -> bool {
    let system = topology.system();
    path.kind == PathKind::HostBridge
        && path
            .links
            .iter()
            .any(|link| match &system.node(system.link(*link).to).role {
                NodeRole::Cpu(cpu) => {
                    cpu.arch == CpuArch::X86 && matches!(cpu.vendor, CpuVendor::Intel { .. })
                }
                _ => false,
            })
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn rounding_is_that_of_the_standard_library() {
        let edges = [
            0.0,
            0.499_999_97,
            0.5,
            1.5,
            2.5,
            8_388_607.5,
            16_777_215.0,
            1e12,
        ];
        for edge in edges {
            assert_eq!(rounded(edge), edge.round(), "{edge}");
            assert_eq!(rounded(-edge), (-edge).round(), "-{edge}");
        }
        for bits in (0..0x5000_0000_u32).step_by(99_991) {
            let value = f32::from_bits(bits);
            assert_eq!(rounded(value), value.round(), "{value}");
        }
    }
}
