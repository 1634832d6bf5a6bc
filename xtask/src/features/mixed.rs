//! Two processes of one job that were built with different features: they use what both have, or
//! both fail and say what each has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::PACKAGE;
use crate::{commctl, process, workspace};

/// A program that reduces and checks the sums.
const PROGRAM: &str = "all_reduce";

/// How long a job may take before it counts as stuck.
const WATCHDOG: Duration = Duration::from_secs(300);

/// Builds the program three times and lets the builds meet.
pub(super) fn run() -> Result<()> {
    let directory = workspace::root().join("target/mixed-features");
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    let all = build(&directory, "all", &["--all-features"])?;
    let only = |feature| {
        let arguments = ["--no-default-features", "--features", feature];
        build(&directory, feature, &arguments)
    };
    let (tcp, shm) = (only("tcp")?, only("shm")?);

    for ended in job(&directory, [&all, &tcp])? {
        ensure!(
            ended.status.success(),
            "a rank with all features and one with TCP only do not come together: {}",
            errors(&ended)
        );
    }
    for ended in job(&directory, [&shm, &tcp])? {
        let text = errors(&ended);
        let is_clear = ["no transport connects", "_has=shm", "_has=net"]
            .iter()
            .all(|part| text.contains(part));
        ensure!(
            !ended.status.success() && is_clear,
            "a rank without TCP and one with nothing else must both fail and say so: {text}"
        );
    }
    eprintln!("ranks of different builds agree, or say what each has");
    Ok(())
}

/// Builds the program; where it was copied to, since the next build replaces it.
fn build(directory: &Path, name: &str, features: &[&str]) -> Result<PathBuf> {
    let messages = process::cargo("build")
        .args(["--package", PACKAGE, "--example", PROGRAM])
        .args(features)
        .arg("--message-format=json-render-diagnostics")
        .capture()?;
    let copy = directory.join(name);
    fs::copy(commctl::executable(&messages, PROGRAM)?, &copy)
        .with_context(|| format!("cannot copy the program to {}", copy.display()))?;
    Ok(copy)
}

/// Runs a job in which each rank is another program.
fn job(directory: &Path, programs: [&Path; 2]) -> Result<Vec<Output>> {
    // A directory in which nobody has met before.
    let meeting = directory.join("meeting");
    if meeting.exists() {
        fs::remove_dir_all(&meeting).context("cannot remove the last job's rendezvous")?;
    }
    fs::create_dir(&meeting).context("cannot make a rendezvous")?;
    let ranks: Vec<Child> = (0..)
        .zip(programs)
        .map(|(rank, program)| {
            Command::new(program)
                .env("RANK", format!("{rank}"))
                .env("WORLD_SIZE", "2")
                .env("COMM_RENDEZVOUS", format!("file://{}", meeting.display()))
                .env("COMM_SECRET", "0123456789abcdef0123456789abcdef")
                .env_remove("COMM_TRANSPORTS")
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .with_context(|| format!("cannot start {}", program.display()))
        })
        .collect::<Result<_>>()?;
    let deadline = Instant::now() + WATCHDOG;
    ranks.into_iter().map(|rank| end(rank, deadline)).collect()
}

/// Waits for a rank, whose output is short, and kills it if it is stuck.
fn end(mut rank: Child, deadline: Instant) -> Result<Output> {
    while rank.try_wait()?.is_none() {
        if Instant::now() > deadline {
            rank.kill()?;
            let output = rank.wait_with_output()?;
            bail!("a rank is stuck: {}", errors(&output));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(rank.wait_with_output()?)
}

fn errors(ended: &Output) -> String {
    format!(
        "{}, {}",
        ended.status,
        String::from_utf8_lossy(&ended.stderr)
    )
}
