//! What a process knows about the host on which it runs.

use std::fs;

use comm_core::HostId;

use crate::settings::variable;

/// The host's name; `unknown` if the system does not tell.
pub(crate) fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .or_else(|| variable("HOSTNAME"))
        .unwrap_or_else(|| "unknown".to_owned())
}

/// The identity of the host: `override_text` if given, else boot id and host name.
///
/// Two containers with different host names count as two hosts: whether they can share memory is
/// not known from here, and `COMM_HOSTID` joins them.
pub(crate) fn host_id(override_text: Option<&str>, host_name: &str) -> HostId {
    let mut hasher = blake3::Hasher::new_derive_key("comm host id 1");
    match override_text {
        Some(text) => {
            hasher.update(b"given");
            hasher.update(text.as_bytes());
        }
        None => {
            let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
            hasher.update(b"found");
            hasher.update(boot.trim().as_bytes());
            hasher.update(b"\0");
            hasher.update(host_name.as_bytes());
        }
    }
    let mut id = [0; 16];
    hasher.finalize_xof().fill(&mut id);
    HostId(id)
}

/// The CPUs that this process may use, by number; empty if the system does not tell.
fn allowed_cpus() -> Vec<usize> {
    #[cfg(target_os = "linux")]
    if let Ok(set) = rustix::thread::sched_getaffinity(None) {
        return (0..rustix::thread::CpuSet::MAX_CPU)
            .filter(|cpu| set.is_set(*cpu))
            .collect();
    }
    Vec::new()
}

/// How many CPUs this process can use: its affinity mask and the quota of its cgroup.
pub(crate) fn cpu_count() -> u32 {
    // The standard library looks at the mask and at the quota of cgroup v1 and v2.
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// How many CPUs the host has online, whoever may use them; 0 if the system does not tell.
pub(crate) fn online_cpu_count() -> u32 {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").ok();
    let ranges = online.and_then(|list| parse_cpu_list(&list));
    let count = ranges.map_or(0, |ranges| {
        ranges.into_iter().map(|range| range.count()).sum()
    });
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The NUMA nodes that have at least one CPU of this process, in ascending order.
///
/// Empty if the system does not show its nodes.
pub(crate) fn numa_nodes() -> Vec<u32> {
    let allowed = allowed_cpus();
    let Ok(entries) = fs::read_dir("/sys/devices/system/node") else {
        return Vec::new();
    };
    let mut nodes: Vec<u32> = entries
        .flatten()
        .filter_map(|entry| {
            let node = entry
                .file_name()
                .to_str()?
                .strip_prefix("node")?
                .parse()
                .ok()?;
            let cpus = fs::read_to_string(entry.path().join("cpulist")).ok()?;
            let cpus = parse_cpu_list(&cpus)?;
            allowed
                .iter()
                .any(|cpu| cpus.iter().any(|range| range.contains(cpu)))
                .then_some(node)
        })
        .collect();
    nodes.sort_unstable();
    nodes
}

/// Parses the kernel's list format, for example `0-3,8`.
fn parse_cpu_list(text: &str) -> Option<Vec<std::ops::RangeInclusive<usize>>> {
    text.trim()
        .split(',')
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse().ok()?..=last.parse().ok()?)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_host_id_joins_hosts_of_different_names_and_nothing_else_does() {
        assert_eq!(host_id(Some("pod"), "a"), host_id(Some("pod"), "b"));
        assert_eq!(host_id(None, "a"), host_id(None, "a"));
        assert_ne!(host_id(None, "a"), host_id(None, "b"));
        assert_ne!(host_id(None, "pod"), host_id(Some("pod"), "pod"));
    }

    #[test]
    fn cpu_lists_of_the_kernel_are_understood() {
        assert_eq!(parse_cpu_list("0-3,8\n").unwrap(), [0..=3, 8..=8]);
        assert_eq!(parse_cpu_list("\n").unwrap(), []);
        assert!(parse_cpu_list("0-x").is_none());
    }

    #[test]
    fn this_process_has_at_least_one_cpu() {
        assert!(cpu_count() >= 1);
    }
}
