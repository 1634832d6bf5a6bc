//! `cargo xtask ci`: everything a change has to pass, cheapest first.
//!
//! Stops at the first step that fails and prints how long each took. Step names can be given to
//! run only some of them: `cargo xtask ci fmt clippy`. The step `rdma` runs only if it is named.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::{features, instructions, loom, process, rdma, test, tidy};

/// Which steps to run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Run only these steps, in the usual order; all of them otherwise.
    #[arg(value_enum, value_name = "STEP")]
    steps: Vec<Step>,
}

/// The steps in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Step {
    /// The formatting is rustfmt's.
    Fmt,
    /// The house rules hold.
    Tidy,
    /// Licences, bans and sources of the dependencies.
    Deny,
    /// No warning of rustc or clippy in any target.
    Clippy,
    /// The documentation builds without a warning.
    Doc,
    /// Each feature passes the tests alone, and all of them together.
    Features,
    /// Unit, integration and documentation tests.
    Test,
    /// The loom models of the lock-free code.
    Loom,
    /// The small paths stay within their budgets of instructions.
    Instructions,
    /// The RDMA backend on a soft card; only if it is named.
    Rdma,
}

impl Step {
    fn run(self) -> Result<Verdict> {
        match self {
            Self::Fmt => process::cargo("fmt")
                .args(["--all", "--", "--check"])
                .run()?,
            Self::Tidy => tidy::run()?,
            Self::Deny => return deny(),
            Self::Clippy => process::cargo("clippy")
                .args(["--workspace", "--all-targets", "--", "--deny", "warnings"])
                .run()?,
            Self::Doc => process::cargo("doc")
                .append_flags("RUSTDOCFLAGS", "--deny warnings")
                .args(["--workspace", "--no-deps"])
                .run()?,
            Self::Features => features::run()?,
            Self::Test => test::run(&test::Arguments::default())?,
            Self::Loom => loom::run(&loom::Arguments::default())?,
            Self::Instructions if !instructions::is_possible() => {
                return Ok(Verdict::Skipped("valgrind is not installed"));
            }
            Self::Instructions => instructions::run()?,
            Self::Rdma if !rdma::run()? => {
                return Ok(Verdict::Skipped(
                    "no virtual machine with a soft card can be started",
                ));
            }
            Self::Rdma => {}
        }
        Ok(Verdict::Passed)
    }

    /// Whether the step runs only if it is asked for: it downloads a kernel and starts a virtual
    /// machine.
    const fn only_when_named(self) -> bool {
        matches!(self, Self::Rdma)
    }

    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

enum Verdict {
    Passed,
    Skipped(&'static str),
}

/// Checks the dependencies where cargo-deny is installed.
///
/// It is not installed on the fly: compiling it takes longer than all other steps together.
/// Advisories are left out because they need a database from the network, which would make the
/// outcome depend on the day; run `cargo deny check advisories` by hand.
fn deny() -> Result<Verdict> {
    if !process::cargo("deny").arg("--version").succeeds() {
        return Ok(Verdict::Skipped("cargo-deny is not installed"));
    }
    process::cargo("deny")
        .args(["check", "bans", "licenses", "sources"])
        .run()?;
    Ok(Verdict::Passed)
}

/// Runs the steps; fails with the first that fails.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut report = Vec::new();
    let started = Instant::now();
    let outcome = Step::value_variants()
        .iter()
        .filter(|step| match arguments.steps[..] {
            [] => !step.only_when_named(),
            _ => arguments.steps.contains(step),
        })
        .try_for_each(|step| {
            eprintln!("\n=== {}", step.name());
            let started = Instant::now();
            let outcome = step.run();
            let remark = match &outcome {
                Ok(Verdict::Passed) => String::from("ok"),
                Ok(Verdict::Skipped(reason)) => format!("skipped: {reason}"),
                Err(_) => String::from("FAILED"),
            };
            report.push(line(&step.name(), started.elapsed(), &remark));
            outcome
                .map(drop)
                .with_context(|| format!("step `{}` failed", step.name()))
        });
    report.push(line("total", started.elapsed(), ""));
    eprintln!("\n{}", report.join("\n"));
    outcome
}

fn line(name: &str, elapsed: Duration, remark: &str) -> String {
    format!("{name:<12} {:>8.1} s  {remark}", elapsed.as_secs_f64())
        .trim_end()
        .to_owned()
}
