//! Receivers that read large steps from the sender's process: ranks are processes, this program again.
//!
//! Whether pulling is on by default depends on the processor, so the tests say it: everywhere,
//! nowhere, and on some ranks only.

mod process_support;

use std::process::{Child, ExitCode};

use comm_api::{Communicator, ReduceOp, Result};
use libtest_mimic::{Arguments, Failed, Trial};
use process_support::{Job, all_name, all_right, end, kill_last, play_if_worker, until_ready};

/// Elements of a block: less than a step, several steps, more than is pulled.
const COUNTS: [usize; 3] = [5_000, 70_001, 600_000];
const ROUNDS: u32 = 3;

fn main() -> ExitCode {
    let play = |scenario: &str| {
        let comm = Communicator::from_env()?;
        match scenario {
            "check" => check(&comm),
            _ => endless(&comm),
        }
    };
    if let Some(code) = play_if_worker(play) {
        return code;
    }
    let mut trials = Vec::new();
    if comm_api::compiled_transports().contains(&"shm") {
        for pulls in [&["1", "1"][..], &["0", "0"], &["1", "0"], &["1", "0", "1"]] {
            trials.push(Trial::test(
                format!(
                    "large_collectives_are_right_where_ranks_pull_{}",
                    pulls.concat()
                ),
                move || all_right(&end(start("check", pulls))?),
            ));
        }
        trials.push(Trial::test(
            "a_process_that_dies_while_it_is_read_is_named",
            killed,
        ));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The value of an element of a rank's block.
fn value(rank: u32, round: u32, element: usize) -> u32 {
    (element as u32).wrapping_mul(rank + 3) ^ (round << 8)
}

fn block(rank: u32, round: u32, from: usize, count: usize) -> Vec<u32> {
    (from..from + count)
        .map(|at| value(rank, round, at))
        .collect()
}

/// What a call left, and that the caller may do with its input what it likes from then on.
fn finish(input: &mut [u32], output: &[u32], wanted: impl Iterator<Item = u32>, what: &str) {
    input.fill(0xdead_beef);
    assert!(output.iter().copied().eq(wanted), "{what}");
}

/// Every collective at every size, with contents that differ between rounds.
fn check(comm: &Communicator) -> Result<()> {
    let (rank, n) = (comm.rank(), comm.world_size());
    for round in 0..ROUNDS {
        for count in COUNTS {
            let whole = count * n as usize;
            let sum = |at: usize| -> u32 {
                (0..n).fold(0, |sum, rank| sum.wrapping_add(value(rank, round, at)))
            };
            let mut input = block(rank, round, 0, count);
            let mut output = vec![0; count];
            comm.all_reduce_into(&input, &mut output, ReduceOp::Sum)?;
            finish(&mut input, &output, (0..count).map(sum), "all_reduce_into");

            let mut buffer = block(rank, round, 0, count);
            comm.all_reduce(&mut buffer, ReduceOp::Sum)?;
            finish(&mut [], &buffer, (0..count).map(sum), "all_reduce");

            let mut input = block(rank, round, 0, whole);
            comm.reduce_scatter_into(&input, &mut output, ReduceOp::Sum)?;
            let own = rank as usize * count;
            finish(
                &mut input,
                &output,
                (own..own + count).map(sum),
                "reduce_scatter",
            );

            let mut input = block(rank, round, 0, count);
            let mut gathered = vec![0; whole];
            comm.all_gather_into(&input, &mut gathered)?;
            let blocks = || (0..n).flat_map(|rank| block(rank, round, 0, count));
            finish(&mut input, &gathered, blocks(), "all_gather");

            let mut input = block(rank, round, 0, whole);
            comm.all_to_all_into(&input, &mut gathered)?;
            let swapped = (0..n).flat_map(|peer| block(peer, round, own, count));
            finish(&mut input, &gathered, swapped, "all_to_all_into");

            let mut buffer = block(rank, round, 0, whole);
            comm.all_to_all(&mut buffer)?;
            let swapped = (0..n).flat_map(|peer| block(peer, round, own, count));
            finish(&mut [], &buffer, swapped, "all_to_all");

            let root = round % n;
            let mut buffer = block(rank, round, 0, count);
            comm.broadcast(&mut buffer, root)?;
            finish(
                &mut [],
                &buffer,
                (0..count).map(|at| value(root, round, at)),
                "broadcast",
            );
        }
    }
    comm.barrier()
}

fn endless(comm: &Communicator) -> Result<()> {
    let input = vec![comm.rank(); 60_000];
    let mut output = input.clone();
    comm.barrier()?;
    println!("ready");
    loop {
        comm.all_reduce_into(&input, &mut output, ReduceOp::Max)?;
    }
}

/// Starts one worker for each setting of `COMM_SHM_PULL`.
fn start(scenario: &'static str, pulls: &[&str]) -> Vec<Child> {
    let job = Job::new(scenario).set("COMM_TRANSPORTS", "shm");
    let world_size = pulls.len() as u32;
    let worker = |(rank, pull)| job.start(rank, world_size, &[("COMM_SHM_PULL", pull)]);
    (0..).zip(pulls.iter().copied()).map(worker).collect()
}

fn killed() -> Result<(), Failed> {
    let mut workers = start("endless", &["1", "1"]);
    until_ready(&mut workers)?;
    all_name(&end(kill_last(workers)?)?, 1)
}
