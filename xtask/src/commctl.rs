//! Builds `commctl` and becomes it.
//!
//! Benchmarks and launcher live in `commctl`, not here: otherwise `cargo xtask tidy` would have to
//! compile the whole library first. The release build goes into the normal target directory and
//! is shared with `cargo build --release`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::process;
use crate::workspace::Metadata;

const PACKAGE: &str = "comm-cli";
const BINARY: &str = "commctl";

/// Runs `commctl SUBCOMMAND ARGUMENTS` in place of this process; returns only on failure.
pub(crate) fn exec(subcommand: &str, arguments: &[OsString]) -> Result<()> {
    let program = build()?;
    let mut command = Command::new(&program);
    command.arg(subcommand).args(arguments);
    // Replacing the process keeps exit codes, signals and the terminal exactly the program's own.
    let error = std::os::unix::process::CommandExt::exec(&mut command);
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}

/// Compiles the program and returns where cargo put it.
fn build() -> Result<PathBuf> {
    Metadata::load()?.package(PACKAGE)?;
    let messages = process::cargo("build")
        .args(["--release", "--package", PACKAGE, "--bin", BINARY])
        .arg("--message-format=json-render-diagnostics")
        .capture()?;
    executable(&messages, BINARY)
}

/// Finds the path of a program in the JSON messages of the cargo that built it.
pub(crate) fn executable(messages: &str, program: &str) -> Result<PathBuf> {
    #[derive(Deserialize)]
    struct Message {
        executable: Option<PathBuf>,
        target: Option<Target>,
    }
    #[derive(Deserialize)]
    struct Target {
        name: String,
    }
    let built = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok())
        .filter(|message| {
            message
                .target
                .as_ref()
                .is_some_and(|target| target.name == program)
        })
        .find_map(|message| message.executable);
    match built {
        Some(path) => Ok(path),
        None => bail!("cargo reported no program called `{program}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_is_the_one_cargo_reports() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"name":"comm_cli"},"executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"name":"commctl"},"executable":"/t/commctl"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        assert_eq!(
            executable(messages, BINARY).unwrap(),
            PathBuf::from("/t/commctl")
        );
    }

    #[test]
    fn a_build_without_the_program_is_an_error() {
        let error =
            executable(r#"{"reason":"build-finished","success":true}"#, BINARY).unwrap_err();
        assert!(error.to_string().contains("commctl"), "{error}");
    }
}
