//! Receivers that read large steps from the sender's process: ranks are processes, this program again.
//!
//! Whether pulling is on by default depends on the processor, so the tests say it: everywhere,
//! nowhere, and on some ranks only.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use comm_api::{Communicator, ReduceOp, Result};
use libtest_mimic::{Arguments, Failed, Trial};

/// Names what a worker does.
const SCENARIO: &str = "COMM_TEST_SCENARIO";
const WATCHDOG: Duration = Duration::from_secs(60);
/// Elements of a block: less than a step, several steps, more than is pulled.
const COUNTS: [usize; 3] = [5_000, 70_001, 600_000];
const ROUNDS: u32 = 3;

fn main() -> ExitCode {
    if let Ok(scenario) = std::env::var(SCENARIO) {
        let result = Communicator::from_env().and_then(|comm| match scenario.as_str() {
            "check" => check(&comm),
            _ => endless(&comm),
        });
        return match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    let mut trials = Vec::new();
    if comm_api::compiled_transports().contains(&"shm") {
        for pulls in [&["1", "1"][..], &["0", "0"], &["1", "0"], &["1", "0", "1"]] {
            trials.push(Trial::test(
                format!(
                    "large_collectives_are_right_where_ranks_pull_{}",
                    pulls.concat()
                ),
                move || all_right(pulls),
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
fn start(scenario: &str, pulls: &[&str]) -> Vec<Child> {
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a free port")
        .port();
    let world_size = pulls.len();
    let worker = |(rank, pulls): (usize, &&str)| {
        Command::new(std::env::current_exe().expect("the path of this program"))
            .env(SCENARIO, scenario)
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", world_size.to_string())
            .env("COMM_RENDEZVOUS", format!("127.0.0.1:{port}"))
            .env("COMM_TRANSPORTS", "shm")
            .env("COMM_SHM_PULL", pulls)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starting a worker")
    };
    pulls.iter().enumerate().map(worker).collect()
}

/// Waits for a worker, which is killed when it takes too long; whether it succeeded, and its words.
fn end(mut child: Child) -> (bool, String) {
    let start = Instant::now();
    while start.elapsed() < WATCHDOG && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let status = child.wait().expect("waiting for a worker");
    let mut words = String::new();
    if let Some(mut errors) = child.stderr.take() {
        let _ = errors.read_to_string(&mut words);
    }
    (status.success(), words)
}

fn all_right(pulls: &[&str]) -> Result<(), Failed> {
    let ended: Vec<_> = start("check", pulls).into_iter().map(end).collect();
    if ended.iter().all(|(success, _)| *success) {
        return Ok(());
    }
    Err(format!("{ended:#?}").into())
}

fn killed() -> Result<(), Failed> {
    let mut workers = start("endless", &["1", "1"]);
    for worker in &mut workers {
        let mut line = String::new();
        let out = worker.stdout.take().ok_or("no output")?;
        BufReader::new(out).read_line(&mut line)?;
        assert_eq!(line, "ready\n");
    }
    std::thread::sleep(Duration::from_millis(50));
    let mut victim = workers.pop().ok_or("no worker")?;
    victim.kill()?;
    victim.wait()?;
    let (success, words) = end(workers.pop().ok_or("no worker")?);
    if !success && (words.contains("rank 1") || words.contains("peer=1")) {
        return Ok(());
    }
    Err(words.into())
}
