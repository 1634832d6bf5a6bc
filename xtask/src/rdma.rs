//! `cargo xtask rdma`: tests the RDMA backend on a soft card in a virtual machine.
//!
//! The work is done by `interop/soft-roce/run.sh`, which says what it needs.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// The script's exit code for "cannot be run here".
const SKIPPED: i32 = 77;

/// Runs the tests; `false` if that is not possible on this machine, for a reason that was printed.
pub(crate) fn run() -> Result<bool> {
    let script = workspace::root().join("interop/soft-roce/run.sh");
    let status = Command::new("bash")
        .arg(&script)
        .current_dir(workspace::root())
        .status()
        .with_context(|| format!("cannot start {}", script.display()))?;
    match status.code() {
        Some(0) => Ok(true),
        Some(SKIPPED) => Ok(false),
        _ => bail!("the tests on a soft RDMA card failed: {status}"),
    }
}
