//! `cargo xtask features`: comm-api compiles with each feature alone, with none and with all.
//!
//! A feature may only add something, so every subset has to compile; features alone find a
//! missing `dep:` or `cfg`, all together finds two that exclude each other.

use anyhow::Result;

use crate::process::{self, Cargo};
use crate::workspace::Metadata;

const PACKAGE: &str = "comm-api";

/// Runs `cargo check` for each selection; stops at the first that does not compile.
pub(crate) fn run() -> Result<()> {
    let metadata = Metadata::load()?;
    let package = metadata.package(PACKAGE)?;
    check().arg("--no-default-features").run()?;
    for feature in package
        .features
        .keys()
        .filter(|feature| *feature != "default")
    {
        check()
            .args(["--no-default-features", "--features", feature])
            .run()?;
    }
    check().arg("--all-features").run()
}

fn check() -> Cargo {
    process::cargo("check").args(["--package", PACKAGE])
}
