//! The facts about a machine.

use super::cgroup;
use super::cpus::{CpuInfo, CpuSet, NumaNode, numa_nodes};
use super::files::SystemFiles;
use super::gpus::{Gpu, GpuProbe};
use super::net::Port;
use super::pci::PciDevice;

/// What detection found.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// What the CPUs are.
    pub cpu: CpuInfo,
    /// The NUMA nodes by number; at least one.
    pub numa: Vec<NumaNode>,
    /// The CPUs that this process may use.
    pub allowed: CpuSet,
    /// How many CPUs' time this process may use; `None` without a quota.
    pub quota: Option<f64>,
    /// All PCI devices by address.
    pub pci: Vec<PciDevice>,
    /// The network ports that a job would use.
    pub ports: Vec<Port>,
    /// The GPUs by address.
    pub gpus: Vec<Gpu>,
}

impl Machine {
    /// Looks at a machine.
    ///
    /// Reads a few hundred small files; blocks for as long as that takes. See the
    /// [module](super) for what comes from where.
    ///
    /// ```
    /// use comm_graph::detect::{Machine, Slots, SysfsGpus, SystemFiles};
    /// use comm_graph::{model, xml::Document};
    ///
    /// let machine = Machine::detect(&SystemFiles::default(), &SysfsGpus);
    /// let mut document = Document::new("detected");
    /// machine.fill(&mut document, Slots::Auto);
    /// model::build(&document)?;
    /// # Ok::<(), comm_core::Error>(())
    /// ```
    #[must_use]
    pub fn detect(files: &SystemFiles, gpus: &dyn GpuProbe) -> Self {
        let numa = numa_nodes(files);
        let limits = cgroup::limits(files);
        let present = numa
            .iter()
            .fold(CpuSet::default(), |all, node| all.or(&node.cpus));
        let allowed = match limits.cpus {
            Some(cpus) if present.is_empty() => cpus,
            Some(cpus) => cpus.and(&present),
            None => present,
        };
        let pci = PciDevice::all(files);
        let mut gpus = gpus.gpus(files, &pci);
        gpus.sort_by_key(|gpu| gpu.bus_id);
        gpus.dedup_by_key(|gpu| gpu.bus_id);
        Self {
            cpu: CpuInfo::detect(files),
            numa,
            allowed,
            quota: limits.quota,
            pci,
            ports: Port::detect(files),
            gpus,
        }
    }

    /// The number of CPUs' worth of work this process can do at a time; at least 1.
    #[must_use]
    pub fn usable_cpus(&self) -> usize {
        let cpus = self.allowed.len().max(1);
        match self.quota {
            // A quota of 1.5 CPUs is better used by two workers than by one.
            Some(quota) => cpus.min(quota.ceil().max(1.0) as usize),
            None => cpus,
        }
    }

    /// The number of the first NUMA node.
    pub(super) fn first_node(&self) -> i32 {
        self.numa.first().map_or(-1, |node| node.number)
    }

    /// The PCI device with an address.
    pub(super) fn pci_device(&self, bus_id: crate::xml::BusId) -> Option<&PciDevice> {
        let found = self
            .pci
            .binary_search_by_key(&bus_id, |device| device.bus_id);
        found.ok().map(|index| &self.pci[index])
    }

    /// The NUMA node a device belongs to: the only one where the platform does not tell.
    pub(super) fn numa_of(&self, device: &PciDevice) -> i32 {
        match self.numa.as_slice() {
            [only] => only.number,
            nodes if nodes.iter().any(|node| node.number == device.numa) => device.numa,
            _ => -1,
        }
    }
}
