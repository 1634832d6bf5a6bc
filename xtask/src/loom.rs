//! `cargo xtask loom`: model-checks the lock-free code of comm-core and comm-runtime.
//!
//! `--cfg comm_loom` swaps the atomics shim of comm-core, which comm-runtime uses for its lanes, for
//! loom's, so the models run the production code. They are built into `target/loom`: the flag would otherwise invalidate the
//! normal build. A run that finds no model is a failure, since it would prove nothing.

use anyhow::{Result, bail};

use crate::process::{self, Cargo};
use crate::workspace::Metadata;

const PACKAGES: [&str; 2] = ["comm-core", "comm-runtime"];
/// Test names of models contain this.
const FILTER: &str = "loom";

/// What to check.
#[derive(clap::Args, Default)]
pub(crate) struct Arguments {
    /// Check only the models with this text in their name.
    name: Option<String>,
}

/// Runs the models; fails when one fails or a package has none.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let metadata = Metadata::load()?;
    let wanted = arguments.name.as_deref().unwrap_or(FILTER);
    let mut found = false;
    for package in PACKAGES {
        metadata.package(package)?;
        let listed = cargo_test(package).args(["--", "--list"]).capture()?;
        let models: Vec<&str> = models(&listed)
            .filter(|name| name.contains(wanted))
            .collect();
        if models.is_empty() {
            if arguments.name.is_none() {
                bail!("{package} has no loom model");
            }
            continue;
        }
        found = true;
        let mut cargo = cargo_test(package);
        if std::env::var_os("LOOM_MAX_PREEMPTIONS").is_none() {
            // Loom's own advice: two or three preemptions find practically every bug, and without
            // a bound the number of executions grows exponentially.
            cargo = cargo.env("LOOM_MAX_PREEMPTIONS", "3");
        }
        cargo.args(["--", "--exact"]).args(models).run()?;
    }
    if !found {
        bail!("no loom model has `{wanted}` in its name");
    }
    Ok(())
}

/// `cargo test`, up to the arguments of the test program.
fn cargo_test(package: &str) -> Cargo {
    process::cargo("test")
        .append_flags("RUSTFLAGS", "--cfg comm_loom")
        // Optimised, since the models run for long, but without the slow last bit.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .args([
            "--release",
            "--package",
            package,
            "--target-dir",
            "target/loom",
            "--lib",
        ])
}

/// The models in the output of `cargo test -- --list`. Ordinary tests do not count: loom's atomics
/// work only inside of a model.
fn models(listed: &str) -> impl Iterator<Item = &str> {
    listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .filter(|name| name.contains(FILTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tests_named_after_loom_are_models() {
        let listed = "fifo::loom::full_ring_blocks: test\nfifo::tests::layout: test\n\
                      fifo::loom::speed: benchmark\n\n2 tests, 1 benchmark\n";
        assert_eq!(
            models(listed).collect::<Vec<_>>(),
            ["fifo::loom::full_ring_blocks"]
        );
    }
}
