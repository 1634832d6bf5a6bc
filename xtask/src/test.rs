//! `cargo xtask test`: the unit, integration and documentation tests of every crate.

use anyhow::Result;

use crate::process;

/// What to test.
#[derive(clap::Args, Default)]
pub(crate) struct Arguments {
    /// Test only this package (may be repeated); the whole workspace otherwise.
    #[arg(short, long = "package", value_name = "NAME")]
    packages: Vec<String>,
    /// Arguments for `cargo test`, e.g. a test name or `--release`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Tests of features that are off by default.
const OPTIONAL: [&[&str]; 2] = [
    &["--package", "comm-transport-shm", "--features", "named"],
    &[
        "--package",
        "comm-api",
        "--features",
        "shm-named",
        "--test",
        "containers",
    ],
];

/// Runs the tests; fails when one fails.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut cargo = process::cargo("test");
    if arguments.packages.is_empty() {
        cargo = cargo.arg("--workspace");
        // What the default features leave out.
        if arguments.arguments.is_empty() {
            for selection in OPTIONAL {
                process::cargo("test").args(selection).run()?;
            }
        }
    }
    for package in &arguments.packages {
        cargo = cargo.args(["--package", package]);
    }
    cargo.args(&arguments.arguments).run()
}
