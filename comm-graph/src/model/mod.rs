//! The machine as a graph: nodes, links with bandwidths, and the [`System`] that holds them.
//!
//! # Contract
//!
//! * A [`System`] describes the hosts of one topology file (normally one host).
//! * Nodes are found by [`NodeId`]; per kind they have an *index* (their position in
//!   [`System::of_kind`]), which is what ring orders and path tables count in.
//! * Links are directed; both directions exist and carry their own bandwidth. Links of a node are
//!   ordered (fastest first, then the way up the PCI tree last); searches depend on that order.
//! * Bandwidths are in GB/s (1e9 bytes per second) as `f32`, the precision NCCL uses, so that
//!   both reach the same decisions.
//! * The model is a plain value; equal files give equal systems.

mod build;
mod host;
mod kinds;
mod rates;
mod switches;
mod system;

pub use build::build;
pub use host::HostMemory;
pub use kinds::{
    Cpu, CpuArch, CpuVendor, Device, DeviceKind, Endpoint, LinkKind, Net, Nic, Node, NodeKind,
    NodeRole, PciSwitch,
};
pub use system::{Link, LinkId, NodeId, System};

pub(crate) use rates::LOCAL_GBPS;
