//! `cargo xtask bench ARGUMENTS`: builds `commctl` and runs `commctl bench ARGUMENTS`.

use std::ffi::OsString;

use anyhow::Result;

use crate::commctl;

/// Everything is handed on unread, `--help` too.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Arguments of `commctl bench`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Becomes `commctl bench`; returns only when it cannot be built or started.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    commctl::exec("bench", &arguments.arguments)
}
