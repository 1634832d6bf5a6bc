//! What the machine itself can do: bare programs of ours for two ranks, compiled by `cc`.

use std::path::PathBuf;
use std::process::Command;

use comm_bench::Operation;
use comm_bench::against::{Medium, Sample, programs};
use comm_core::Result;

use super::program::{self, Scratch};
use super::{Found, Job, Peer};

/// One of the programs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    name: &'static str,
    text: &'static str,
    medium: Medium,
    operations: &'static [Operation],
    /// What it also does on buffers that both processes read, for ranks with allocated memory.
    direct: &'static [Operation],
}

/// Ends the names of operations on buffers that both processes read.
const DIRECT: &str = "_direct";

/// The bare step FIFO.
pub(super) const FIFO: Limit = Limit {
    name: "fifo_limit",
    text: programs::FIFO_LIMIT,
    medium: Medium::Shm,
    operations: &[Operation::Pingpong, Operation::AllReduce],
    direct: &[
        Operation::AllReduce,
        Operation::AllGather,
        Operation::Broadcast,
    ],
};

/// Bare sockets.
pub(super) const TCP: Limit = Limit {
    name: "tcp_limit",
    text: programs::TCP_LIMIT,
    medium: Medium::Tcp,
    operations: &[
        Operation::Pingpong,
        Operation::AllReduce,
        Operation::AllGather,
        Operation::AllToAll,
    ],
    direct: &[],
};

/// A program that has been compiled.
struct Compiled {
    limit: Limit,
    program: PathBuf,
}

pub(super) fn find(limit: Limit, scratch: &Scratch) -> Result<Found> {
    let name = limit.name;
    if !program::exists("cc") {
        let reason = format!("{name} is compiled by cc, which is not installed (package gcc)");
        return Ok(Found::Absent(reason));
    }
    scratch.source(programs::PAIR_NAME, programs::PAIR)?;
    let flags = ["-O3", "-march=native"];
    let program = program::compile("cc", &flags, name, limit.text, scratch)?;
    Ok(Found::Ready(Box::new(Compiled { limit, program })))
}

impl Peer for Compiled {
    fn name(&self) -> &'static str {
        self.limit.name
    }

    fn measure(&self, job: &Job) -> Result<Vec<Sample>> {
        let operations = job.among(if job.mem_alloc {
            self.limit.direct
        } else {
            self.limit.operations
        });
        let [first, second, ..] = job.cpus[..] else {
            // Two processes that only spin need a CPU each.
            return Ok(Vec::new());
        };
        if job.medium != self.limit.medium || job.ranks != 2 || operations.is_empty() {
            return Ok(Vec::new());
        }
        let mut command = Command::new(&self.program);
        let [mut names, sizes, seconds] = job.arguments(&operations);
        if job.mem_alloc {
            names = names.replace(',', &format!("{DIRECT},")) + DIRECT;
        }
        command
            .args([names, sizes, seconds])
            .args([first.to_string(), second.to_string()]);
        let printed = program::output(&mut command, job.limit(operations.len()), &self.program)?;
        Ok(Sample::parse(&printed.replace(DIRECT, ""), job.medium))
    }
}
