//! `commctl topo draw`.

use std::path::Path;

use comm_core::{Error, ErrorKind, Result};
use comm_graph::draw;

use super::options::Job;
use super::{Lookup, input};

/// Writes the picture of the first machine and, if asked for, that of all trees beside it.
pub(super) fn run(job: &Job, output: &Path, trees: bool, lookup: Lookup<'_>) -> Result<()> {
    let (systems, plan) = input::plan(job, lookup)?;
    let (Some(path), Some(system)) = (job.files.first(), systems.first()) else {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            "name a topology file",
        ));
    };
    let name = path.file_name().unwrap_or(path.as_os_str());
    let title = name.to_string_lossy();
    input::write(output, &draw::machine(&title, system, &plan))?;
    if trees {
        input::write(
            &output.with_extension("trees.svg"),
            &draw::trees(&title, &plan)?,
        )?;
    }
    Ok(())
}
