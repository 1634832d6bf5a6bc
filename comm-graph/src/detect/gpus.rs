//! GPUs: what a vendor's library tells, or what sysfs shows without one.

use crate::xml::BusId;

use super::files::SystemFiles;
use super::pci::PciDevice;

/// A GPU of this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// Its PCI address; it must be one of the machine's PCI devices.
    pub bus_id: BusId,
    /// Its number in the vendor's library.
    pub dev: u32,
    /// Compute capability as two digits; `None` when unknown.
    pub compute_capability: Option<u32>,
    /// Whether network cards may read and write its memory; `None` when unknown.
    pub gdr: Option<bool>,
    /// Its NVLinks, one entry per remote device.
    pub links: Vec<GpuLink>,
    /// Its chip-to-chip link to the CPU.
    pub c2c: Option<C2c>,
}

/// NVLinks (or XGMI links) from a GPU to one remote device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuLink {
    /// The remote device's address.
    pub target: BusId,
    /// PCI class of the remote device: `0x030200` GPU, `0x068000` NVSwitch, `0x068001` CPU.
    pub target_class: u32,
    /// The number of links.
    pub count: u32,
}

/// A coherent link between GPU and CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct C2c {
    /// Bandwidth of one link in MB/s.
    pub megabytes_per_second: u32,
    /// The number of links.
    pub count: u32,
}

/// Where GPUs come from.
///
/// Implement it over NVML or another library to tell what sysfs does not show. A probe that cannot
/// reach its library answers what [`SysfsGpus`] answers.
pub trait GpuProbe {
    /// The GPUs of the machine, in any order.
    ///
    /// `pci` holds all PCI devices of the machine. Numbers should be unique; a number that a
    /// topology file uses for another GPU is replaced by a free one.
    fn gpus(&self, files: &SystemFiles, pci: &[PciDevice]) -> Vec<Gpu>;
}

/// GPUs by PCI class and vendor, without any library.
///
/// Finds NVIDIA's and AMD's devices and numbers them by address, as NVML does. Display adapters of
/// other makers (a server's management controller, a laptop's built-in graphics) are no GPUs here.
/// Compute capability and links stay unknown; GPUDirect is taken for possible when the kernel
/// module that provides it is loaded.
#[derive(Clone, Copy, Debug, Default)]
pub struct SysfsGpus;

impl GpuProbe for SysfsGpus {
    fn gpus(&self, files: &SystemFiles, pci: &[PciDevice]) -> Vec<Gpu> {
        const NVIDIA: u32 = 0x10de;
        const AMD: u32 = 0x1002;
        let loaded = |module: &str| files.exists(&format!("sys/module/{module}"));
        let found = pci.iter().filter_map(|device| {
            let [vendor, ..] = device.identity;
            let gdr = match (vendor, device.class >> 8) {
                (NVIDIA, 0x0300 | 0x0302) => loaded("nvidia_peermem") || loaded("nv_peer_mem"),
                (AMD, 0x0302 | 0x0380) => loaded("amdgpu"),
                _ => return None,
            };
            Some((device.bus_id, gdr))
        });
        let numbered = (0..).zip(found);
        let gpus = numbered.map(|(dev, (bus_id, gdr))| Gpu {
            bus_id,
            dev,
            compute_capability: None,
            gdr: Some(gdr),
            links: Vec::new(),
            c2c: None,
        });
        gpus.collect()
    }
}
