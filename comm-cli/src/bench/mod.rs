//! `commctl bench`: measures the library on this machine, or on those of a launched job.
//!
//! # Contract
//!
//! * **Alone** it starts its workers by the launcher (see [`launch`]), as many as
//!   `--ranks` says and one job after the other; nothing of them stays behind. The workers are this
//!   program again, under a hidden command. Over p2p the ranks are threads of one worker.
//! * **Inside a launched job** (a launcher's variables are set: `commctl launch`, torchrun, ...) it
//!   is one of the workers and starts nothing, so it measures between machines too. All ranks are
//!   given the same arguments.
//! * **With `--against`** it measures other systems in turn with the library, see `against/`.
//! * **Without arguments** it measures every operation with 2 ranks over p2p, shm and net, and
//!   all-reduce with 4 ranks, from 8 B to 64 MiB, within two minutes.
//! * **Output**: rank 0 prints the tables on standard output, plain text whether or not that is a
//!   terminal; with `--json FILE` it also writes one JSON object per line and row. Progress shows
//!   on standard error if that is a terminal.
//! * **Exit code**: 0 when everything was measured and nothing was wrong; 1 when an element was
//!   wrong, a worker failed or an argument makes no sense together with the others; 2 for a command
//!   line that cannot be read; 128 + the signal when a signal ended it.

mod against;
mod jobs;
mod memory;
mod options;
mod transports;
mod worker;

pub use against::{AgainstOptions, System};
pub use options::{OperationChoice, Options};
pub use worker::{WORKER_COMMAND, run as run_worker};

use std::ffi::OsString;
use std::fs::File;
use std::io::IsTerminal as _;
use std::path::Path;
use std::time::Duration;

use comm_api::{LaunchEnvironment, variable};
use comm_core::{Error, ErrorKind, Result};

use crate::launch;
use jobs::Job;
use worker::{Order, Threads};

/// Measures what the options say and returns the exit code for this process.
///
/// Blocks until everything is measured. For `commctl` only, on its main thread: see
/// [`launch::run`].
///
/// # Errors
///
/// When the options contradict each other or the job they run in, when the JSON file cannot be
/// written, and what the launcher, or as a worker the library, returns.
pub fn run(options: &Options) -> Result<u8> {
    transports::check(&options.transports())?;
    if let Some(launched) = jobs::launched(&variable)? {
        return join(options, &launched);
    }
    if !options.against.against.is_empty() {
        return against::run(options);
    }
    let jobs = jobs::of(options)?;
    memory::check(&jobs)?;
    if let Some(path) = &options.json {
        create(path)?;
    }
    let mut code = 0;
    for (number, job) in jobs.into_iter().enumerate() {
        let ended = start(options, job, number == 0)?;
        if ended >= 128 {
            return Ok(ended);
        }
        code = code.max(ended);
    }
    Ok(code)
}

/// Is one of the workers of a job that somebody else has launched.
fn join(options: &Options, launched: &LaunchEnvironment) -> Result<u8> {
    let job = jobs::joined(options, launched)?;
    if let (Some(path), 0) = (&options.json, launched.rank) {
        create(path)?;
    }
    worker::measure(&order(options, job, true), launched.rank)
}

/// Starts the workers of a job and waits for their end.
fn start(options: &Options, job: Job, is_first: bool) -> Result<u8> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let pin = options.pin(job.ranks, cpus);
    let (mut workers, mut pin_workers) = (job.ranks, pin);
    let mut order = order(options, job, is_first);
    if transports::need_threads(&order.transports) {
        order.threads = Some(Threads {
            ranks: workers,
            pin,
        });
        (workers, pin_workers) = (1, None);
    }
    let order = serde_json::to_string(&order).map_err(|error| {
        Error::new(ErrorKind::Internal, "the workers' orders cannot be written").with_source(error)
    })?;
    let ended = launch::run(&launch::Options {
        workers,
        variables: Vec::new(),
        no_prefix: true,
        rendezvous: None,
        grace: Duration::from_secs(2),
        pin: pin_workers,
        program: [own_program(), WORKER_COMMAND.into(), order.into()].into(),
    })?;
    Ok(exit_code(ended))
}

/// The running program: by its path, which is what `ps` then shows, unless the file was replaced or
/// removed meanwhile.
fn own_program() -> OsString {
    match std::env::current_exe() {
        Ok(path) if path.exists() => path.into(),
        _ => "/proc/self/exe".into(),
    }
}

fn order(options: &Options, job: Job, is_first: bool) -> Order {
    Order {
        suite: job.suite,
        transports: job.transports,
        threads: None,
        json: options.json.clone(),
        progress: std::io::stderr().is_terminal(),
        is_first,
    }
}

/// A worker that failed, in whatever way, is exit code 1; only the user's own signals show.
fn exit_code(launch: u8) -> u8 {
    const BY_USER: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];
    match launch {
        0 => 0,
        code if BY_USER.iter().any(|signal| i32::from(code) == 128 + signal) => code,
        _ => 1,
    }
}

/// Makes an empty file, or empties it.
fn create(path: &Path) -> Result<()> {
    File::create(path).map(drop).map_err(|error| {
        Error::system("creating the JSON file", error).with("path", path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_of_a_worker_is_exit_code_1() {
        for (launch, wanted) in [(0, 0), (1, 1), (7, 1), (128 + 9, 1), (128 + 11, 1)] {
            assert_eq!(exit_code(launch), wanted);
        }
        assert_eq!(exit_code(130), 130);
    }
}
