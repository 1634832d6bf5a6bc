//! Gloo, through torch.distributed.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use comm_bench::Operation;
use comm_bench::against::{Medium, Sample, programs};
use comm_core::Result;

use super::program::{self, Scratch};
use super::{Found, Job, Peer};

/// The user's Python.
const PYTHON: &str = "python3";
/// The one that Debian's package of torch belongs to; the user's may be another one.
const SYSTEM_PYTHON: &str = "/usr/bin/python3";

struct Gloo {
    python: &'static str,
    script: PathBuf,
}

pub(super) fn find(scratch: &Scratch) -> Result<Found> {
    let mut pythons = [PYTHON, SYSTEM_PYTHON].into_iter();
    let Some(python) = pythons.find(|python| program::exists(PYTHON) && has_gloo(python)) else {
        let reason =
            "gloo: python3 has no torch.distributed (package python3-torch, or torch by pip)";
        return Ok(Found::Absent(reason.to_owned()));
    };
    let script = scratch.source("gloo_bench.py", programs::GLOO)?;
    Ok(Found::Ready(Box::new(Gloo { python, script })))
}

fn has_gloo(python: &str) -> bool {
    Command::new(python)
        .args([
            "-c",
            "import torch.distributed as d; assert d.is_gloo_available()",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

impl Peer for Gloo {
    fn name(&self) -> &'static str {
        "gloo"
    }

    fn measure(&self, job: &Job) -> Result<Vec<Sample>> {
        let operations = job.among(&[Operation::Pingpong, Operation::AllReduce]);
        if job.medium != Medium::Tcp || operations.is_empty() {
            return Ok(Vec::new());
        }
        let cpus: Vec<String> = job.cpus.iter().map(usize::to_string).collect();
        let mut command = Command::new(self.python);
        command
            .arg(&self.script)
            .args(job.arguments(&operations))
            .args([job.ranks.to_string(), cpus.join(",")]);
        let printed = program::output(&mut command, job.limit(operations.len()), &self.script)?;
        Ok(Sample::parse(&printed, Medium::Tcp))
    }
}
