//! Which jobs the options ask for.

use comm_bench::{Operation, Suite};
use comm_core::{Error, ErrorKind, Result};

use super::options::{OperationChoice, Options};

/// The ranks of a job for which no number is given.
const RANKS: u32 = 2;
/// The ranks of a second all-reduce when nothing at all is given: more than the smallest machine
/// has CPUs, the case in which ranks have to share them.
const MORE_RANKS: u32 = 4;

/// Workers that are started together, and what they measure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Job {
    pub(super) ranks: u32,
    pub(super) suite: Suite,
}

/// The jobs to start, in order.
///
/// # Errors
///
/// [`ErrorKind::InvalidArgument`] when a job cannot measure what is asked for.
pub(super) fn of(options: &Options) -> Result<Vec<Job>> {
    if options.operations.is_empty() && options.ranks.is_empty() {
        let everything = job(options, RANKS)?;
        let suite = options.suite(vec![Operation::AllReduce]);
        return Ok(vec![
            everything,
            Job {
                ranks: MORE_RANKS,
                suite,
            },
        ]);
    }
    let ranks = if options.ranks.is_empty() {
        &[RANKS]
    } else {
        options.ranks.as_slice()
    };
    ranks.iter().map(|&ranks| job(options, ranks)).collect()
}

/// What the workers of a launched job measure.
///
/// # Errors
///
/// [`ErrorKind::InvalidArgument`] also when the options ask for another job than this one.
pub(super) fn joined(options: &Options, world_size: u32) -> Result<Job> {
    let refused = |message: &'static str| {
        Err(Error::new(ErrorKind::InvalidArgument, message).with("WORLD_SIZE", world_size))
    };
    if !options.ranks.is_empty() && options.ranks != [world_size] {
        return refused(
            "the ranks were started by a launcher (RANK and WORLD_SIZE are set); leave out --ranks, \
             or unset these variables to have the ranks started here",
        );
    }
    if options.pin.is_some() {
        return refused(
            "the ranks were started by a launcher (RANK and WORLD_SIZE are set), which also has to \
             bind them to CPUs; leave out --pin",
        );
    }
    job(options, world_size)
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
    Ok(Job { ranks, suite })
}

/// The number of ranks of the job that this process was launched in, if it was.
///
/// # Errors
///
/// [`ErrorKind::InvalidConfiguration`] when `WORLD_SIZE` is no number.
pub(super) fn launched_world_size(lookup: impl Fn(&str) -> Option<String>) -> Result<Option<u32>> {
    let (Some(_), Some(world_size)) = (lookup("RANK"), lookup("WORLD_SIZE")) else {
        return Ok(None);
    };
    match world_size.trim().parse() {
        Ok(number) if number > 0 => Ok(Some(number)),
        _ => {
            let message = "WORLD_SIZE is set by launchers and must be a number of ranks; unset it \
                           to have the ranks started here";
            Err(Error::new(ErrorKind::InvalidConfiguration, message).with("WORLD_SIZE", world_size))
        }
    }
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
    fn without_arguments_two_ranks_do_everything_and_four_reduce() {
        assert_eq!(
            jobs("--min-bytes 1K"),
            [
                (2, Operation::ALL.to_vec()),
                (4, vec![Operation::AllReduce])
            ]
        );
    }

    #[test]
    fn what_is_given_is_what_is_measured() {
        assert_eq!(jobs("--op pingpong"), [(2, vec![Operation::Pingpong])]);
        let all = Operation::ALL.to_vec();
        assert_eq!(jobs("--op all -n 2,3"), [(2, all.clone()), (3, all)]);
    }

    #[test]
    fn all_means_what_the_ranks_allow_but_a_named_operation_is_refused() {
        let alone = vec![Operation::AllReduce, Operation::Broadcast, Operation::Init];
        assert_eq!(jobs("-n 1"), [(1, alone)]);
        let error = of(&parse("-n 1 --op pingpong").unwrap())
            .unwrap_err()
            .to_string();
        assert!(error.contains("at least 2 ranks"), "{error}");
    }

    #[test]
    fn a_launched_job_is_recognised_by_rank_and_world_size() {
        let launched = |rank: Option<&str>, world_size: Option<&str>| {
            let variables = [("RANK", rank), ("WORLD_SIZE", world_size)];
            launched_world_size(|key| {
                variables
                    .iter()
                    .find(|(name, _)| *name == key)?
                    .1
                    .map(str::to_owned)
            })
        };
        assert_eq!(launched(Some("0"), Some("4")).unwrap(), Some(4));
        assert_eq!(launched(Some("0"), None).unwrap(), None);
        assert_eq!(launched(None, Some("4")).unwrap(), None);
        let error = launched(Some("0"), Some("four")).unwrap_err();
        assert!(error.to_string().contains("WORLD_SIZE=four"), "{error}");
    }

    #[test]
    fn a_launched_job_has_its_own_ranks_and_binding() {
        assert_eq!(joined(&parse("").unwrap(), 3).unwrap().ranks, 3);
        assert!(joined(&parse("-n 3").unwrap(), 3).is_ok());
        for line in ["-n 2", "--pin"] {
            let error = joined(&parse(line).unwrap(), 3).unwrap_err().to_string();
            assert!(error.contains("leave out"), "{error}");
        }
    }
}
