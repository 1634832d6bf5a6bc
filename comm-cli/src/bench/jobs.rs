//! Which jobs the options ask for.

use std::time::Duration;

use comm_api::LaunchEnvironment;
use comm_bench::{Operation, Suite};
use comm_core::{Error, ErrorKind, Result};

use super::options::{OperationChoice, Options};
use super::transports::P2P;

/// The ranks of a job for which no number is given.
const RANKS: u32 = 2;
/// The ranks of a second all-reduce when nothing at all is given: more than the smallest machine
/// has CPUs, the case in which ranks have to share them.
const MORE_RANKS: u32 = 4;

/// What all measurements together take at most, unless the user gives a time for each. Large sizes
/// take longer than their share, since some calls are always made; that is why this is one minute
/// where two are promised.
const TOTAL_TIME: Duration = Duration::from_secs(60);
/// However many measurements there are: batches for a median and a 99th percentile.
const LEAST_TIME: Duration = Duration::from_millis(20);

/// The transports of an overview, as far as they are compiled in.
const OVERVIEW: [&str; 3] = [P2P, "shm", "net"];

/// Ranks that are started together, and what they measure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Job {
    pub(super) ranks: u32,
    /// Transports that may be used; empty for the library's choice.
    pub(super) transports: Vec<String>,
    pub(super) suite: Suite,
}

/// The jobs to start, in order.
///
/// # Errors
///
/// [`ErrorKind::InvalidArgument`] when a job cannot measure what is asked for.
pub(super) fn of(options: &Options) -> Result<Vec<Job>> {
    let mut jobs = if options.is_overview() {
        overview(options)?
    } else if options.ranks.is_empty() {
        vec![job(options, RANKS)?]
    } else {
        let jobs = options.ranks.iter().map(|&ranks| job(options, ranks));
        jobs.collect::<Result<_>>()?
    };
    if options.operations.is_empty() && options.ranks.is_empty() {
        jobs.push(Job {
            ranks: MORE_RANKS,
            transports: options.transports(),
            suite: options.suite(vec![Operation::AllReduce]),
        });
    }
    if options.time.is_none() {
        share_time(&mut jobs);
    }
    Ok(jobs)
}

/// Everything over each transport in turn, or over any if none of them is compiled in.
fn overview(options: &Options) -> Result<Vec<Job>> {
    let compiled = comm_api::compiled_transports();
    let mut jobs = Vec::new();
    for name in OVERVIEW.iter().filter(|name| compiled.contains(name)) {
        jobs.push(Job {
            transports: vec![(*name).to_owned()],
            ..job(options, RANKS)?
        });
    }
    if jobs.is_empty() {
        jobs.push(job(options, RANKS)?);
    }
    Ok(jobs)
}

/// Gives each measurement so little time that all of them together fit into [`TOTAL_TIME`].
fn share_time(jobs: &mut [Job]) {
    let measurements: usize = jobs.iter().map(|job| job.suite.measurement_count()).sum();
    let share = TOTAL_TIME
        .div_f64(measurements.max(1) as f64)
        .max(LEAST_TIME);
    for job in jobs {
        job.suite.time = job.suite.time.min(share);
    }
}

/// What the workers of a launched job measure.
///
/// # Errors
///
/// [`ErrorKind::InvalidArgument`] also when the options ask for another job than this one.
pub(super) fn joined(options: &Options, launched: &LaunchEnvironment) -> Result<Job> {
    let given = if !options.ranks.is_empty() && options.ranks != [launched.world_size] {
        "--ranks"
    } else if options.pin.is_some() {
        "--pin"
    } else if !options.against.against.is_empty() {
        "--against"
    } else {
        let mut jobs = [job(options, launched.world_size)?];
        if options.time.is_none() {
            share_time(&mut jobs);
        }
        let [job] = jobs;
        return Ok(job);
    };
    let message = format!(
        "this process was started as a rank by {}, which decides on ranks and CPUs; leave out \
         {given}, or unset the launcher's variables to have ranks started here",
        launched.launcher
    );
    Err(Error::new(ErrorKind::InvalidArgument, message)
        .with("rank", launched.rank)
        .with("world_size", launched.world_size))
}

fn job(options: &Options, ranks: u32) -> Result<Job> {
    let mut operations = Vec::new();
    let all = [OperationChoice::All];
    let choices = if options.operations.is_empty() {
        &all
    } else {
        options.operations.as_slice()
    };
    for choice in choices {
        match choice {
            OperationChoice::One(operation) => operations.push(*operation),
            OperationChoice::All => {
                let possible = Operation::ALL.into_iter();
                operations.extend(possible.filter(|operation| operation.least_ranks() <= ranks));
            }
        }
    }
    let suite = options.suite(operations);
    suite.validate(ranks)?;
    Ok(Job {
        ranks,
        transports: options.transports(),
        suite,
    })
}

/// As which rank this process was launched, if it was.
///
/// Slurm's variables are in every shell of an allocation. They count only together with
/// `COMM_RENDEZVOUS`, without which ranks that Slurm starts could not meet.
///
/// # Errors
///
/// As for [`LaunchEnvironment::detect`] when there are variables but they are not complete.
pub(super) fn launched(
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<LaunchEnvironment>> {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.trim().is_empty());
    let launched = ["COMM_RANK", "RANK", "OMPI_COMM_WORLD_RANK"]
        .into_iter()
        .any(is_set)
        || (is_set("SLURM_PROCID") && is_set("COMM_RENDEZVOUS"));
    launched
        .then(|| LaunchEnvironment::detect(variable))
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::super::options::tests::parse;
    use super::*;

    fn jobs(line: &str) -> Vec<(u32, Vec<Operation>)> {
        let jobs = of(&parse(line).unwrap()).unwrap();
        jobs.into_iter()
            .map(|job| (job.ranks, job.suite.operations))
            .collect()
    }

    #[test]
    fn without_arguments_two_ranks_do_everything_over_each_transport_and_four_reduce() {
        let all = || (2, Operation::ALL.to_vec());
        let four = || (4, vec![Operation::AllReduce]);
        assert_eq!(jobs("--min-bytes 1K"), [all(), all(), all(), four()]);
        let transports: Vec<_> = of(&parse("").unwrap())
            .unwrap()
            .into_iter()
            .map(|job| job.transports.join(","))
            .collect();
        assert_eq!(transports, ["p2p", "shm", "net", ""]);
    }

    #[test]
    fn over_a_given_transport_all_operations_are_measured() {
        for name in ["p2p", "shm", "net", "uds", "auto"] {
            let line = format!("--transport {name}");
            let found = of(&parse(&line).unwrap()).unwrap();
            let wanted = if name == "auto" { "" } else { name };
            assert!(found.iter().all(|job| job.transports.join(",") == wanted));
            assert_eq!(found[0].suite.operations, Operation::ALL);
            assert_eq!((found.len(), found[1].ranks), (2, 4));
        }
    }

    #[test]
    fn all_measurements_share_a_minute_unless_each_is_given_a_time() {
        let times = |line| -> Vec<f64> {
            let jobs = of(&parse(line).unwrap()).unwrap();
            jobs.iter()
                .map(|job| job.suite.time.as_secs_f64())
                .collect()
        };
        let total: f64 = of(&parse("").unwrap())
            .unwrap()
            .iter()
            .map(|job| job.suite.time.as_secs_f64() * job.suite.measurement_count() as f64)
            .sum();
        assert!((total - 60.0).abs() < 1.0, "{total}");
        assert_eq!(times("--op pingpong"), [0.2]);
        assert_eq!(times("--time 3"), [3.0; 4]);
        assert_eq!(times("--factor 1000000000 -n 2"), [0.2]);
    }

    #[test]
    fn what_is_given_is_what_is_measured() {
        assert_eq!(jobs("--op pingpong"), [(2, vec![Operation::Pingpong])]);
        let all = Operation::ALL.to_vec();
        assert_eq!(jobs("--op all -n 2,3"), [(2, all.clone()), (3, all)]);
    }

    #[test]
    fn all_means_what_the_ranks_allow_but_a_named_operation_is_refused() {
        let mut alone = Operation::ALL.to_vec();
        alone.retain(|operation| !operation.is_message());
        assert_eq!(jobs("-n 1"), [(1, alone)]);
        let error = of(&parse("-n 1 --op pingpong").unwrap())
            .unwrap_err()
            .to_string();
        assert!(error.contains("at least 2 ranks"), "{error}");
    }

    fn launched_by(variables: &[(&str, &str)]) -> Result<Option<LaunchEnvironment>> {
        launched(&|key| {
            let (_, value) = variables.iter().find(|(name, _)| *name == key)?;
            Some((*value).to_owned())
        })
    }

    const TORCHRUN: [(&str, &str); 4] = [
        ("RANK", "1"),
        ("WORLD_SIZE", "3"),
        ("MASTER_ADDR", "host"),
        ("MASTER_PORT", "29500"),
    ];

    #[test]
    fn a_launched_rank_is_recognised_by_its_variables() {
        let found = launched_by(&TORCHRUN).unwrap().unwrap();
        assert_eq!((found.rank, found.world_size), (1, 3));
        assert_eq!(launched_by(&[("WORLD_SIZE", "4")]).unwrap(), None);
        let error = launched_by(&[("RANK", "0")]).unwrap_err().to_string();
        assert!(error.contains("WORLD_SIZE"), "{error}");
    }

    #[test]
    fn a_shell_in_a_slurm_allocation_starts_its_own_ranks() {
        let shell = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2")];
        assert_eq!(launched_by(&shell).unwrap(), None);
        let rank = [shell[0], shell[1], ("COMM_RENDEZVOUS", "host:29400")];
        assert_eq!(launched_by(&rank).unwrap().unwrap().world_size, 2);
    }

    #[test]
    fn a_launched_job_has_its_own_ranks_and_binding() {
        let launched = launched_by(&TORCHRUN).unwrap().unwrap();
        assert_eq!(joined(&parse("").unwrap(), &launched).unwrap().ranks, 3);
        assert!(joined(&parse("-n 3").unwrap(), &launched).is_ok());
        for (line, option) in [("-n 2", "--ranks"), ("--pin", "--pin")] {
            let error = joined(&parse(line).unwrap(), &launched)
                .unwrap_err()
                .to_string();
            assert!(error.contains(&format!("leave out {option}")), "{error}");
        }
    }
}
