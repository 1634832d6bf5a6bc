//! `commctl bench --against SYSTEM,..`: the library beside other systems, in one run.
//!
//! # Contract
//!
//! * All systems are measured in turn, `--rounds` times, so that what else runs on the machine meets
//!   all of them alike; ratios are medians over rounds. Every system measures by the same rule (see
//!   [`comm_bench`]) and binds its ranks alike: to one CPU each if there are enough, else not at all.
//! * **Peers are optional.** One that is not installed is named together with the package that brings
//!   it, and left out. One that fails is named with its output's last lines, and the others go on.
//!   Neither changes the exit code.
//! * **Output**: a table on standard output, the same as JSON (one object per line and size) in
//!   `--json` and as a plot in `--plot`.
//! * Programs of ours for peers' libraries ([`comm_bench::against::programs`]) are compiled into a
//!   temporary directory that is removed at the end.
//! * Collectives are measured out of place, except for the broadcast, which MPI only has in place.

mod gloo;
mod iperf3;
mod limit;
mod mpi;
mod options;
mod ours;
mod program;
mod ucx;

pub use options::{AgainstOptions, System};

use std::fmt::Write as _;
use std::fs;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use comm_bench::against::{Comparison, Medium, OURS, Sample, plot};
use comm_bench::{Operation, Size, Sweep};
use comm_core::{DType, Error, ErrorKind, ReduceOp, Result};
use rustix::thread::{CpuSet, sched_getaffinity};

use super::options::{OperationChoice, Options};
use program::Scratch;

/// What is compared if the user does not say.
const OPERATIONS: [Operation; 7] = [
    Operation::AllReduce,
    Operation::Broadcast,
    Operation::AllGather,
    Operation::ReduceScatter,
    Operation::AllToAll,
    Operation::Pingpong,
    Operation::Bandwidth,
];
/// The largest size, unless the user says.
const LARGEST: Size = Size(16 << 20);
/// The ratio of sizes, unless the user says: curves need no more points.
const FACTOR: u64 = 8;
/// What all rounds together are to take, unless the user gives a time for each measurement.
const TOTAL_TIME: Duration = Duration::from_secs(120);
const LEAST_TIME: Duration = Duration::from_millis(10);
const MOST_TIME: Duration = Duration::from_millis(200);
const ELEMENT_BYTES: usize = 4;

/// What one system measures in one go: some operations over one medium with one number of ranks.
#[derive(Clone, Debug)]
struct Job {
    medium: Medium,
    /// The transport of ours that is measured.
    transport: String,
    ranks: u32,
    operations: Vec<Operation>,
    /// Whether our buffers are such that ranks read each other's.
    mem_alloc: bool,
    sweep: Sweep,
    time: Duration,
    /// The CPUs to which ranks are bound, one each; empty if there are fewer than ranks.
    cpus: Vec<usize>,
}

impl Job {
    fn sizes(&self) -> Vec<u64> {
        self.sweep.bytes(ELEMENT_BYTES)
    }

    /// The sizes and operations as our programs take them, and the seconds.
    fn arguments(&self, operations: &[Operation]) -> [String; 3] {
        let sizes: Vec<String> = self.sizes().iter().map(u64::to_string).collect();
        let names: Vec<&str> = operations.iter().map(|op| op.as_str()).collect();
        let seconds = self.time.as_secs_f64().to_string();
        [names.join(","), sizes.join(","), seconds]
    }

    /// Which of the job's operations are among `possible`.
    fn among(&self, possible: &[Operation]) -> Vec<Operation> {
        let mut operations = self.operations.clone();
        operations.retain(|operation| possible.contains(operation));
        operations
    }

    /// Long enough for any system that works, short enough not to wait for one that hangs.
    fn limit(&self, operations: usize) -> Duration {
        let measurements = operations * self.sizes().len();
        Duration::from_secs(60) + self.time * 20 * u32::try_from(measurements).unwrap_or(u32::MAX)
    }
}

/// A system ready to be measured.
trait Peer {
    fn name(&self) -> &'static str;

    /// Measures what the system has of the job, which may be nothing.
    ///
    /// # Errors
    ///
    /// When the system's programs fail or take too long.
    fn measure(&self, job: &Job) -> Result<Vec<Sample>>;
}

/// Whether a system can be measured here.
enum Found {
    Ready(Box<dyn Peer>),
    /// What is missing, and what brings it.
    Absent(String),
}

/// Measures the library and the given systems in turn and returns the exit code for this process.
///
/// # Errors
///
/// When the options contradict each other, this library cannot be measured, or a file cannot be
/// written.
pub(super) fn run(options: &Options) -> Result<u8> {
    if options.dtype != [DType::F32] || options.redop != [ReduceOp::Sum] {
        let message = "peers are measured with sums of f32 only; leave out --dtype and --redop";
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    let json = options
        .json
        .clone()
        .unwrap_or_else(|| PathBuf::from("bench-against.json"));
    let picture = options
        .against
        .plot
        .clone()
        .unwrap_or_else(|| PathBuf::from("bench-against.svg"));
    let scratch = Scratch::new()?;
    let mut peers = Vec::new();
    for system in &options.against.against {
        match find(*system, &scratch)? {
            Found::Ready(peer) => peers.push(peer),
            Found::Absent(reason) => println!("# absent: {reason}"),
        }
    }
    let jobs = jobs(options, peers.len())?;
    let comparison = measure(options.against.rounds, &jobs, &peers, &scratch)?;
    print!("{comparison}");
    write(&json, &json_lines(&comparison)?)?;
    write(&picture, &plot(&comparison))?;
    println!("# written: {} and {}", json.display(), picture.display());
    Ok(0)
}

fn find(system: System, scratch: &Scratch) -> Result<Found> {
    match system {
        System::OpenMpi => mpi::find(scratch),
        System::Ucx => Ok(ucx::find()),
        System::Gloo => gloo::find(scratch),
        System::Iperf3 => Ok(iperf3::find()),
        System::FifoLimit => limit::find(limit::FIFO, scratch),
        System::TcpLimit => limit::find(limit::TCP, scratch),
    }
}

/// Every system in every round, one after the other.
fn measure(
    rounds: u32,
    jobs: &[Job],
    peers: &[Box<dyn Peer>],
    scratch: &Scratch,
) -> Result<Comparison> {
    let watched = std::io::stderr().is_terminal();
    let mut comparison = Comparison::new();
    let mut failures = Vec::new();
    for round in 0..rounds {
        for job in jobs {
            if watched {
                let (ranks, medium) = (job.ranks, job.medium);
                eprint!(
                    "\rround {} of {rounds}: {ranks} ranks, {medium}  ",
                    round + 1
                );
            }
            comparison.add(OURS, round, &ours::measure(job, scratch)?);
            for peer in peers {
                match peer.measure(job) {
                    Ok(samples) => comparison.add(peer.name(), round, &samples),
                    Err(error) => failures.push(format!(
                        "# {} failed with {} ranks over {}: {error}",
                        peer.name(),
                        job.ranks,
                        job.medium
                    )),
                }
            }
        }
    }
    if watched {
        eprintln!();
    }
    failures.dedup();
    failures.iter().for_each(|failure| println!("{failure}"));
    Ok(comparison)
}

/// What is to be measured by each system in one round.
///
/// # Errors
///
/// [`ErrorKind::InvalidArgument`] for a transport that no peer has, or sizes that make no sense.
fn jobs(options: &Options, peers: usize) -> Result<Vec<Job>> {
    let media = match options.transports().as_slice() {
        [] => vec![
            ("shm".to_owned(), Medium::Shm),
            ("net".to_owned(), Medium::Tcp),
        ],
        names => names
            .iter()
            .map(|name| Ok((name.clone(), medium(name)?)))
            .collect::<Result<_>>()?,
    };
    let operations = operations(&options.operations);
    let max = options
        .max_bytes
        .unwrap_or_else(|| LARGEST.max(options.min_bytes));
    let sweep = Sweep {
        min: options.min_bytes,
        max,
        factor: options.factor.unwrap_or(FACTOR),
    };
    sweep.validate()?;
    let ranks = match options.ranks.as_slice() {
        [] => &[2],
        ranks => ranks,
    };
    let allowed = allowed_cpus()?;
    let mut jobs = Vec::new();
    for (transport, medium) in media {
        for &ranks in ranks {
            let mut operations = operations.clone();
            // Messages have two ends, whatever the number of ranks.
            let messages = [Operation::Pingpong, Operation::Bandwidth];
            operations.retain(|operation| ranks == 2 || !messages.contains(operation));
            let bound = !options.no_pin && ranks as usize <= allowed.len();
            jobs.push(Job {
                medium,
                transport: transport.clone(),
                ranks,
                operations,
                mem_alloc: options.mem_alloc,
                sweep,
                time: Duration::ZERO,
                cpus: if bound { allowed.clone() } else { Vec::new() },
            });
        }
    }
    let measurements: usize = jobs
        .iter()
        .map(|job| job.operations.len() * job.sizes().len())
        .sum();
    let all = measurements * (peers + 1) * options.against.rounds as usize;
    let share = TOTAL_TIME.div_f64(all.max(1) as f64);
    for job in &mut jobs {
        job.time = options
            .time
            .unwrap_or_else(|| share.clamp(LEAST_TIME, MOST_TIME));
    }
    Ok(jobs)
}

fn operations(choices: &[OperationChoice]) -> Vec<Operation> {
    let mut operations = Vec::new();
    for choice in choices {
        match choice {
            OperationChoice::One(operation) => operations.push(*operation),
            OperationChoice::All => operations.extend(OPERATIONS),
        }
    }
    if operations.is_empty() {
        operations.extend(OPERATIONS);
    }
    operations
}

fn medium(transport: &str) -> Result<Medium> {
    match transport {
        "shm" => Ok(Medium::Shm),
        "net" | "tcp" => Ok(Medium::Tcp),
        other => {
            let message = "peers can be compared with over shared memory and TCP only; use \
                           --transport shm or --transport net";
            Err(Error::new(ErrorKind::InvalidArgument, message).with("transport", other))
        }
    }
}

/// The CPUs that this process may use.
fn allowed_cpus() -> Result<Vec<usize>> {
    let allowed = sched_getaffinity(None)
        .map_err(|error| Error::system("reading which CPUs this process may use", error))?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&cpu| allowed.is_set(cpu))
        .collect())
}

fn json_lines(comparison: &Comparison) -> Result<String> {
    let mut text = String::new();
    for line in comparison.lines() {
        let json = serde_json::to_string(&line).map_err(|error| {
            Error::new(ErrorKind::Internal, "a line cannot be written as JSON").with_source(error)
        })?;
        let _ = writeln!(text, "{json}");
    }
    Ok(text)
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| {
        Error::system("writing the comparison", error).with("path", path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::super::options::tests::parse;
    use super::*;

    fn jobs_of(line: &str) -> Result<Vec<Job>> {
        jobs(&parse(line).unwrap(), 2)
    }

    #[test]
    fn both_media_are_compared_unless_a_transport_is_named() {
        let media = |line: &str| -> Vec<Medium> {
            let jobs = jobs_of(line).unwrap();
            jobs.iter().map(|job| job.medium).collect()
        };
        assert_eq!(media("--against ucx"), [Medium::Shm, Medium::Tcp]);
        assert_eq!(media("--against ucx --transport net"), [Medium::Tcp]);
        let error = jobs_of("--against ucx --transport p2p").unwrap_err();
        assert!(error.to_string().contains("--transport shm"), "{error}");
    }

    #[test]
    fn messages_are_compared_between_two_ranks_only() {
        let jobs = jobs_of("--against openmpi --transport shm -n 2,3 --op pingpong,all_reduce");
        let operations: Vec<_> = jobs
            .unwrap()
            .into_iter()
            .map(|job| job.operations)
            .collect();
        let both = vec![Operation::Pingpong, Operation::AllReduce];
        assert_eq!(operations, [both, vec![Operation::AllReduce]]);
    }

    #[test]
    fn ranks_are_bound_if_each_has_a_cpu() {
        let cpus = allowed_cpus().unwrap();
        let job = |line: &str| -> Job { jobs_of(line).unwrap().remove(0) };
        assert_eq!(job("--against ucx -n 1").cpus, cpus);
        assert!(job("--against ucx -n 1 --no-pin").cpus.is_empty());
        let many = cpus.len() + 1;
        assert!(job(&format!("--against ucx -n {many}")).cpus.is_empty());
    }

    #[test]
    fn all_rounds_share_the_time() {
        let job = &jobs_of("--against ucx --transport shm --op all_reduce --rounds 1").unwrap()[0];
        assert_eq!(job.time, MOST_TIME);
        let job = &jobs_of("--against ucx --rounds 1000").unwrap()[0];
        assert_eq!(job.time, LEAST_TIME);
        let job = &jobs_of("--against ucx --time 3").unwrap()[0];
        assert_eq!(job.time, Duration::from_secs(3));
    }

    #[test]
    fn programs_get_operations_sizes_and_seconds() {
        let line = "--against openmpi --op pingpong,all_gather -b 8 -e 512 -f 8 --time 0.5";
        let job = &jobs_of(line).unwrap()[0];
        let both = job.among(&[Operation::Pingpong, Operation::AllGather]);
        assert_eq!(
            job.arguments(&both),
            ["pingpong,all_gather", "8,64,512", "0.5"]
        );
    }
}
