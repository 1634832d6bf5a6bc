//! Detection: what a machine is made of, read from sysfs and procfs.
//!
//! # Contract
//!
//! * This is the only part of the crate that reads files. It reads below one directory, which is
//!   `/` on a real machine and any other tree in a test ([`SystemFiles`]).
//! * Detection does not fail: what is missing, unreadable or nonsense is left out. Files are read
//!   up to 64 KiB, lists and numbers have upper bounds, links that lead out of the directory are
//!   not followed; so hostile content costs little and never panics.
//! * [`Machine::detect`] gives the facts, [`Machine::fill`] puts them into a topology file:
//!   **an attribute that the file has wins**, missing attributes and elements are added, nothing is
//!   removed. Filling an empty [`Document`](crate::xml::Document) gives the detected topology.
//! * Equal trees give equal documents: everything is sorted by PCI address or name.
//!
//! # What comes from where
//!
//! | fact | source |
//! |---|---|
//! | NUMA nodes, their CPUs and distances | `/sys/devices/system/node/node*/{cpulist,distance}` |
//! | CPUs this process may use | `/proc/self/status` and the cgroup's cpuset (versions 1 and 2) |
//! | CPU time it may use | the smallest `cpu.max` or `cpu.cfs_quota_us` from its cgroup upwards |
//! | vendor, family, model | `/proc/cpuinfo` |
//! | PCI switches | the real path of `/sys/bus/pci/devices/*`: upstream ports become switches |
//! | PCI link | the smaller `max_link_speed` and `max_link_width` of a device and its port |
//! | network interfaces | `/sys/class/net/*/{operstate,carrier,speed,device}` |
//! | InfiniBand ports | `/sys/class/infiniband/*/{node_guid,ports/*/{state,rate}}` |
//! | GPUs | a [`GpuProbe`] |
//!
//! # GPUs
//!
//! sysfs shows that there is a GPU and where, but neither its compute capability nor its NVLinks.
//! Those come from the vendor's library. So GPUs come from a [`GpuProbe`] that the caller supplies:
//! [`SysfsGpus`] is the one without any library; with the feature `nvml`, `NvmlGpus` asks NVIDIA's,
//! which it loads at run time.

mod cgroup;
mod cpus;
mod files;
mod fill;
mod gpus;
mod machine;
mod net;
#[cfg(feature = "nvml")]
mod nvml;
mod pci;

pub use cpus::{CpuInfo, CpuSet, NumaNode};
pub use files::SystemFiles;
pub use fill::Slots;
pub use gpus::{C2c, Gpu, GpuLink, GpuProbe, SysfsGpus};
pub use machine::Machine;
pub use net::{Port, PortKind};
#[cfg(feature = "nvml")]
pub use nvml::NvmlGpus;
pub use pci::PciDevice;
