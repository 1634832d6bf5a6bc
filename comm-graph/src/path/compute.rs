//! From best paths to usable paths: detours where direct access is refused, network relays.

use comm_core::Error;

use crate::model::{DeviceKind, LinkKind, NodeId, NodeKind, System};
use crate::options::Options;

use super::kind::PathKind;
use super::local::LocalNets;
use super::rules::{direct_access, gdr_allowed, network_is_faster};
use super::table::Paths;

/// Computes the paths that communication really uses.
///
/// `relays` asks for the network part (relays and staging), which needs settled endpoints.
pub(super) fn compute(
    system: &System,
    options: &Options,
    relays: bool,
) -> Result<(Paths, LocalNets), Error> {
    let mut paths = Paths::search(system, options.nvb_disable)?;
    let endpoints = system.of_kind(NodeKind::Endpoint);
    for to in endpoints {
        for from in endpoints {
            if from != to
                && !direct_access(system, &paths, options, *from, *to)
                && let Some(cpu) = nearest_cpu(system, &paths, *to)
            {
                let detour = paths.over(*from, cpu, *to);
                paths.set(*from, *to, detour);
            }
        }
        for from in endpoints {
            if from != to && !reachable_inside(system, &paths, options, *from, *to) {
                let mut path = paths.get(*from, *to).clone();
                path.kind = PathKind::Net;
                paths.set(*from, *to, path);
            }
        }
    }
    if relays {
        for net in system.of_kind(NodeKind::Net) {
            prefer_c2c(system, &mut paths, *net);
        }
    }
    let local = LocalNets::compute(system, &paths, options.netdevs_policy);
    if relays {
        for (index, net) in system.of_kind(NodeKind::Net).iter().enumerate() {
            let relay = local.endpoint(index).map(|endpoint| endpoints[endpoint]);
            for endpoint in endpoints {
                if let Some(relay) = relay
                    && relay != *endpoint
                    && !options.pxn_disable
                {
                    relay_through(system, &mut paths, *endpoint, relay, *net);
                }
                stage_in_host_memory(system, &mut paths, options, *endpoint, *net);
            }
        }
    }
    Ok((paths, local))
}

fn nearest_cpu(system: &System, paths: &Paths, endpoint: NodeId) -> Option<NodeId> {
    let cpus = system.of_kind(NodeKind::Cpu).iter().copied();
    cpus.filter(|cpu| paths.get(endpoint, *cpu).kind != PathKind::Disconnected)
        .min_by_key(|cpu| paths.get(endpoint, *cpu).hops())
}

/// Whether two endpoints reach each other without the network: directly or by shared memory.
fn reachable_inside(
    system: &System,
    paths: &Paths,
    options: &Options,
    from: NodeId,
    to: NodeId,
) -> bool {
    if paths.get(from, to).kind >= PathKind::Net
        || network_is_faster(system, paths, options, from, to)
    {
        return false;
    }
    let shared_memory = !options.shm_disable && system.node(from).host == system.node(to).host;
    shared_memory || direct_access(system, paths, options, from, to)
}

/// A GPU with a chip-to-chip link reaches the cards of its CPU without crossing PCI twice.
fn prefer_c2c(system: &System, paths: &mut Paths, net: NodeId) {
    for endpoint in system.of_kind(NodeKind::Endpoint) {
        let Some((device, _)) = system.device_of(*endpoint) else {
            continue;
        };
        let Some(cpu) = nearest_cpu(system, paths, *endpoint) else {
            continue;
        };
        let linked = system
            .links_of(device)
            .any(|(_, link)| link.kind == LinkKind::C2c && link.to == cpu);
        if linked
            && paths.get(*endpoint, net).kind == PathKind::HostBridge
            && paths.get(cpu, net).kind == PathKind::HostBridge
        {
            for (from, to) in [(*endpoint, net), (net, *endpoint)] {
                let mut path = paths.over(from, cpu, to);
                path.kind = PathKind::P2c;
                paths.set(from, to, path);
            }
        }
    }
}

/// Sends to `net` through `relay`, which is near the card, where that is faster or avoids a CPU.
fn relay_through(system: &System, paths: &mut Paths, endpoint: NodeId, relay: NodeId, net: NodeId) {
    let (near, own) = (paths.get(relay, net), paths.get(endpoint, net));
    let useful = near.gbps > own.gbps || own.kind > PathKind::Pxn;
    if near.kind <= PathKind::P2c
        && paths.get(endpoint, relay).kind <= PathKind::NvLink
        && system.node(endpoint).host == system.node(relay).host
        && useful
    {
        let mut path = paths.over(endpoint, relay, net);
        path.kind = PathKind::Pxn;
        paths.set(endpoint, net, path);
    }
}

/// Where the card may not use device memory, traffic goes through the device's CPU.
fn stage_in_host_memory(
    system: &System,
    paths: &mut Paths,
    options: &Options,
    endpoint: NodeId,
    net: NodeId,
) {
    let gpu = system
        .device_of(endpoint)
        .is_some_and(|(_, device)| matches!(device.kind, DeviceKind::Gpu { .. }));
    if gpu
        && paths.get(endpoint, net).kind < PathKind::HostBridge
        && !gdr_allowed(system, paths, options, endpoint, net, false)
        && let Some(cpu) = nearest_cpu(system, paths, endpoint)
    {
        let (sending, receiving) = (
            paths.over(endpoint, cpu, net),
            paths.over(net, cpu, endpoint),
        );
        paths.set(endpoint, net, sending);
        paths.set(net, endpoint, receiving);
    }
}
