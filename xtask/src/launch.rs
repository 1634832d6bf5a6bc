//! `cargo xtask launch ARGUMENTS`: builds `commctl` and runs `commctl launch ARGUMENTS`.

use std::ffi::OsString;

use anyhow::Result;

use crate::commctl;

/// Everything is handed on unread, `--help` too.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Arguments of `commctl launch`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Becomes `commctl launch`; returns only when it cannot be built or started.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    commctl::exec("launch", &arguments.arguments)
}
