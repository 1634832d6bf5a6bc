//! `commctl launch`: starts the workers of a job on this machine and ends them together.
//!
//! # Contract
//!
//! * **Start**: `-n N` starts N processes of one program, ranks 0 to N-1. Each gets torchrun's
//!   variables (`RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `MASTER_ADDR`, ...), so a program runs
//!   unchanged under either, and for this library `COMM_RENDEZVOUS` (a local port that was free a
//!   moment ago and that nobody holds: who can bind it serves), `COMM_JOB_ID` and a fresh
//!   `COMM_SECRET`. Standard input is empty.
//! * **Output**: each line of a worker's standard output and standard error appears on the same
//!   stream of the launcher, whole, after `[rank] `. A last line without a line break is printed
//!   too, and a line that is drawn over and over by carriage returns each time that it is. When
//!   nobody reads the launcher's stream any more, the workers see the same.
//! * **Failure**: the first worker that exits with a code other than 0 or is killed ends the job.
//!   It is named at once. The others get `--grace` to end by themselves with their own errors, then
//!   SIGTERM, 3 seconds later SIGKILL.
//! * **Exit code**: the first failed worker's own, or 128 + the signal that killed it; 0 when all
//!   ended with 0; 1 when the launcher itself failed.
//! * **Signals**: SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on once, and the workers then end
//!   at their own pace (if one fails meanwhile, the others still have 30 seconds); the second such
//!   signal kills them. SIGUSR1 and SIGUSR2 are passed on.
//! * **Nothing stays behind**: signals go to whole process groups (one per worker). What a worker
//!   leaves running in its group is killed when the last worker has ended, and when the launcher
//!   itself is killed, even by SIGKILL. Only a process that moves to a group of its own escapes.
//!
//! # Variables
//!
//! | variable | value |
//! |---|---|
//! | `RANK`, `LOCAL_RANK`, `ROLE_RANK` | the worker's rank |
//! | `WORLD_SIZE`, `LOCAL_WORLD_SIZE`, `ROLE_WORLD_SIZE` | the number of workers |
//! | `GROUP_RANK`, `GROUP_WORLD_SIZE`, `ROLE_NAME` | `0`, `1` (one machine), `default` |
//! | `MASTER_ADDR`, `MASTER_PORT` | `127.0.0.1` and a free port; unlike torchrun's, nobody holds it |
//! | `TORCHELASTIC_RUN_ID` | the job id |
//! | `TORCHELASTIC_RESTART_COUNT`, `TORCHELASTIC_MAX_RESTARTS` | `0` |
//! | `TORCHELASTIC_USE_AGENT_STORE` | `False`: rank 0 serves `MASTER_PORT` itself |
//! | `OMP_NUM_THREADS` | `1` with several workers, unless it is set already |
//! | `COMM_LAUNCHER` | `commctl`: these variables are not torchrun's |
//! | `COMM_RENDEZVOUS` | where the workers meet: `--rendezvous`, or another free port |
//! | `COMM_JOB_ID` | random; kept when it is set already |
//! | `COMM_SECRET` | 32 random bytes in hex; kept when it or `COMM_SECRET_FILE` is set already |
//!
//! Variables given by `--env` replace these. One that begins with `COMM_` and that the library does
//! not read is named on standard error, with the one that was probably meant.
//!
//! Linux only: the supervision is built on pidfds, signalfd and parent-death signals.

mod environment;
mod guard;
mod lines;
mod options;
mod output;
pub(crate) mod placement;
mod policy;
mod port;
// The two modules that call into libc; everything else is checked by the compiler.
#[allow(unsafe_code)]
mod signals;
#[allow(unsafe_code)]
mod spawn;
mod status;
mod supervise;

pub use guard::{GUARD_COMMAND, run as run_guard};
pub use options::{Options, Pin, Variable};

use comm_core::Result;

use environment::Job;
use guard::Guard;
use output::Output;
use policy::Policy;
use signals::Signals;
use spawn::{Recipe, Worker};

/// Starts the workers, waits for their end and returns the exit code for this process.
///
/// Blocks until every worker has ended. Must run on the main thread of a program that has no other
/// threads yet: it blocks signals for the whole process, and the workers die with the thread that
/// started them. The program must be `commctl` itself, of which it starts a second copy as
/// [guard](run_guard).
///
/// # Errors
///
/// When the program cannot be started (the workers started so far are killed) or the operating
/// system refuses a resource. How workers fail is told by the exit code, not by an error.
pub fn run(options: &Options) -> Result<u8> {
    let signals = Signals::block()?;
    let job = Job::new(options, |key| std::env::var_os(key))?;
    for sentence in comm_api::unread_variables(names(options)) {
        say(sentence);
    }
    let placement = placement::plan(options.pin, options.workers)?;
    let recipe = Recipe {
        program: &options.program,
        mask: signals.mask_before(),
    };
    let mut guard = Guard::start()?;

    // From here on, leaving this function in whatever way kills what was started.
    let mut workers = Vec::new();
    let mut streams = Vec::new();
    for rank in 0..options.workers {
        let cpus = placement.as_ref().map(|cpus| cpus[rank as usize]);
        let (worker, stream) = Worker::spawn(&recipe, rank, &job.variables(rank), cpus)?;
        guard.watch(worker.pid())?;
        workers.push(worker);
        streams.push(stream);
    }
    let output = Output::start(streams, !options.no_prefix)?;
    let policy = Policy::new(options.workers, options.grace);
    supervise::until_the_end(workers, &signals, output, policy)
}

/// The names of the variables that workers get from outside, as far as they are text.
fn names(options: &Options) -> impl Iterator<Item = String> {
    let inherited = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let given = options
        .variables
        .iter()
        .map(|variable| variable.key.clone());
    inherited.chain(given)
}

/// Tells the user something, on standard error and in one piece.
fn say(message: impl std::fmt::Display) {
    use std::io::Write as _;
    // Nobody may be listening any more; the job does not depend on it.
    let _ = std::io::stderr().write_all(format!("commctl launch: {message}\n").as_bytes());
}
