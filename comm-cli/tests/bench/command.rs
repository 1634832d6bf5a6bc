//! A benchmark under test.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use comm_bench::Row;
use rustix::process::{Pid, Signal, kill_process};

/// Far more than any of these tests takes on a busy machine.
const WATCHDOG: Duration = Duration::from_secs(300);

/// What a run left.
#[derive(Debug)]
pub(crate) struct Ended {
    /// `None` when it was killed.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `commctl ARGUMENTS` to its end, without the variables of whoever runs the tests.
pub(crate) fn commctl(arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_commctl"));
    for (key, _) in std::env::vars_os() {
        let launched = ["RANK", "WORLD_SIZE", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"];
        let key = key.to_string_lossy();
        if key.starts_with("COMM_") || launched.contains(&&*key) {
            command.env_remove(&*key);
        }
    }
    let child = command
        .args(arguments)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&child);
    let waiting = thread::spawn(move || child.wait_with_output().unwrap());
    let start = Instant::now();
    while !waiting.is_finished() {
        if start.elapsed() > WATCHDOG {
            let _ = kill_process(pid, Signal::KILL);
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    let Output {
        status,
        stdout,
        stderr,
    } = waiting.join().unwrap();
    Ended {
        code: status.code(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    }
}

/// Runs `commctl bench ARGUMENTS`.
pub(crate) fn bench(arguments: &str) -> Ended {
    let arguments: Vec<_> = std::iter::once("bench")
        .chain(arguments.split_whitespace())
        .collect();
    commctl(&arguments, &[])
}

/// Runs `commctl bench ARGUMENTS --json FILE` and also reads the rows.
pub(crate) fn bench_with_rows(arguments: &str) -> (Ended, Vec<Row>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rows.json");
    let ended = bench(&format!("{arguments} --json {}", path.display()));
    (ended, rows(&path))
}

/// The rows of a JSON file.
pub(crate) fn rows(path: &Path) -> Vec<Row> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}
