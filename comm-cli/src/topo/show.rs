//! `commctl topo show`: a machine as text.

use std::fmt::Write as _;
use std::path::Path;

use comm_core::Result;
use comm_graph::detect::{CpuSet, Slots};
use comm_graph::model::{
    CpuVendor, DeviceKind, LinkKind, NodeId, NodeKind, NodeRole, System, build,
};
use comm_graph::path::Topology;

use super::{Lookup, input};

/// How near devices are is printed up to this many columns.
const MOST_COLUMNS: usize = 40;

/// The machine of a file, or this one.
pub(super) fn text(file: Option<&Path>, lookup: Lookup<'_>) -> Result<String> {
    let system = match file {
        Some(path) => input::system(path)?,
        None => build(&input::detected(Path::new("/"), Slots::Auto, lookup)?)?,
    };
    let mut text = tree(&system);
    device_links(&mut text, &system);
    if !system.of_kind(NodeKind::Endpoint).is_empty() {
        let options = comm_graph::Options::from_variables(lookup)?;
        distances(&mut text, &system, &options)?;
    }
    Ok(text)
}

/// NUMA nodes with what hangs on them.
fn tree(system: &System) -> String {
    let mut text = String::new();
    for cpu in system.of_kind(NodeKind::Cpu) {
        let _ = writeln!(text, "{}", describe(system, *cpu));
        // What is left to print, with the branches in front of it.
        let mut pending: Vec<(NodeId, String, bool)> = Vec::new();
        push_children(&mut pending, system, *cpu, "");
        while let Some((node, indent, last)) = pending.pop() {
            let branch = if last { "`-- " } else { "|-- " };
            let _ = writeln!(text, "{indent}{branch}{}", describe(system, node));
            // Real machines are far less deep; hostile files must not make lines quadratic.
            if indent.len() < 256 {
                let below = format!("{indent}{}", if last { "    " } else { "|   " });
                push_children(&mut pending, system, node, &below);
            } else {
                push_children(&mut pending, system, node, &indent);
            }
        }
    }
    text
}

fn push_children(
    pending: &mut Vec<(NodeId, String, bool)>,
    system: &System,
    node: NodeId,
    indent: &str,
) {
    let mut children = system.below(node);
    children.extend(system.ports_of(node));
    let count = children.len();
    let numbered = children.into_iter().enumerate().rev();
    pending.extend(numbered.map(|(at, child)| (child, indent.to_owned(), at + 1 == count)));
}

fn describe(system: &System, node: NodeId) -> String {
    let up = match system.up_link(node) {
        Some(link) => format!("  {} GB/s", link.gbps),
        None => String::new(),
    };
    match &system.node(node).role {
        NodeRole::Cpu(cpu) => {
            let vendor = match cpu.vendor {
                CpuVendor::Intel { model } => format!("  Intel model {model}"),
                CpuVendor::Amd => "  AMD".to_owned(),
                CpuVendor::Zhaoxin { .. } => "  Zhaoxin".to_owned(),
                CpuVendor::Other => String::new(),
            };
            let cpus = CpuSet::parse_mask(&cpu.affinity).filter(|cpus| !cpus.is_empty());
            let cpus = cpus.map_or(String::new(), |cpus| format!("  CPUs {}", cpus.to_list()));
            let mut links = system.links_of(node);
            let between = links.find(|(_, link)| link.kind == LinkKind::System);
            let between = between.map_or(String::new(), |(_, link)| {
                format!("  {} GB/s to each other node", link.gbps)
            });
            format!("NUMA node {}{vendor}{cpus}{between}", cpu.numa)
        }
        NodeRole::Pci(pci) => format!("PCI switch {}{up}", pci.bus_id),
        NodeRole::Device(device) => {
            let ranks: Vec<String> = system
                .endpoints_of(node)
                .into_iter()
                .filter_map(|endpoint| match &system.node(endpoint).role {
                    NodeRole::Endpoint(endpoint) => Some(format!("  rank {}", endpoint.rank)),
                    _ => None,
                })
                .collect();
            let ranks = ranks.concat();
            let bus_id = device.bus_id.map_or(String::new(), |id| format!("  {id}"));
            match device.kind {
                DeviceKind::Gpu {
                    compute_capability,
                    gdr,
                } => {
                    let gdr = if gdr { "  GPUDirect" } else { "" };
                    let dev = device.dev;
                    format!("GPU {dev}{ranks}{bus_id}  sm {compute_capability}{gdr}{up}")
                }
                DeviceKind::HostSlot => format!("slot {}{ranks}{up}", device.dev),
            }
        }
        NodeRole::Nic(nic) => match nic.bus_id {
            Some(bus_id) => format!("network card {bus_id}{up}"),
            // It hangs on its CPU without a wire.
            None => "virtual network card".to_owned(),
        },
        NodeRole::Net(net) => {
            let gigabits = net.gbps * 8.0;
            let gdr = if net.gdr { "  GPUDirect" } else { "" };
            format!("port {}  {}  {gigabits} Gb/s{gdr}", net.dev, net.name)
        }
        NodeRole::Endpoint(endpoint) => format!("rank {}", endpoint.rank),
        NodeRole::NvSwitch => "NVSwitch".to_owned(),
    }
}

/// NVLinks and chip-to-chip links, one line per device.
fn device_links(text: &mut String, system: &System) {
    for device in system.of_kind(NodeKind::Device) {
        let links = system.links_of(*device).filter_map(|(_, link)| {
            let kind = match link.kind {
                LinkKind::NvLink => "",
                LinkKind::C2c => "C2C ",
                _ => return None,
            };
            Some(format!(
                "{kind}{} {} GB/s",
                short(system, link.to),
                link.gbps
            ))
        });
        let links: Vec<String> = links.collect();
        if !links.is_empty() {
            let from = short(system, *device);
            let _ = writeln!(text, "NVLink {from}: {}", links.join(", "));
        }
    }
}

fn short(system: &System, node: NodeId) -> String {
    match &system.node(node).role {
        NodeRole::Device(device) => match device.kind {
            DeviceKind::Gpu { .. } => format!("GPU{}", device.dev),
            DeviceKind::HostSlot => format!("slot{}", device.dev),
        },
        NodeRole::Cpu(cpu) => format!("NUMA{}", cpu.numa),
        NodeRole::Net(net) => format!("net{}", net.dev),
        NodeRole::Endpoint(endpoint) => format!("rank{}", endpoint.rank),
        NodeRole::Pci(_) | NodeRole::Nic(_) | NodeRole::NvSwitch => "NVSwitch".to_owned(),
    }
}

/// How near every rank is to every rank and port.
fn distances(text: &mut String, system: &System, options: &comm_graph::Options) -> Result<()> {
    let ranks = system.ranks().len();
    // One rank more than there are here: ports matter as in a job over several hosts.
    let (domains, domain_of) = Topology::domains(system, ranks + 1, options)?;
    let [endpoints, nets] = [NodeKind::Endpoint, NodeKind::Net].map(|kind| system.of_kind(kind));
    let columns: Vec<NodeId> = endpoints.iter().chain(nets).copied().collect();
    if columns.len() > MOST_COLUMNS {
        let _ = writeln!(
            text,
            "\n{} ranks and ports: too many for a table",
            columns.len()
        );
        return Ok(());
    }
    let _ = write!(text, "\n{:<8}", "");
    for column in &columns {
        let _ = write!(text, " {:>6}", short(system, *column));
    }
    text.push('\n');
    for (from, domain) in endpoints.iter().zip(&domain_of) {
        let _ = write!(text, "{:<8}", short(system, *from));
        let topology = &domains[*domain];
        for to in &columns {
            let inside = topology
                .system()
                .of_kind(system.node(*to).kind())
                .contains(to);
            let kind = if from == to {
                "-"
            } else if inside {
                topology.paths().get(*from, *to).kind.as_str()
            } else {
                "NET"
            };
            let _ = write!(text, " {kind:>6}");
        }
        text.push('\n');
    }
    text.push_str(
        "\nNVL NVLink, NVB through another GPU, C2C chip to chip, PIX one PCI switch, PXB several, \
         PXN through a GPU near the card,\nPHB through the CPU, SYS between NUMA nodes, NET through \
         the network\n",
    );
    Ok(())
}
