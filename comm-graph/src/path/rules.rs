//! When devices access each other directly, and when a network card accesses device memory.

use crate::model::{CpuArch, CpuVendor, Device, DeviceKind, NodeId, NodeKind, System};
use crate::options::Options;

use super::kind::PathKind;
use super::table::Paths;

/// Whether two endpoints may access each other's memory directly over their path.
///
/// Host slots always may: they share memory.
pub(super) fn direct_access(
    system: &System,
    paths: &Paths,
    options: &Options,
    from: NodeId,
    to: NodeId,
) -> bool {
    let host_slot = |endpoint| match system.device_of(endpoint) {
        Some((_, device)) => device.kind == DeviceKind::HostSlot,
        None => false,
    };
    if host_slot(from) && host_slot(to) {
        return system.node(from).host == system.node(to).host;
    }
    let amd = system
        .cpu(0)
        .is_some_and(|cpu| cpu.arch == CpuArch::X86 && cpu.vendor == CpuVendor::Amd);
    let few = system.of_kind(NodeKind::Endpoint).len() <= 2;
    let default = if amd && few {
        PathKind::System
    } else {
        PathKind::Pxb
    };
    paths.get(from, to).kind <= options.p2p_level.unwrap_or(default)
}

/// Whether two endpoints of one host are faster connected by their network cards.
pub(super) fn network_is_faster(
    system: &System,
    paths: &Paths,
    options: &Options,
    a: NodeId,
    b: NodeId,
) -> bool {
    if options.net_disable_intra {
        return false;
    }
    let reach = |endpoint| {
        let nets = system.of_kind(NodeKind::Net).iter();
        nets.map(|net| paths.get(endpoint, *net))
            .filter(|path| path.kind <= PathKind::Pxb)
            .fold(0.0_f32, |best, path| best.max(path.gbps))
    };
    let direct = paths.get(a, b).gbps;
    reach(a) > direct && reach(b) > direct
}

/// Whether a network card may use the memory of an endpoint's device.
///
/// `sending` asks for reads of that memory, which older GPUs do well only when their own traffic
/// runs over NVLink.
pub(super) fn gdr_allowed(
    system: &System,
    paths: &Paths,
    options: &Options,
    endpoint: NodeId,
    net: NodeId,
    sending: bool,
) -> bool {
    let nets = system.of_kind(NodeKind::Net);
    let index = nets.iter().position(|other| *other == net);
    let Some(port) = index.and_then(|index| system.net(index)) else {
        return false;
    };
    let Some((
        _,
        Device {
            kind:
                DeviceKind::Gpu {
                    compute_capability,
                    gdr,
                },
            ..
        },
    )) = system.device_of(endpoint)
    else {
        return false;
    };
    if !port.gdr || !gdr {
        return false;
    }
    if sending && *compute_capability < 80 {
        let endpoints = system.of_kind(NodeKind::Endpoint);
        let peers = endpoints.iter().filter(|other| **other != endpoint);
        let linked = peers
            .map(|peer| paths.get(endpoint, *peer))
            .any(|p| p.kind == PathKind::NvLink);
        if endpoints.len() > 1 && !linked {
            return false;
        }
    }
    let mut distance = paths.get(endpoint, net).kind;
    if distance == PathKind::Pxn
        && let Some(relay) = relay_of(system, paths, endpoint, net)
    {
        distance = paths.get(relay, net).kind;
    }
    distance <= options.net_gdr_level
}

/// The endpoint that relays a PXN path: the last one on the way.
fn relay_of(system: &System, paths: &Paths, endpoint: NodeId, net: NodeId) -> Option<NodeId> {
    let links = paths.get(endpoint, net).links.iter().rev();
    links
        .map(|link| system.link(*link).to)
        .find(|to| system.node(*to).kind() == NodeKind::Endpoint)
}
