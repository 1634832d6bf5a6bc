//! The kinds of nodes and links and what is known about each node.

use crate::xml::BusId;

use super::system::LinkId;

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NodeKind {
    /// An endpoint of communication: one rank (NCCL calls this node "GPU").
    Endpoint,
    /// The device that endpoints hang on: a physical GPU or a slot of host memory.
    Device,
    /// A PCI bridge or switch.
    Pci,
    /// All NVSwitches of the host, folded into one node.
    NvSwitch,
    /// A CPU, one per NUMA node.
    Cpu,
    /// A network card.
    Nic,
    /// A network port.
    Net,
}

impl NodeKind {
    /// All kinds, in index order.
    pub const ALL: [Self; 7] = [
        Self::Endpoint,
        Self::Device,
        Self::Pci,
        Self::NvSwitch,
        Self::Cpu,
        Self::Nic,
        Self::Net,
    ];
}

/// What a link is made of; the order is the order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LinkKind {
    /// Inside one device or process.
    Local,
    /// NVLink (or XGMI).
    NvLink,
    /// A coherent chip-to-chip link between CPU and GPU.
    C2c,
    /// PCI Express.
    Pci,
    /// Between CPUs of one host.
    System,
    /// From a network card to its port.
    Net,
}

/// One rank's place on a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// The rank given by the file, or assigned in device order.
    pub rank: u32,
    /// The device's number on its host (NVML index, or slot number for host memory).
    pub dev: u32,
}

/// Which memory a device stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DeviceKind {
    /// A GPU.
    Gpu {
        /// Compute capability as two digits, e.g. 90.
        compute_capability: u32,
        /// Whether network cards may read and write its memory.
        gdr: bool,
    },
    /// A process slot bound to a NUMA node; its memory is host memory.
    HostSlot,
}

/// A physical GPU or a slot of host memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// The device's number on its host.
    pub dev: u32,
    /// GPU or host slot.
    pub kind: DeviceKind,
    /// The PCI address; `None` for host slots.
    pub bus_id: Option<BusId>,
}

impl Device {
    /// The compute capability; `None` for host slots.
    #[must_use]
    pub fn compute_capability(&self) -> Option<u32> {
        match self.kind {
            DeviceKind::Gpu {
                compute_capability, ..
            } => Some(compute_capability),
            DeviceKind::HostSlot => None,
        }
    }
}

/// A PCI bridge or switch.
#[derive(Clone, Debug, PartialEq)]
pub struct PciSwitch {
    /// The PCI address.
    pub bus_id: BusId,
    /// `vendor << 48 | device << 32 | subsystem vendor << 16 | subsystem device`; 0 when unknown.
    pub identity: u64,
}

/// Instruction set of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CpuArch {
    /// x86_64.
    X86,
    /// 64-bit ARM.
    Arm,
    /// POWER.
    Power,
    /// Not known or another one.
    Other,
}

/// Maker (and, where it matters for bandwidth, generation) of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CpuVendor {
    /// Intel with its model number.
    Intel {
        /// CPUID model.
        model: u32,
    },
    /// AMD.
    Amd,
    /// Zhaoxin with its CPUID model.
    Zhaoxin {
        /// CPUID model.
        model: u32,
    },
    /// Not known or another one.
    Other,
}

/// A CPU with its memory: one NUMA node.
#[derive(Clone, Debug, PartialEq)]
pub struct Cpu {
    /// The NUMA number; -1 when the platform does not tell.
    pub numa: i32,
    /// Instruction set.
    pub arch: CpuArch,
    /// Maker.
    pub vendor: CpuVendor,
    /// Hexadecimal CPU mask in comma-separated groups, as in the file; empty when unknown.
    pub affinity: String,
}

/// A network card (chip).
#[derive(Clone, Debug, PartialEq)]
pub struct Nic {
    /// The PCI address without function; `None` for virtual cards.
    pub bus_id: Option<BusId>,
}

/// A network port.
#[derive(Clone, Debug, PartialEq)]
pub struct Net {
    /// The port's number on its host.
    pub dev: u32,
    /// The plugin's or interface's name.
    pub name: String,
    /// Bandwidth in GB/s.
    pub gbps: f32,
    /// With `port`, identifies the physical port; nets with equal values share its bandwidth.
    pub guid: u64,
    /// The chip's port number.
    pub port: i32,
    /// Latency that the network adds, in microseconds.
    pub latency_us: f32,
    /// Whether the card can read and write device memory.
    pub gdr: bool,
    /// Rail number, -1 when unset.
    pub rail: i32,
    /// Plane number, -1 when unset; planes are not mixed within a channel.
    pub plane: i32,
}

impl Net {
    /// Whether two nets are one physical port.
    #[must_use]
    pub fn same_port(&self, other: &Self) -> bool {
        self.guid == other.guid && self.port == other.port
    }
}

/// What a node is, with what is known about it.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeRole {
    /// One rank.
    Endpoint(Endpoint),
    /// A GPU or host slot.
    Device(Device),
    /// A bridge or switch.
    Pci(PciSwitch),
    /// The NVSwitches.
    NvSwitch,
    /// A NUMA node.
    Cpu(Cpu),
    /// A network card.
    Nic(Nic),
    /// A network port.
    Net(Net),
}

/// A node of the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What the node is.
    pub role: NodeRole,
    /// The host the node belongs to, counted from 0 within its [`System`](super::System).
    pub host: u32,
    /// Links that leave the node, in the order in which searches try them.
    pub links: Vec<LinkId>,
}

impl Node {
    /// The kind of the node.
    #[must_use]
    pub const fn kind(&self) -> NodeKind {
        match self.role {
            NodeRole::Endpoint(_) => NodeKind::Endpoint,
            NodeRole::Device(_) => NodeKind::Device,
            NodeRole::Pci(_) => NodeKind::Pci,
            NodeRole::NvSwitch => NodeKind::NvSwitch,
            NodeRole::Cpu(_) => NodeKind::Cpu,
            NodeRole::Nic(_) => NodeKind::Nic,
            NodeRole::Net(_) => NodeKind::Net,
        }
    }
}
