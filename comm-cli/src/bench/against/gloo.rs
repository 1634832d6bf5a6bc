//! Gloo, through torch.distributed.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use comm_bench::Operation;
use comm_bench::against::{Medium, Sample, programs};
use comm_core::Result;

use super::program::{self, Scratch};
use super::{Found, Job, Peer};

const PYTHON: &str = "python3";

struct Gloo {
    script: PathBuf,
}

pub(super) fn find(scratch: &Scratch) -> Result<Found> {
    let installed = Command::new(PYTHON)
        .args([
            "-c",
            "import torch.distributed as d; assert d.is_gloo_available()",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !installed {
        let reason = "gloo: python3 has no torch.distributed (package torch, by pip)";
        return Ok(Found::Absent(reason.to_owned()));
    }
    let script = scratch.source("gloo_bench.py", programs::GLOO)?;
    Ok(Found::Ready(Box::new(Gloo { script })))
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
        let mut command = Command::new(PYTHON);
        command
            .arg(&self.script)
            .args(job.arguments(&operations))
            .args([job.ranks.to_string(), cpus.join(",")]);
        let printed = program::output(&mut command, job.limit(operations.len()), &self.script)?;
        Ok(Sample::parse(&printed, Medium::Tcp))
    }
}
