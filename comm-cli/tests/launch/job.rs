//! A launch under test.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Far more than any of these tests takes on a busy machine.
const WATCHDOG: Duration = Duration::from_secs(300);

/// A running `commctl launch`.
pub(crate) struct Job {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: thread::JoinHandle<String>,
    /// Dropping it calls the watchdog off.
    _watchdog: mpsc::Sender<()>,
}

/// What a launch left.
#[derive(Debug)]
pub(crate) struct Ended {
    /// `None` when it was killed itself.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Starts `commctl launch OPTIONS -- sh -c SCRIPT`.
pub(crate) fn start(options: &[&str], script: &str) -> Job {
    start_with(options, &["sh", "-c", script], &[])
}

/// Runs `commctl launch OPTIONS -- sh -c SCRIPT` to its end.
pub(crate) fn run(options: &[&str], script: &str) -> Ended {
    start(options, script).end()
}

/// Starts `commctl launch OPTIONS -- PROGRAM` with variables set for the launcher.
pub(crate) fn start_with(options: &[&str], program: &[&str], variables: &[(&str, &str)]) -> Job {
    // A test runner in the background of a script has SIGINT ignored, and that is inherited.
    let mut command = Command::new("env");
    for key in [
        "COMM_SECRET",
        "COMM_SECRET_FILE",
        "COMM_JOB_ID",
        "COMM_SHARED_DIR",
        "OMP_NUM_THREADS",
    ] {
        command.env_remove(key);
    }
    let mut child = command
        .args([
            "--default-signal=INT,TERM,HUP,USR1",
            env!("CARGO_BIN_EXE_commctl"),
            "launch",
        ])
        .args(options)
        .arg("--")
        .args(program)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&child);
    let (watchdog, called_off) = mpsc::channel();
    thread::spawn(move || {
        if called_off.recv_timeout(WATCHDOG) == Err(mpsc::RecvTimeoutError::Timeout) {
            let _ = kill_process(pid, Signal::KILL);
        }
    });
    let mut pipe = child.stderr.take().unwrap();
    let stderr = thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).unwrap();
        text
    });
    let stdout = BufReader::new(child.stdout.take().unwrap());
    Job {
        child,
        stdout,
        stderr,
        _watchdog: watchdog,
    }
}

impl Job {
    /// The next line of standard output, without its end; empty at the end of the stream.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end_matches('\n').to_owned()
    }

    /// The next `count` lines in the order of the alphabet.
    pub(crate) fn lines(&mut self, count: usize) -> Vec<String> {
        let mut lines: Vec<String> = (0..count).map(|_| self.line()).collect();
        lines.sort();
        lines
    }

    /// Sends a signal to the launcher alone.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Reads the rest of the output and waits for the end.
    pub(crate) fn end(mut self) -> Ended {
        let mut stdout = String::new();
        self.stdout.read_to_string(&mut stdout).unwrap();
        let stderr = self.stderr.join().unwrap();
        Ended {
            code: self.child.wait().unwrap().code(),
            stdout,
            stderr,
        }
    }

    /// Closes the reading end of standard output, then waits for the end.
    pub(crate) fn end_unread(mut self) -> Ended {
        drop(self.stdout);
        let stderr = self.stderr.join().unwrap();
        Ended {
            code: self.child.wait().unwrap().code(),
            stdout: String::new(),
            stderr,
        }
    }
}

impl Ended {
    /// The lines of standard output in the order of the alphabet.
    pub(crate) fn lines(&self) -> Vec<&str> {
        let mut lines: Vec<&str> = self.stdout.lines().collect();
        lines.sort_unstable();
        lines
    }
}

/// Whether a process runs; one that has ended but is not reaped does not.
pub(crate) fn is_alive(pid: &str) -> bool {
    // The state follows the name in parentheses, which may itself hold parentheses.
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// Returns when none of the processes runs any more; fails with the watchdog's patience.
pub(crate) fn wait_until_gone(pids: &[&str]) {
    let polls = WATCHDOG.as_millis() / 10;
    for _ in 0..polls {
        if !pids.iter().any(|pid| is_alive(pid)) {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("still running: {pids:?}");
}
