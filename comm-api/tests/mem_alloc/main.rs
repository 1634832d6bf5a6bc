//! Memory that peers read directly: ranks are processes, this program again.
//!
//! Where shared memory is used, the ranks do without reading each other's processes
//! (`COMM_SHM_PULL=0`) unless a test says otherwise: what is read directly then is what was mapped.

mod scenarios;

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};

/// Names what a worker does.
const SCENARIO: &str = "COMM_TEST_SCENARIO";
/// What kind of memory a worker uses: `mapped` or `plain`.
const MEMORY: &str = "COMM_TEST_MEMORY";
const WATCHDOG: Duration = Duration::from_secs(90);

fn main() -> ExitCode {
    if let Ok(scenario) = std::env::var(SCENARIO) {
        return match scenarios::play(&scenario) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    let compiled = comm_api::compiled_transports();
    let mut trials = vec![Trial::test("one_rank_needs_nobody", || {
        all_right(&["alone"], &[])
    })];
    if compiled.contains(&"shm") {
        trials.extend(over_shared_memory());
    }
    if compiled.contains(&"net") {
        trials.push(Trial::test(
            "without_shared_memory_it_is_ordinary_memory_and_explain_says_why",
            || {
                let off = [("COMM_SHM_DISABLE", "1"), ("COMM_TRANSPORTS", "")];
                all_right(&["disabled"; 2], &off)
            },
        ));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn over_shared_memory() -> Vec<Trial> {
    let mut trials = Vec::new();
    for memories in [
        &["mapped", "mapped"][..],
        &["mapped", "plain"],
        &["plain", "mapped", "mapped"],
    ] {
        for pulls in ["0", "1"] {
            let name = format!(
                "collectives_are_right_on_{}_memory_with_pull_{pulls}",
                memories.join("_")
            );
            let trial = move || {
                let ranks = memories.iter().map(|memory| ("collectives", *memory));
                let ended = end_all(start(ranks, &[("COMM_SHM_PULL", pulls)]));
                succeeded(&ended)
            };
            trials.push(Trial::test(name, trial));
        }
    }
    if cfg!(feature = "shm-named") {
        trials.push(Trial::test("named_shared_memory_maps_it_too", || {
            all_right(&["collectives"; 2], &[("COMM_SHM_NAMED", "1")])
        }));
    }
    let two = |name: &'static str, scenario: &'static str| {
        Trial::test(name, move || all_right(&[scenario; 2], &[]))
    };
    trials.extend([
        two(
            "a_dropped_tensor_is_unmapped_by_peers_and_its_address_means_something_else",
            "dropped",
        ),
        two(
            "another_communicator_of_the_same_processes_reads_it_too",
            "another_communicator",
        ),
        two(
            "beyond_the_limit_of_allocations_there_is_a_reason_and_right_results",
            "limit",
        ),
        two(
            "a_peer_that_has_left_keeps_nobody_waiting_and_nothing_mapped",
            "left",
        ),
        two("memory_that_cannot_be_had_is_an_error", "exhausted"),
        Trial::test("a_killed_owner_is_named_and_its_memory_unmapped", killed),
        Trial::test(
            "a_rank_that_was_stopped_hears_why_the_others_gave_up",
            || {
                stopped("shm")?;
                stopped("net")
            },
        ),
        Trial::test("ranks_that_are_threads_read_it_too", || {
            all_right(&["threads"], &[])
        }),
    ]);
    trials
}

/// Starts one worker for each scenario and kind of memory.
fn start<'a>(
    ranks: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    settings: &[(&str, &str)],
) -> Vec<Child> {
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a free port")
        .port();
    let world_size = ranks.clone().count();
    let worker = |(rank, (scenario, memory)): (usize, (&str, &str))| {
        Command::new(std::env::current_exe().expect("the path of this program"))
            .env(SCENARIO, scenario)
            .env(MEMORY, memory)
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", world_size.to_string())
            .env("COMM_RENDEZVOUS", format!("127.0.0.1:{port}"))
            .env("COMM_TRANSPORTS", "shm")
            .env("COMM_SHM_PULL", "0")
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starting a worker")
    };
    ranks.enumerate().map(worker).collect()
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

fn end_all(workers: Vec<Child>) -> Vec<(bool, String)> {
    workers.into_iter().map(end).collect()
}

fn succeeded(ended: &[(bool, String)]) -> Result<(), Failed> {
    if ended.iter().all(|(success, _)| *success) {
        return Ok(());
    }
    Err(format!("{ended:#?}").into())
}

fn all_right(scenarios: &[&str], settings: &[(&str, &str)]) -> Result<(), Failed> {
    let ranks = scenarios.iter().map(|scenario| (*scenario, "mapped"));
    succeeded(&end_all(start(ranks, settings)))
}

/// Waits until all workers are in the middle of what they do.
fn until_ready(workers: &mut [Child]) -> Result<(), Failed> {
    for worker in workers {
        let mut line = String::new();
        let out = worker.stdout.take().ok_or("no output")?;
        BufReader::new(out).read_line(&mut line)?;
        assert_eq!(line, "ready\n");
    }
    std::thread::sleep(Duration::from_millis(50));
    Ok(())
}

fn stopped(transport: &str) -> Result<(), Failed> {
    let compiled = comm_api::compiled_transports();
    if !compiled.contains(&transport) {
        return Ok(());
    }
    let settings = [
        ("COMM_OPERATION_TIMEOUT_SECONDS", "0.5"),
        ("COMM_TRANSPORTS", transport),
    ];
    let mut workers = start([("stopped", "mapped"); 2].into_iter(), &settings);
    until_ready(&mut workers)?;
    let late = workers.pop().ok_or("no worker")?;
    let signal = |signal| kill_process(Pid::from_child(&late), signal);
    signal(Signal::STOP)?;
    let first = end_all(workers);
    signal(Signal::CONT)?;
    succeeded(&first)?;
    succeeded(&end_all(vec![late]))
}

fn killed() -> Result<(), Failed> {
    let ranks = ["survivor", "victim"].map(|scenario| (scenario, "mapped"));
    let mut workers = start(ranks.into_iter(), &[]);
    until_ready(&mut workers)?;
    let mut victim = workers.pop().ok_or("no worker")?;
    victim.kill()?;
    victim.wait()?;
    succeeded(&end_all(workers))
}
