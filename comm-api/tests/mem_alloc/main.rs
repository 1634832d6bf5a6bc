//! Memory that peers read directly: ranks are processes, this program again.
//!
//! Where shared memory is used, the ranks do without reading each other's processes
//! (`COMM_SHM_PULL=0`) unless a test says otherwise: what is read directly then is what was mapped.

#[path = "../process_support/mod.rs"]
mod process_support;
mod scenarios;

use std::process::{Child, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use process_support::{Job, end, kill_last, play_if_worker, until_ready};
use rustix::process::{Pid, Signal, kill_process};

/// What kind of memory a worker uses: `mapped` or `plain`.
const MEMORY: &str = "COMM_TEST_MEMORY";

fn main() -> ExitCode {
    if let Some(code) = play_if_worker(scenarios::play) {
        return code;
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
                succeeded(start(ranks, &[("COMM_SHM_PULL", pulls)]))
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
    ranks: impl Iterator<Item = (&'static str, &'a str)> + Clone,
    settings: &[(&'static str, &str)],
) -> Vec<Child> {
    let job = Job::new("").set("COMM_TRANSPORTS", "shm");
    let job = settings
        .iter()
        .fold(job.set("COMM_SHM_PULL", "0"), |job, (name, value)| {
            job.set(name, *value)
        });
    let world_size = ranks.clone().count() as u32;
    (0..)
        .zip(ranks)
        .map(|(rank, (scenario, memory))| {
            job.start_as(scenario, rank, world_size, &[(MEMORY, memory)])
        })
        .collect()
}

fn succeeded(workers: Vec<Child>) -> Result<(), Failed> {
    process_support::all_right(&end(workers)?)
}

fn all_right(scenarios: &[&'static str], settings: &[(&'static str, &str)]) -> Result<(), Failed> {
    let ranks = scenarios.iter().map(|scenario| (*scenario, "mapped"));
    succeeded(start(ranks, settings))
}

fn stopped(transport: &str) -> Result<(), Failed> {
    let compiled = comm_api::compiled_transports();
    if !compiled.contains(&transport) {
        return Ok(());
    }
    let settings = [
        // Longer than a rank that is not stopped is late.
        ("COMM_OPERATION_TIMEOUT_SECONDS", "5"),
        ("COMM_TRANSPORTS", transport),
    ];
    let mut workers = start([("stopped", "mapped"); 2].into_iter(), &settings);
    until_ready(&mut workers)?;
    let late = workers.pop().ok_or("no worker")?;
    let signal = |signal| kill_process(Pid::from_child(&late), signal);
    signal(Signal::STOP)?;
    let first = end(workers);
    signal(Signal::CONT)?;
    process_support::all_right(&first?)?;
    succeeded(vec![late])
}

fn killed() -> Result<(), Failed> {
    let ranks = ["survivor", "victim"].map(|scenario| (scenario, "mapped"));
    let mut workers = start(ranks.into_iter(), &[]);
    until_ready(&mut workers)?;
    succeeded(kill_last(workers)?)
}
