//! Jobs that run, fail and lose processes.

use std::io::{BufRead, BufReader};
use std::sync::mpsc;
use std::thread;

use libtest_mimic::Failed;

use super::process_support::{Ended, Job, WATCHDOG, all_failed_with, all_right, end};

pub(crate) fn reduce(transport: &'static str) -> Result<(), Failed> {
    for world_size in [1, 2, 4] {
        // Alone there is no edge to look at.
        let scenario = if world_size == 1 {
            "mismatch"
        } else {
            "reduce"
        };
        let job = Job::new(scenario).set("COMM_TRANSPORTS", transport);
        all_right(&job.run(world_size)?)?;
    }
    Ok(())
}

/// A process that ends as soon as its last sends are done.
pub(crate) fn last_sends(transport: &'static str) -> Result<(), Failed> {
    let job = Job::new("last sends")
        .set("COMM_TRANSPORTS", transport)
        .set("COMM_STEP_BYTES", "4M");
    all_right(&job.run(2)?)
}

/// Ranks that were dealt out to two hosts in turn.
pub(crate) fn near_ranks() -> Result<(), Failed> {
    if comm_testkit::network::address_for_other_hosts().is_none() {
        return Ok(());
    }
    let job = Job::new("near ranks").set("COMM_ALGO", "ring");
    let host = |rank| [("COMM_HOSTID", if rank % 2 == 0 { "even" } else { "odd" })];
    let workers = (0..5).map(|rank| job.start(rank, 5, &host(rank))).collect();
    all_right(&end(workers)?)
}

pub(crate) fn kill(scenario: &'static str, transport: &'static str) -> Result<(), Failed> {
    let before = names_in_dev_shm();
    all_failed_with(
        &without_rank_2(scenario, transport)?,
        &["peer died", "rank 2"],
    )?;
    if names_in_dev_shm() == before {
        Ok(())
    } else {
        Err("/dev/shm has changed".into())
    }
}

/// The others go on when one of them is killed.
pub(crate) fn go_on(transport: &'static str) -> Result<(), Failed> {
    all_right(&without_rank_2("go on", transport)?)
}

/// Runs four ranks, kills rank 2 once all are ready, and waits for the others.
fn without_rank_2(scenario: &'static str, transport: &'static str) -> Result<Vec<Ended>, Failed> {
    let job = Job::new(scenario).set("COMM_TRANSPORTS", transport);
    let mut workers: Vec<_> = (0..4).map(|rank| job.start(rank, 4, &[])).collect();
    let (sender, ready) = mpsc::channel();
    for worker in &mut workers {
        let stdout = worker.stdout.take().expect("piped");
        let sender = sender.clone();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // The test may be over.
                let _ = sender.send(line);
            }
        });
    }
    for _ in 0..4 {
        ready.recv_timeout(WATCHDOG)?;
    }
    let mut victim = workers.remove(2);
    let killed = victim.kill();
    victim.wait()?;
    killed?;
    end(workers)
}

fn names_in_dev_shm() -> Vec<std::ffi::OsString> {
    let entries = std::fs::read_dir("/dev/shm")
        .into_iter()
        .flatten()
        .flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().contains("comm"))
        .collect();
    names.sort();
    names
}

pub(crate) fn mismatch() -> Result<(), Failed> {
    all_failed_with(
        &Job::new("mismatch").run(2)?,
        &["rank 0", "rank 1", "10 u32", "11 u32"],
    )
}

pub(crate) fn circle() -> Result<(), Failed> {
    all_failed_with(
        &Job::new("circle").run(2)?,
        &["circle", "all_reduce", "send/recv"],
    )
}
