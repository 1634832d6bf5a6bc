//! GPUs as NVIDIA's management library (NVML) tells them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;

use nvml_wrapper::enum_wrappers::nv_link::Capability;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::{Device, Nvml};

use comm_core::{Error, ErrorKind, Result};

use crate::xml::BusId;

use super::files::SystemFiles;
use super::gpus::{C2c, Gpu, GpuLink, GpuProbe, SysfsGpus};
use super::pci::PciDevice;

/// Links of one GPU that are asked for at most; today's have up to 18.
const MAX_LINKS: u32 = 64;

/// NVML's numbers of the fields about chip-to-chip links.
const C2C_LINK_COUNT: u32 = 170;
const C2C_LINK_STATUS: u32 = 171;
const C2C_LINK_MAX_BANDWIDTH: u32 = 172;

/// PCI class of an NVSwitch.
const NVSWITCH: u32 = 0x06_8000;

/// GPUs with compute capability and NVLinks, from `libnvidia-ml.so.1`.
///
/// The library is part of NVIDIA's driver and is loaded at run time; nothing of it is needed to
/// build or start a program. What it does not know about (GPUs of other makers, whether network
/// cards may read GPU memory) comes from [`SysfsGpus`].
pub struct NvmlGpus {
    nvml: Nvml,
}

impl NvmlGpus {
    /// Loads the library of the installed driver.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if there is no driver or it cannot be reached; the message says
    /// which. A program then goes on with [`SysfsGpus`].
    pub fn load() -> Result<Self> {
        Nvml::init().map(|nvml| Self { nvml }).map_err(unavailable)
    }

    /// Loads the library from a given path, for drivers in unusual places.
    ///
    /// # Errors
    ///
    /// As for [`NvmlGpus::load`].
    pub fn load_from(library: impl AsRef<OsStr>) -> Result<Self> {
        let loaded = Nvml::builder().lib_path(library.as_ref()).init();
        loaded.map(|nvml| Self { nvml }).map_err(unavailable)
    }

    /// Adds what the library tells about its GPU number `index` to the one that sysfs shows.
    fn describe(&self, index: u32, gpus: &mut [Gpu], pci: &[PciDevice]) -> Option<()> {
        let device = self.nvml.device_by_index(index).ok()?;
        let address = device.pci_info().ok()?;
        let bus_id = bus_id(address.domain, address.bus, address.device)?;
        let gpu = gpus.iter_mut().find(|gpu| gpu.bus_id == bus_id)?;
        gpu.dev = index;
        gpu.compute_capability = device
            .cuda_compute_capability()
            .ok()
            .and_then(|capability| u32::try_from(capability.major * 10 + capability.minor).ok());
        gpu.links = links(&device, pci);
        gpu.c2c = c2c(&device);
        Some(())
    }
}

impl GpuProbe for NvmlGpus {
    fn gpus(&self, files: &SystemFiles, pci: &[PciDevice]) -> Vec<Gpu> {
        let mut gpus = SysfsGpus.gpus(files, pci);
        for index in 0..self.nvml.device_count().unwrap_or(0) {
            if self.describe(index, &mut gpus, pci).is_none() {
                // A GPU of another container: the library counts it, but does not show it.
                continue;
            }
        }
        gpus
    }
}

impl fmt::Debug for NvmlGpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NvmlGpus").finish_non_exhaustive()
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn unavailable(error: nvml_wrapper::error::NvmlError) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "NVIDIA's management library cannot be used ({error}); without it compute capability \
             and NVLinks of GPUs stay unknown unless a topology file tells them"
        ),
    )
}

fn bus_id(domain: u32, bus: u32, device: u32) -> Option<BusId> {
    BusId::parse(&format!("{domain:04x}:{bus:02x}:{device:02x}.0"))
}

/// The active links over which memory can be reached, counted by remote device.
fn links(device: &Device<'_>, pci: &[PciDevice]) -> Vec<GpuLink> {
    let mut counts: BTreeMap<BusId, u32> = BTreeMap::new();
    for number in 0..MAX_LINKS {
        let link = device.link_wrapper_for(number);
        // Fails for the first number that the GPU does not have, and on GPUs without NVLink.
        let Ok(active) = link.is_active() else { break };
        if !active || !link.has_capability(Capability::P2p).unwrap_or(false) {
            continue;
        }
        let remote = link.remote_pci_info().ok();
        if let Some(target) = remote.and_then(|to| bus_id(to.domain, to.bus, to.device)) {
            *counts.entry(target).or_default() += 1;
        }
    }
    let class_of = |target: BusId| {
        let device = pci.iter().find(|device| device.bus_id == target);
        // In a virtual machine the switches belong to the host: linked to, but not to be seen.
        device.map_or(NVSWITCH, |device| device.class)
    };
    counts
        .into_iter()
        .map(|(target, count)| GpuLink {
            target,
            target_class: class_of(target),
            count,
        })
        .collect()
}

/// The chip-to-chip link, if there is one that is up.
fn c2c(device: &Device<'_>) -> Option<C2c> {
    let field = |id: u32| {
        let values = device.field_values_for(&[FieldId(id)]).ok()?;
        match values.into_iter().next()?.ok()?.value.ok()? {
            SampleValue::U32(value) => Some(value),
            SampleValue::U64(value) => u32::try_from(value).ok(),
            _ => None,
        }
    };
    let count = field(C2C_LINK_COUNT).filter(|count| *count > 0)?;
    (field(C2C_LINK_STATUS)? == 1).then_some(())?;
    Some(C2c {
        megabytes_per_second: field(C2C_LINK_MAX_BANDWIDTH)?,
        count,
    })
}
