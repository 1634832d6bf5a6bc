//! `cargo xtask instructions`: counts the instructions of the small paths and holds them to a budget.
//!
//! Times depend on the machine and on what else it does, so no check asserts one. The number of
//! instructions of a call that does not wait hardly changes from run to run, and what makes the small
//! paths slower nearly always shows in it. Method and history: `docs/performance.md`.
//!
//! valgrind's callgrind runs `comm-api/benches/instructions.rs` and collects below its function
//! `counted`. The profiles stay in `target/callgrind/`, for `callgrind_annotate`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::commctl;
use crate::process;
use crate::workspace;

const PACKAGE: &str = "comm-api";
const BENCH: &str = "instructions";
const TOOL: &str = "valgrind";
/// The function below which is counted.
const COUNTED: &str = "counted";
const CALLS: u64 = 50;

/// A small path and the instructions that one call may take: what was measured and a quarter more, for
/// other compilers.
struct Budget {
    path: &'static str,
    instructions: u64,
}

const BUDGETS: [Budget; 4] = [
    Budget {
        path: "send_recv",
        instructions: 420,
    },
    Budget {
        path: "broadcast",
        instructions: 1_030,
    },
    Budget {
        path: "all_reduce",
        instructions: 625,
    },
    Budget {
        path: "all_gather",
        instructions: 760,
    },
];

/// Whether the tool is there.
pub(crate) fn is_possible() -> bool {
    Command::new(TOOL)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Counts every path; fails if one exceeds its budget or the tool is missing.
pub(crate) fn run() -> Result<()> {
    if !is_possible() {
        bail!("{TOOL} is not installed (Debian: apt-get install valgrind)");
    }
    let program = build()?;
    let profiles = workspace::root().join("target/callgrind");
    std::fs::create_dir_all(&profiles)
        .with_context(|| format!("cannot make {}", profiles.display()))?;
    let mut exceeded = Vec::new();
    for Budget { path, instructions } in &BUDGETS {
        let counted = count(&program, path, &profiles)?;
        eprintln!("{path:<12} {counted:>6} instructions a call, budget {instructions}");
        if counted > *instructions {
            exceeded.push(*path);
        }
    }
    if !exceeded.is_empty() {
        bail!(
            "over budget: {}. `callgrind_annotate target/callgrind/PATH.out.NUMBER` shows where; a budget is \
             raised only together with its line in docs/performance.md",
            exceeded.join(", ")
        );
    }
    Ok(())
}

fn build() -> Result<PathBuf> {
    let messages = process::cargo("bench")
        .args(["--no-run", "--package", PACKAGE, "--bench", BENCH])
        .arg("--message-format=json-render-diagnostics")
        .capture()?;
    commctl::executable(&messages, BENCH)
}

/// The instructions of the shortest call: one that never had to wait, whatever the machine was doing.
fn count(program: &Path, path: &str, profiles: &Path) -> Result<u64> {
    let profile = format!("{path}.out");
    for old in profiles_of(profiles, &profile)? {
        std::fs::remove_file(&old).with_context(|| format!("cannot remove {}", old.display()))?;
    }
    let output = Command::new(TOOL)
        .args(["--tool=callgrind", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={COUNTED}"))
        // One profile for each call.
        .arg(format!("--dump-after={COUNTED}"))
        .arg(format!(
            "--callgrind-out-file={}",
            profiles.join(&profile).display()
        ))
        .arg(program)
        .args([path, &CALLS.to_string()])
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {TOOL}"))?;
    let mut shortest = None;
    for one in profiles_of(profiles, &profile)? {
        let text = std::fs::read_to_string(&one)
            .with_context(|| format!("cannot read {}", one.display()))?;
        let counted = collected(&text).filter(|counted| *counted > 0);
        shortest = shortest.into_iter().chain(counted).min();
    }
    match shortest {
        Some(counted) if output.status.success() => Ok(counted),
        _ => bail!(
            "{TOOL} counted nothing for {path}:\n{}",
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}

/// The profiles of one path, in whatever order.
fn profiles_of(directory: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory)
        .with_context(|| format!("cannot list {}", directory.display()))?;
    Ok(entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let file = path.file_name().and_then(|file| file.to_str());
            file.is_some_and(|file| file.starts_with(name))
        })
        .collect())
}

/// The total in a profile: `totals: 733`.
fn collected(profile: &str) -> Option<u64> {
    let line = profile
        .lines()
        .find_map(|line| line.strip_prefix("totals:"));
    line?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_found_in_a_profile() {
        let profile = "version: 1\ncmd: instructions\nevents: Ir\n\nfn=(1) counted\n12 7\n\n\
                       totals: 733\n";
        assert_eq!(collected(profile), Some(733));
        assert_eq!(collected("totals: \n"), None);
        assert_eq!(collected(""), None);
    }
}
