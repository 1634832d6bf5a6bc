//! `cargo xtask loom`: model-checks the lock-free code of comm-core.
//!
//! `--cfg comm_loom` swaps the atomics shim of comm-core for loom's, so the models run the
//! production code. They are built into `target/loom`: the flag would otherwise invalidate the
//! normal build. A run that finds no model is a failure, since it would prove nothing.

use anyhow::{Result, bail};

use crate::process::{self, Cargo};
use crate::workspace::Metadata;

const PACKAGE: &str = "comm-core";
/// Test names of models contain this.
const FILTER: &str = "loom";

/// What to check.
#[derive(clap::Args, Default)]
pub(crate) struct Arguments {
    /// Check only the models with this text in their name.
    name: Option<String>,
}

/// Runs the models; fails when one fails or none is found.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    Metadata::load()?.package(PACKAGE)?;
    let listed = cargo_test().args(["--", "--list"]).capture()?;
    let wanted = arguments.name.as_deref().unwrap_or(FILTER);
    let models: Vec<&str> = models(&listed)
        .filter(|name| name.contains(wanted))
        .collect();
    if models.is_empty() {
        bail!("{PACKAGE} has no loom model with `{wanted}` in its name");
    }
    let mut cargo = cargo_test();
    if std::env::var_os("LOOM_MAX_PREEMPTIONS").is_none() {
        // Loom's own advice: two or three preemptions find practically every bug, and without a
        // bound the number of executions grows exponentially.
        cargo = cargo.env("LOOM_MAX_PREEMPTIONS", "3");
    }
    cargo.args(["--", "--exact"]).args(models).run()
}

/// `cargo test`, up to the arguments of the test program.
fn cargo_test() -> Cargo {
    process::cargo("test")
        .append_flags("RUSTFLAGS", "--cfg comm_loom")
        // Optimised, since the models run for long, but without the slow last bit.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .args([
            "--release",
            "--package",
            PACKAGE,
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
