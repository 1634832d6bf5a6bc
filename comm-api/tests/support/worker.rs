//! A rank of a job that something else starts (a launcher, a container), played by the test program
//! itself: it reduces, checks the sums, and prints what `explain()` says.

use std::io::Read;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use comm_api::{Communicator, Error, ErrorKind, ReduceOp, Result};
use libtest_mimic::Failed;

/// Set for a process that is a worker.
pub(crate) const WORKER: &str = "COMM_TEST_WORKER";

/// How long a worker may live.
const WATCHDOG: Duration = Duration::from_secs(300);

/// The worker's part, in a process that is one.
pub(crate) fn played() -> Option<ExitCode> {
    std::env::var_os(WORKER)?;
    Some(match play() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    })
}

fn play() -> Result<()> {
    let comm = Communicator::from_env()?;
    let n = comm.world_size();
    for count in [3, 100_000] {
        let mut value = vec![comm.rank() + 1; count];
        comm.all_reduce(&mut value, ReduceOp::Sum)?;
        if value.iter().any(|sum| *sum != n * (n + 1) / 2) {
            return Err(Error::new(ErrorKind::Internal, "a sum is wrong"));
        }
    }
    // In one piece: the ranks' lines may share a pipe.
    print!("{}", comm.explain());
    comm.barrier()
}

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) output: String,
    #[allow(dead_code, reason = "not every test file reads them")]
    pub(crate) errors: String,
}

impl Ended {
    /// The command succeeded and printed every one of `texts`.
    pub(crate) fn succeeded_with(&self, texts: &[&str]) -> Result<(), Failed> {
        if self.code == Some(0) && texts.iter().all(|text| self.output.contains(text)) {
            Ok(())
        } else {
            Err(format!("expected {texts:?}: {self:#?}").into())
        }
    }
}

/// A command under way.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    output: JoinHandle<String>,
    errors: JoinHandle<String>,
}

/// Starts a command.
pub(crate) fn start(command: &mut Command) -> Result<Running, Failed> {
    let mut child = command
        .env(WORKER, "1")
        // A killed launcher may leave its ranks behind, which then end by themselves.
        .env("COMM_INIT_TIMEOUT_SECONDS", "120")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{command:?}: {error}"))?;
    let output = child.stdout.take().map(read_all).ok_or("no output")?;
    let errors = child.stderr.take().map(read_all).ok_or("no errors")?;
    Ok(Running {
        child,
        output,
        errors,
    })
}

fn read_all(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What cannot be read is missing in the text, which the test then says.
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

impl Running {
    /// Waits for the end; a stuck command is killed and fails the test.
    pub(crate) fn end(mut self) -> Result<Ended, Failed> {
        let deadline = Instant::now() + WATCHDOG;
        let mut stuck = false;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                stuck = true;
                self.child.kill()?;
            }
            thread::sleep(Duration::from_millis(5));
        };
        let text = |reader: JoinHandle<String>| reader.join().map_err(|_| "a reader panicked");
        let ended = Ended {
            code: status.code(),
            output: text(self.output)?,
            errors: text(self.errors)?,
        };
        if stuck {
            return Err(format!("the command was stuck: {ended:#?}").into());
        }
        Ok(ended)
    }
}
