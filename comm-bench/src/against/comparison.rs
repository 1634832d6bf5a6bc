//! From samples to medians and ratios.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::operation::Operation;

/// The name under which the library's own samples stand.
pub const OURS: &str = "comm";

/// Over what the ranks talk; all systems of one line use the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Medium {
    /// Memory shared by processes of one host.
    Shm,
    /// TCP over loopback.
    Tcp,
}

impl Medium {
    /// The name as printed.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
        }
    }
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The operation.
    pub op: Operation,
    /// Over what it went.
    pub medium: Medium,
    /// The number of ranks.
    pub ranks: u32,
    /// The size of one rank's (larger) buffer.
    pub bytes: u64,
}

impl Key {
    /// In the order of tables: operations as everywhere, then ranks, then sizes.
    fn order(&self) -> (Medium, usize, u32, u64) {
        let place = Operation::ALL.iter().position(|op| *op == self.op);
        (
            self.medium,
            place.unwrap_or(usize::MAX),
            self.ranks,
            self.bytes,
        )
    }
}

/// The median time that one system took in one round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// What was measured.
    pub key: Key,
    /// The time of one call in microseconds.
    pub us: f64,
}

impl Sample {
    /// The samples in the output of one of the [programs](super::programs); lines of another form,
    /// such as warnings of a library, are left out.
    #[must_use]
    pub fn parse(output: &str, medium: Medium) -> Vec<Self> {
        output
            .lines()
            .filter_map(|line| Self::parse_line(line, medium))
            .collect()
    }

    fn parse_line(line: &str, medium: Medium) -> Option<Self> {
        let mut words = line.split_whitespace();
        let key = Key {
            op: words.next()?.parse().ok()?,
            medium,
            ranks: words.next()?.parse().ok()?,
            bytes: words.next()?.parse().ok()?,
        };
        let us: f64 = words.next()?.parse().ok()?;
        (words.next().is_none() && us.is_finite() && us > 0.0).then_some(Self { key, us })
    }
}

/// A peer's part of a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peer {
    /// The name of the system.
    pub system: String,
    /// Its median time over the rounds, in microseconds.
    pub us: f64,
    /// The median over rounds of our time divided by its time; `None` if no round has both.
    pub ratio: Option<f64>,
}

/// One size of one operation, for all systems; an object of the JSON file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The operation.
    pub op: Operation,
    /// Over what it went.
    pub medium: Medium,
    /// The number of ranks.
    pub ranks: u32,
    /// The size of one rank's (larger) buffer.
    pub bytes: u64,
    /// The library's median time over the rounds, in microseconds.
    pub us: Option<f64>,
    /// The peers, in the order in which they were added first.
    pub peers: Vec<Peer>,
}

/// Rounds and times, by index of the system.
type BySystem = BTreeMap<usize, Vec<(u32, f64)>>;

/// Collects samples.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    systems: Vec<String>,
    /// By place in tables.
    times: BTreeMap<(Medium, usize, u32, u64), (Key, BySystem)>,
}

impl Comparison {
    /// One without samples.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds what `system` took in `round`.
    pub fn add(&mut self, system: &str, round: u32, samples: &[Sample]) {
        let known = self.systems.iter().position(|name| name == system);
        let system = known.unwrap_or_else(|| {
            self.systems.push(system.to_owned());
            self.systems.len() - 1
        });
        for sample in samples {
            let (_, by_system) = self
                .times
                .entry(sample.key.order())
                .or_insert_with(|| (sample.key, BySystem::new()));
            let times = by_system.entry(system).or_default();
            times.push((round, sample.us));
        }
    }

    /// Whether nothing was measured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// What was measured, by operation, ranks and size.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        self.times
            .values()
            .map(|(key, by_system)| self.line(*key, by_system))
            .collect()
    }

    fn line(&self, key: Key, by_system: &BySystem) -> Line {
        let of_us = self.systems.iter().position(|system| system == OURS);
        let ours = of_us.and_then(|index| by_system.get(&index));
        let peers = by_system
            .iter()
            .filter(|(index, _)| Some(**index) != of_us)
            .filter_map(|(index, times)| {
                Some(Peer {
                    system: self.systems[*index].clone(),
                    us: median(times.iter().map(|(_, us)| *us))?,
                    ratio: ours.and_then(|ours| ratio(ours, times)),
                })
            })
            .collect();
        Line {
            op: key.op,
            medium: key.medium,
            ranks: key.ranks,
            bytes: key.bytes,
            us: ours.and_then(|ours| median(ours.iter().map(|(_, us)| *us))),
            peers,
        }
    }
}

/// The median over rounds of one time divided by the other.
fn ratio(ours: &[(u32, f64)], theirs: &[(u32, f64)]) -> Option<f64> {
    median(ours.iter().filter_map(|(round, us)| {
        let (_, other) = theirs.iter().find(|(other, _)| other == round)?;
        Some(us / other)
    }))
}

/// The middle value, or the mean of the two in the middle.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some((lower + upper) / 2.0)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn sample(op: Operation, bytes: u64, us: f64) -> Sample {
        let key = Key {
            op,
            medium: Medium::Shm,
            ranks: 2,
            bytes,
        };
        Sample { key, us }
    }

    /// Three rounds of two systems, the second of which lacks a size.
    pub(in super::super) fn comparison() -> Comparison {
        let mut comparison = Comparison::new();
        for (round, factor) in [(0, 1.0), (1, 10.0), (2, 2.0)] {
            let ours = [
                sample(Operation::AllReduce, 8, 0.2 * factor),
                sample(Operation::AllReduce, 4096, 2.0 * factor),
            ];
            comparison.add(OURS, round, &ours);
            let theirs = [sample(Operation::AllReduce, 8, 0.4 * factor)];
            comparison.add("openmpi", round, &theirs);
        }
        comparison
    }

    #[test]
    fn ratios_are_taken_within_rounds_so_slow_rounds_do_not_matter() {
        let mut comparison = comparison();
        comparison.add(OURS, 3, &[sample(Operation::AllReduce, 8, 1000.0)]);
        let lines = comparison.lines();
        let [small, large] = lines.as_slice() else {
            panic!("{lines:?}")
        };
        assert_eq!((small.bytes, large.bytes), (8, 4096));
        let peer = &small.peers[0];
        assert_eq!((peer.system.as_str(), peer.us), ("openmpi", 0.8));
        assert!((peer.ratio.unwrap() - 0.5).abs() < 1e-9);
        assert_eq!((large.us, large.peers.len()), (Some(4.0), 0));
    }

    #[test]
    fn a_round_in_which_the_peer_failed_is_left_out_of_the_ratio() {
        let mut comparison = Comparison::new();
        comparison.add(OURS, 0, &[sample(Operation::Pingpong, 8, 100.0)]);
        comparison.add(OURS, 1, &[sample(Operation::Pingpong, 8, 3.0)]);
        comparison.add("ucx", 1, &[sample(Operation::Pingpong, 8, 2.0)]);
        assert_eq!(comparison.lines()[0].peers[0].ratio, Some(1.5));
        let mut alone = Comparison::new();
        alone.add("ucx", 0, &[sample(Operation::Pingpong, 8, 2.0)]);
        let line = &alone.lines()[0];
        assert_eq!((line.us, line.peers[0].ratio), (None, None));
    }

    #[test]
    fn lines_of_programs_are_read_and_their_libraries_warnings_are_not() {
        let output = "WARNING: no device found\nall_reduce 4 1024 12.5\npingpong 2 8 nan\n\
                      pingpong 2 8 0.25 us\nunknown 2 8 1.0\n";
        let parsed = Sample::parse(output, Medium::Tcp);
        let key = Key {
            op: Operation::AllReduce,
            medium: Medium::Tcp,
            ranks: 4,
            bytes: 1024,
        };
        assert_eq!(parsed, [Sample { key, us: 12.5 }]);
    }

    #[test]
    fn the_middle_of_an_even_number_is_the_mean() {
        assert_eq!(median([4.0, 1.0].into_iter()), Some(2.5));
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median(std::iter::empty()), None);
    }
}
