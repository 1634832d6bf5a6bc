//! Open MPI, by our own program: `mpicc` compiles it, `mpirun` starts it.

use std::path::PathBuf;
use std::process::Command;

use comm_bench::Operation;
use comm_bench::against::{Medium, Sample, programs};
use comm_core::Result;

use super::program::{self, Scratch};
use super::{Found, Job, Peer};

const OPERATIONS: [Operation; 6] = [
    Operation::Pingpong,
    Operation::AllReduce,
    Operation::AllGather,
    Operation::ReduceScatter,
    Operation::Broadcast,
    Operation::AllToAll,
];

struct Mpi {
    program: PathBuf,
}

pub(super) fn find(scratch: &Scratch) -> Result<Found> {
    for name in ["mpicc", "mpirun"] {
        if !program::exists(name) {
            let reason =
                format!("openmpi: {name} is not installed (packages openmpi-bin, libopenmpi-dev)");
            return Ok(Found::Absent(reason));
        }
    }
    let program = program::compile("mpicc", &["-O3"], "mpi_bench", programs::MPI, scratch)?;
    Ok(Found::Ready(Box::new(Mpi { program })))
}

impl Peer for Mpi {
    fn name(&self) -> &'static str {
        "openmpi"
    }

    fn measure(&self, job: &Job) -> Result<Vec<Sample>> {
        let operations = job.among(&OPERATIONS);
        if operations.is_empty() {
            return Ok(Vec::new());
        }
        let mut command = Command::new("mpirun");
        command
            // Inside of containers one often is root.
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .args(["-np", &job.ranks.to_string()]);
        if job.cpus.is_empty() {
            command.args(["--oversubscribe", "--bind-to", "none"]);
        } else {
            command.args(["--bind-to", "core"]);
        }
        match job.medium {
            Medium::Shm => command.args(["--mca", "btl", "vader,self"]),
            Medium::Tcp => command.args(["--mca", "btl", "tcp,self"]).args([
                "--mca",
                "btl_tcp_if_include",
                "lo",
            ]),
        };
        command
            .args(["--mca", "pml", "ob1"])
            .arg(&self.program)
            .args(job.arguments(&operations));
        let printed = program::output(&mut command, job.limit(operations.len()), &self.program)?;
        Ok(Sample::parse(&printed, job.medium))
    }
}
