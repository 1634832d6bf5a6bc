//! Hosts without GPUs: process slots on NUMA nodes as devices of their own.
//!
//! A host slot hangs on its CPU node by a local link whose bandwidth is what one thread copies.
//! Paths, search and cost model then treat it like any other device: two slots of one NUMA node
//! meet in their CPU, slots of two NUMA nodes cross the link between the CPUs.

use super::kinds::{
    Cpu, CpuArch, CpuVendor, Device, DeviceKind, Endpoint, LinkKind, Net, Nic, NodeRole,
};
use super::rates::LOCAL_GBPS;
use super::switches;
use super::system::{NodeId, System};

/// What one thread copies between buffers of its own NUMA node, in GB/s.
pub(super) const DEFAULT_COPY_GBPS: f32 = 10.0;

pub(super) fn add_slot(
    system: &mut System,
    cpu: NodeId,
    host: u32,
    rank: u32,
    dev: u32,
    gbps: f32,
) {
    let device = Device {
        dev,
        kind: DeviceKind::HostSlot,
        bus_id: None,
    };
    let device = system.add_node(NodeRole::Device(device), host);
    let endpoint = system.add_node(NodeRole::Endpoint(Endpoint { rank, dev }), host);
    system.attach(endpoint, device, LinkKind::Local, LOCAL_GBPS);
    system.attach(device, cpu, LinkKind::Local, gbps);
}

/// Bandwidths of a host whose ranks work on host memory, in GB/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostMemory {
    /// What one thread copies within its NUMA node.
    pub copy_gbps: f32,
    /// The link between two NUMA nodes.
    pub cross_numa_gbps: f32,
    /// The network of the host.
    pub net_gbps: f32,
    /// Latency of the network in microseconds.
    pub net_latency_us: f32,
}

impl Default for HostMemory {
    /// 10 GB/s per thread, 10 GB/s between NUMA nodes, 10 Gb/s Ethernet with 15 us.
    fn default() -> Self {
        Self {
            copy_gbps: DEFAULT_COPY_GBPS,
            cross_numa_gbps: 10.0,
            net_gbps: 1.25,
            net_latency_us: 15.0,
        }
    }
}

impl System {
    /// A host with one slot per entry of `numa`: slot `i` is rank `i` on NUMA node `numa[i]`.
    ///
    /// The host has one network port on its first NUMA node. NUMA nodes appear in ascending order.
    #[must_use]
    pub fn host(numa: &[i32], memory: &HostMemory) -> Self {
        let mut system = Self::empty(1);
        let mut nodes: Vec<i32> = numa.to_vec();
        nodes.sort_unstable();
        nodes.dedup();
        let mut cpus = Vec::new();
        for numa in &nodes {
            let cpu = Cpu {
                numa: *numa,
                arch: CpuArch::Other,
                vendor: CpuVendor::Other,
                affinity: String::new(),
            };
            cpus.push(system.add_node(NodeRole::Cpu(cpu), 0));
        }
        if let Some(cpu) = cpus.first() {
            let nic = system.add_node(NodeRole::Nic(Nic { bus_id: None }), 0);
            system.attach(nic, *cpu, LinkKind::Pci, LOCAL_GBPS);
            let net = Net {
                dev: 0,
                name: String::from("host"),
                gbps: memory.net_gbps,
                guid: 0,
                port: 0,
                latency_us: memory.net_latency_us,
                gdr: false,
                rail: -1,
                plane: -1,
            };
            let net = system.add_node(NodeRole::Net(net), 0);
            system.attach(net, nic, LinkKind::Net, memory.net_gbps);
        }
        for (rank, node) in (0..).zip(numa) {
            if let Ok(index) = nodes.binary_search(node) {
                add_slot(&mut system, cpus[index], 0, rank, rank, memory.copy_gbps);
            }
        }
        for a in &cpus {
            for b in &cpus {
                if a != b {
                    system.connect(*a, *b, LinkKind::System, memory.cross_numa_gbps);
                }
            }
        }
        switches::order_links(&mut system);
        system
    }
}
