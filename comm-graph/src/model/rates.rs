//! Bandwidths of links in GB/s, from NCCL 2.30's tables.

use super::kinds::{Cpu, CpuArch, CpuVendor};

/// A link inside one device.
pub(crate) const LOCAL_GBPS: f32 = 5000.0;

/// One NVLink by the GPU's compute capability.
pub(super) fn nvlink_gbps(compute_capability: u32) -> f32 {
    match compute_capability {
        100.. => 40.1,
        90..=99 => 20.6,
        86 => 12.0,
        60..=69 => 18.0,
        _ => 20.0,
    }
}

/// The link between two CPUs of one host.
pub(super) fn system_gbps(cpu: &Cpu) -> f32 {
    match (cpu.arch, cpu.vendor) {
        (CpuArch::Power, _) => 32.0,
        (CpuArch::Arm, _) => 6.0,
        (CpuArch::X86, CpuVendor::Intel { model }) => match model {
            0xcf.. => 40.0,
            0x8f.. => 22.0,
            0x55.. => 10.0,
            _ => 6.0,
        },
        (CpuArch::X86, CpuVendor::Amd) => 16.0,
        (CpuArch::X86, CpuVendor::Zhaoxin { model }) => {
            if model >= 0x5b {
                9.0
            } else {
                6.0
            }
        }
        _ => LOCAL_GBPS,
    }
}
