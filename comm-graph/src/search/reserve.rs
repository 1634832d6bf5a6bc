//! Bandwidth bookkeeping: taking a path's bandwidth off its links and giving it back.

use crate::model::{CpuArch, CpuVendor, LinkId, LinkKind, NodeId, NodeKind, NodeRole, System};
use crate::path::{Path, PathKind};

/// What is left on every link.
#[derive(Clone, Debug)]
pub(super) struct Reserve<'a> {
    system: &'a System,
    left: Vec<f32>,
}

impl<'a> Reserve<'a> {
    pub(super) fn new(system: &'a System) -> Self {
        let links = (0..system.link_count()).map(|index| LinkId(index as u32));
        Self {
            system,
            left: links.map(|link| system.link(link).gbps).collect(),
        }
    }

    /// What is left on a device's link to the host, in the busier direction.
    pub(super) fn host_side(&self, device: NodeId) -> f32 {
        let mut links = self.system.links_of(device);
        let found = links.find(|(_, link)| {
            link.kind == LinkKind::Pci
                || (link.kind == LinkKind::Local
                    && self.system.node(link.to).kind() == NodeKind::Cpu)
        });
        let Some((out, _)) = found else { return 0.0 };
        let back = self
            .system
            .reverse(out)
            .map_or(0.0, |back| self.left[back.index()]);
        self.left[out.index()].min(back)
    }

    /// Takes `gbps` off every link of the path that starts at `start`; all or nothing.
    pub(super) fn take(&mut self, start: NodeId, path: &Path, gbps: f32) -> bool {
        let taken = self.change(start, path, path.links.len(), gbps);
        if taken < path.links.len() {
            self.change(start, path, taken, -gbps);
            return false;
        }
        true
    }

    /// Gives back what [`take`](Self::take) took.
    pub(super) fn give_back(&mut self, start: NodeId, path: &Path, gbps: f32) {
        self.change(start, path, path.links.len(), -gbps);
    }

    /// Subtracts from the first `steps` links; returns how many of them had enough.
    fn change(&mut self, start: NodeId, path: &Path, steps: usize, gbps: f32) -> usize {
        let from_endpoint = self.system.node(start).kind() == NodeKind::Endpoint;
        let pci_gbps = if from_endpoint && self.crosses_intel(path) {
            gbps * 6.0 / 5.0
        } else {
            gbps
        };
        for (step, id) in path.links.iter().take(steps).enumerate() {
            let link = self.system.link(*id);
            let forward = if link.kind == LinkKind::Pci {
                pci_gbps
            } else {
                gbps
            };
            let mut backward = 0.0;
            match &self.system.node(link.to).role {
                // Older GPUs answer writes from outside with noticeable traffic of their own.
                NodeRole::Device(device)
                    if !from_endpoint
                        && device
                            .compute_capability()
                            .is_some_and(|capability| capability < 80) =>
                {
                    backward = forward / 8.0;
                }
                // NVLink into a POWER CPU shares its bandwidth between the directions.
                NodeRole::Cpu(cpu)
                    if cpu.arch == CpuArch::Power && link.kind == LinkKind::NvLink =>
                {
                    backward = forward;
                }
                _ => {}
            }
            let reverse = if backward == 0.0 {
                None
            } else {
                self.system.reverse(*id)
            };
            let short = self.left[id.index()] < forward
                || reverse.is_some_and(|reverse| self.left[reverse.index()] < backward);
            if short {
                return step;
            }
            subtract(&mut self.left[id.index()], forward);
            if let Some(reverse) = reverse {
                subtract(&mut self.left[reverse.index()], backward);
            }
        }
        steps
    }

    /// PCI traffic of a GPU through the root complex of an Intel CPU is less efficient.
    fn crosses_intel(&self, path: &Path) -> bool {
        path.kind == PathKind::HostBridge
            && path.links.iter().any(|link| {
                match &self.system.node(self.system.link(*link).to).role {
                    NodeRole::Cpu(cpu) => {
                        cpu.arch == CpuArch::X86 && matches!(cpu.vendor, CpuVendor::Intel { .. })
                    }
                    _ => false,
                }
            })
    }
}

/// Rounds to MB/s after each step, so that giving back restores the value exactly.
fn subtract(left: &mut f32, gbps: f32) {
    *left = ((*left - gbps) * 1000.0).round() / 1000.0;
}
