//! Starting cargo and reporting how it ended.
//!
//! Every command runs in the workspace root, with the cargo that started this program, and without
//! the variables by which that cargo described *this* package to it.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::workspace;

/// A cargo command line under construction.
#[derive(Debug)]
pub(crate) struct Cargo {
    command: Command,
    shown: String,
}

/// Starts building `cargo SUBCOMMAND`.
pub(crate) fn cargo(subcommand: &str) -> Cargo {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(workspace::root()).arg(subcommand);
    for (key, _) in std::env::vars_os() {
        // Left in place they would mark build scripts as stale and rebuild what is built.
        let name = key.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&key);
        }
    }
    Cargo {
        command,
        shown: format!("cargo {subcommand}"),
    }
}

impl Cargo {
    /// Adds one argument.
    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        let argument = argument.as_ref();
        let _ = write!(self.shown, " {}", argument.display());
        self.command.arg(argument);
        self
    }

    /// Adds several arguments.
    pub(crate) fn args<I: IntoIterator<Item: AsRef<OsStr>>>(self, arguments: I) -> Self {
        arguments.into_iter().fold(self, Self::arg)
    }

    /// Sets a variable for the command and shows it in front of the command line.
    pub(crate) fn env(mut self, key: &str, value: &str) -> Self {
        self.shown = format!("{key}='{value}' {}", self.shown);
        self.command.env(key, value);
        self
    }

    /// Adds `flags` to the compiler flags that the environment already holds under `key`.
    pub(crate) fn append_flags(self, key: &str, flags: &str) -> Self {
        match std::env::var(key) {
            Ok(present) if !present.trim().is_empty() => {
                self.env(key, &format!("{present} {flags}"))
            }
            _ => self.env(key, flags),
        }
    }

    /// Prints the command line, runs it and fails when it fails.
    pub(crate) fn run(mut self) -> Result<()> {
        eprintln!("$ {}", self.shown);
        let status = self
            .command
            .status()
            .with_context(|| format!("cannot start `{}`", self.shown))?;
        if !status.success() {
            bail!("`{}` failed: {status}", self.shown);
        }
        Ok(())
    }

    /// Runs the command and returns what it wrote to standard output; errors stay visible.
    pub(crate) fn capture(mut self) -> Result<String> {
        let output = self
            .command
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("cannot start `{}`", self.shown))?;
        if !output.status.success() {
            bail!("`{}` failed: {}", self.shown, output.status);
        }
        String::from_utf8(output.stdout)
            .with_context(|| format!("`{}` printed something that is not UTF-8", self.shown))
    }

    /// Whether the command can be started and succeeds; prints nothing.
    pub(crate) fn succeeds(mut self) -> bool {
        let status = self
            .command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    }
}
