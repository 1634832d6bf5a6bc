//! The speeds that are tried, fastest first, in GB/s per channel.

use crate::path::Topology;

const INTRA: &[f32] = &[
    40.0, 30.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0,
];
const INTER: &[f32] = &[
    48.0, 30.0, 28.0, 24.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.4, 1.2,
    0.24, 0.12,
];
const INTRA_SM90: &[f32] = &[
    60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 11.0, 6.0, 3.0,
];
const INTER_SM90: &[f32] = &[
    48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0, 2.4, 1.2, 0.24,
    0.12,
];
const INTRA_SM100: &[f32] = &[
    90.0, 80.0, 70.0, 60.0, 50.0, 45.0, 40.0, 30.0, 24.0, 20.0, 19.0, 18.0,
];
const INTER_SM100: &[f32] = &[
    96.0, 86.0, 80.0, 48.0, 45.1, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0,
    2.4, 1.2, 0.24, 0.12,
];
/// Host memory: threads copy slower than GPUs, and networks down to 1 Gb/s count.
const HOST: &[f32] = &[
    48.0, 40.0, 30.0, 24.0, 20.0, 16.0, 12.0, 10.0, 8.0, 6.0, 5.0, 4.0, 3.0, 2.4, 2.0, 1.5, 1.2,
    0.6, 0.24, 0.12, 0.06, 0.012,
];

/// The speeds for a domain, by its slowest GPU and by whether channels use networks.
pub(super) fn of(topology: &Topology) -> &'static [f32] {
    let Some((slowest, _)) = topology.system().compute_capabilities() else {
        return HOST;
    };
    match (topology.uses_networks(), slowest) {
        (false, 100..) => INTRA_SM100,
        (false, 90..) => INTRA_SM90,
        (false, _) => INTRA,
        (true, 100..) => INTER_SM100,
        (true, 90..) => INTER_SM90,
        (true, _) => INTER,
    }
}
