//! CPUs: lists, NUMA nodes, vendor and model.

use std::collections::BTreeSet;

use super::files::SystemFiles;

/// CPU numbers at or above this are nonsense; the kernel's own limit is 8192.
const MOST_CPUS: u32 = 1 << 16;

/// A set of CPU numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSet(BTreeSet<u32>);

impl CpuSet {
    /// Reads the kernel's lists such as `0-3,8,10-11`; what is not a number is left out.
    #[must_use]
    pub fn parse_list(text: &str) -> Self {
        let number = |text: &str| text.trim().parse::<u32>().ok();
        let ranges = text.trim().split(',').filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(number(first)?..=number(last)?.min(MOST_CPUS - 1))
        });
        // A file holds at most 16 Ki ranges; overlapping ones would still add up to a lot of work.
        let mut cpus = BTreeSet::new();
        for range in ranges.take(MOST_CPUS as usize) {
            if cpus.len() < MOST_CPUS as usize {
                cpus.extend(range);
            }
        }
        Self(cpus)
    }

    /// Reads the mask of topology files; `None` when it is none.
    #[must_use]
    pub fn parse_mask(text: &str) -> Option<Self> {
        let mut cpus = BTreeSet::new();
        for (group, first) in text.trim().rsplit(',').zip((0..MOST_CPUS).step_by(32)) {
            let bits = u32::from_str_radix(group.trim_start_matches("0x"), 16).ok()?;
            cpus.extend(
                (0..32)
                    .filter(|bit| bits >> bit & 1 == 1)
                    .map(|bit| first + bit),
            );
        }
        Some(Self(cpus))
    }

    /// The kernel's form of a list, such as `0-3,8,10-11`.
    #[must_use]
    pub fn to_list(&self) -> String {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for cpu in self.iter() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        let texts = ranges.iter().map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        });
        texts.collect::<Vec<_>>().join(",")
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }

    /// The number of CPUs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no CPU.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The CPUs that are in both sets.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// The CPUs that are in either set.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0).copied().collect())
    }

    /// The hexadecimal mask of topology files: groups of 8 digits, highest CPUs first.
    #[must_use]
    pub fn to_mask(&self) -> String {
        let highest = self.0.last().map_or(0, |cpu| *cpu / 32);
        let group = |index: u32| {
            let cpus = self.0.range(index * 32..(index + 1) * 32);
            let bits = cpus.fold(0_u32, |bits, cpu| bits | 1 << (cpu % 32));
            format!("{bits:08x}")
        };
        let groups: Vec<String> = (0..=highest).rev().map(group).collect();
        groups.join(",")
    }
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaNode {
    /// The node's number; -1 for the only node of a machine that has no NUMA information.
    pub number: i32,
    /// Its CPUs; none for nodes that are memory only.
    pub cpus: CpuSet,
    /// Distances to all nodes in the order of their numbers (10 = itself); empty when unknown.
    pub distances: Vec<u32>,
}

/// The NUMA nodes in the order of their numbers; at least one.
pub(super) fn numa_nodes(files: &SystemFiles) -> Vec<NumaNode> {
    const NODES: &str = "sys/devices/system/node";
    let numbers = files.entries(NODES).into_iter().filter_map(|name| {
        let digits = name.strip_prefix("node")?;
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = plain.then(|| digits.parse::<i32>().ok()).flatten()?;
        Some((number, name))
    });
    let mut nodes: Vec<NumaNode> = numbers
        .map(|(number, name)| {
            let line = |file| files.line(&format!("{NODES}/{name}/{file}"));
            let distances = line("distance").unwrap_or_default();
            NumaNode {
                number,
                cpus: line("cpulist").map_or_else(CpuSet::default, |l| CpuSet::parse_list(&l)),
                distances: distances
                    .split_whitespace()
                    .filter_map(|number| number.parse().ok())
                    .collect(),
            }
        })
        .collect();
    nodes.sort_by_key(|node| node.number);
    nodes.dedup_by_key(|node| node.number);
    if nodes.is_empty() {
        let online = files.line("sys/devices/system/cpu/online");
        nodes.push(NumaNode {
            number: -1,
            cpus: online.map_or_else(CpuSet::default, |list| CpuSet::parse_list(&list)),
            distances: Vec::new(),
        });
    }
    nodes
}

/// What all CPUs of the machine are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuInfo {
    /// `x86_64`, `arm64` or `ppc64`; `None` for others.
    pub arch: Option<&'static str>,
    /// The vendor as CPUID gives it, e.g. `GenuineIntel`; `None` where there is no CPUID.
    pub vendor: Option<String>,
    /// CPUID family.
    pub family: Option<u32>,
    /// CPUID model.
    pub model: Option<u32>,
}

impl CpuInfo {
    pub(super) fn detect(files: &SystemFiles) -> Self {
        let text = files.text("proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            text.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                // Blanks belong to the value: one maker's name starts and ends with them.
                (key.trim_end() == name).then(|| value.strip_prefix(' ').unwrap_or(value))
            })
        };
        let number = |name| field(name)?.trim().parse().ok();
        let printable = |text: &&str| {
            let known = !text.trim().is_empty() && text.len() <= 32;
            known && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        };
        let vendor = field("vendor_id").filter(printable);
        let arch = if vendor.is_some() {
            Some("x86_64")
        } else if field("CPU implementer").is_some() {
            Some("arm64")
        } else if field("cpu").is_some_and(|cpu| cpu.starts_with("POWER")) {
            Some("ppc64")
        } else {
            match std::env::consts::ARCH {
                "x86_64" => Some("x86_64"),
                "aarch64" => Some("arm64"),
                "powerpc64" => Some("ppc64"),
                _ => None,
            }
        };
        Self {
            arch,
            vendor: vendor.map(str::to_owned),
            family: vendor.and_then(|_| number("cpu family")),
            model: vendor.and_then(|_| number("model")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_become_masks_in_groups_of_eight_digits() {
        for (list, mask) in [
            ("0-1", "00000003"),
            ("0-15,48-63", "ffff0000,0000ffff"),
            ("32", "00000001,00000000"),
            ("", "00000000"),
        ] {
            let cpus = CpuSet::parse_list(list);
            assert_eq!(cpus.to_mask(), mask, "{list}");
            assert_eq!(cpus.to_list(), list);
            assert_eq!(CpuSet::parse_mask(mask), Some(cpus));
        }
    }

    #[test]
    fn nonsense_in_lists_is_left_out_and_huge_ranges_are_cut() {
        assert_eq!(
            CpuSet::parse_list("x,3,-,7-5,1-")
                .iter()
                .collect::<Vec<_>>(),
            [3]
        );
        assert_eq!(CpuSet::parse_list("0-4294967295").len(), MOST_CPUS as usize);
        let many = "0-4294967295,".repeat(5000);
        assert_eq!(CpuSet::parse_list(&many).len(), MOST_CPUS as usize);
    }
}
