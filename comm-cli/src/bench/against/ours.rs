//! The library itself, measured like a peer: by a process of its own, `commctl bench`.

use std::fs;
use std::path::Path;
use std::process::Command;

use comm_bench::against::{Key, Sample};
use comm_bench::{Operation, Row};
use comm_core::{Error, ErrorKind, Result};

use super::{Job, program};

/// Measures the job.
///
/// # Errors
///
/// When the benchmark fails, which includes wrong results.
pub(super) fn measure(job: &Job, scratch: &program::Scratch) -> Result<Vec<Sample>> {
    let rows = scratch.file("rows.json");
    let names: Vec<&str> = job.operations.iter().map(|op| op.as_str()).collect();
    let mut command = Command::new(super::super::own_program());
    command
        .arg("bench")
        .args(["--op", &names.join(","), "--transport", &job.transport])
        .args(["--ranks", &job.ranks.to_string()])
        .args(["--min-bytes", &job.sweep.min.0.to_string()])
        .args(["--max-bytes", &job.sweep.max.0.to_string()])
        .args(["--factor", &job.sweep.factor.to_string()])
        .args(["--time", &job.time.as_secs_f64().to_string()])
        .arg(if job.cpus.is_empty() {
            "--no-pin"
        } else {
            "--pin"
        })
        .args(job.mem_alloc.then_some("--mem-alloc"))
        .arg("--json")
        .arg(&rows);
    // In place as well: see `counts`.
    let limit = job.limit(2 * job.operations.len());
    program::output(&mut command, limit, &scratch.file("ours"))?;
    read(job, &rows)
}

fn read(job: &Job, path: &Path) -> Result<Vec<Sample>> {
    let text = fs::read_to_string(path)
        .map_err(|error| Error::system("reading the benchmark's rows", error))?;
    let mut samples = Vec::new();
    for line in text.lines() {
        let row: Row = serde_json::from_str(line).map_err(|error| {
            let message = "the benchmark wrote a row that cannot be read";
            Error::new(ErrorKind::Internal, message).with_source(error)
        })?;
        if counts(&row) {
            let key = Key {
                op: row.op,
                medium: job.medium,
                ranks: row.ranks,
                bytes: row.bytes,
            };
            samples.push(Sample {
                key,
                us: row.time_us.p50,
            });
        }
    }
    Ok(samples)
}

/// Whether the peers measure the same: a broadcast in place, everything else out of place.
fn counts(row: &Row) -> bool {
    row.in_place == (row.op == Operation::Broadcast)
}
