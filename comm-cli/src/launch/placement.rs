//! Which CPUs each worker is bound to.
//!
//! Only CPUs that the launcher itself may use are handed out, in turn: with more workers than CPUs
//! (or nodes) the later ones share with the earlier ones.

use std::fs;
use std::path::Path;

use comm_core::{Error, ErrorKind, Result};
use rustix::thread::{CpuSet, sched_getaffinity};

use super::options::Pin;

/// The CPUs of each worker by rank; `None` when nothing is bound.
///
/// # Errors
///
/// When the system does not tell the allowed CPUs.
pub(crate) fn plan(pin: Option<Pin>, workers: u32) -> Result<Option<Vec<CpuSet>>> {
    let Some(pin) = pin else { return Ok(None) };
    let allowed = sched_getaffinity(None)
        .map_err(|error| Error::system("reading which CPUs this process may use", error))?;
    let allowed: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|&cpu| allowed.is_set(cpu))
        .collect();
    let places = match pin {
        Pin::Cpu => allowed.iter().map(|&cpu| vec![cpu]).collect(),
        Pin::Numa => by_node(&allowed, &numa_nodes(Path::new("/sys/devices/system/node"))),
    };
    if places.is_empty() {
        return Err(Error::new(
            ErrorKind::Unavailable,
            "there is no CPU to bind workers to",
        ));
    }
    let sets = places.iter().cycle().take(workers as usize).map(|cpus| {
        let mut set = CpuSet::new();
        cpus.iter().for_each(|&cpu| set.set(cpu));
        set
    });
    Ok(Some(sets.collect()))
}

/// The allowed CPUs of each node that has any; all of them as one node on a machine without nodes.
fn by_node(allowed: &[usize], nodes: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let places: Vec<Vec<usize>> = nodes
        .iter()
        .map(|node| {
            node.iter()
                .copied()
                .filter(|cpu| allowed.contains(cpu))
                .collect()
        })
        .filter(|cpus: &Vec<usize>| !cpus.is_empty())
        .collect();
    if places.is_empty() && !allowed.is_empty() {
        vec![allowed.to_vec()]
    } else {
        places
    }
}

/// The CPUs of each NUMA node in the order of the nodes' numbers; empty without sysfs.
fn numa_nodes(directory: &Path) -> Vec<Vec<usize>> {
    let mut nodes: Vec<(usize, Vec<usize>)> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let number = entry
                .file_name()
                .to_str()?
                .strip_prefix("node")?
                .parse()
                .ok()?;
            let list = fs::read_to_string(entry.path().join("cpulist")).ok()?;
            Some((number, parse_list(&list)))
        })
        .collect();
    nodes.sort_unstable();
    nodes.into_iter().map(|(_, cpus)| cpus).collect()
}

/// Reads the kernel's lists such as `0-3,8,10-11`; what is not a number is left out.
fn parse_list(list: &str) -> Vec<usize> {
    list.trim()
        .split(',')
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(
                first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?.min(CpuSet::MAX_CPU - 1),
            )
        })
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lists_are_understood() {
        assert_eq!(parse_list("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse_list("\n"), [0; 0]);
        assert_eq!(parse_list("1-999999999999").len(), CpuSet::MAX_CPU - 1);
    }

    #[test]
    fn nodes_are_ordered_by_number() {
        let directory = tempfile::tempdir().unwrap();
        for (node, list) in [("node10", "4-5"), ("node2", "0-1"), ("power", "")] {
            fs::create_dir(directory.path().join(node)).unwrap();
            fs::write(directory.path().join(node).join("cpulist"), list).unwrap();
        }
        assert_eq!(numa_nodes(directory.path()), [vec![0, 1], vec![4, 5]]);
    }

    #[test]
    fn nodes_without_an_allowed_cpu_get_no_worker() {
        let nodes = [vec![0, 1], vec![2, 3], vec![4, 5]];
        assert_eq!(by_node(&[1, 4, 5], &nodes), [vec![1], vec![4, 5]]);
        assert_eq!(by_node(&[1, 2], &[]), [vec![1, 2]]);
    }

    #[test]
    fn workers_take_turns_on_the_allowed_cpus() {
        assert!(plan(None, 3).unwrap().is_none());
        let cpus = std::thread::available_parallelism().unwrap().get();
        let plan = plan(Some(Pin::Cpu), u32::try_from(cpus).unwrap() + 64)
            .unwrap()
            .unwrap();
        assert!(plan.iter().all(|set| set.count() == 1));
        let affinity = sched_getaffinity(None).unwrap().count() as usize;
        assert!(
            plan.iter()
                .zip(&plan[affinity..])
                .all(|(first, later)| first == later)
        );
    }
}
