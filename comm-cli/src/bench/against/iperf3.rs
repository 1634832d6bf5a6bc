//! iperf3: the stream that TCP carries over loopback, without messages.
//!
//! Its rate counts as the time of the largest size that is measured.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::Duration;

use comm_bench::Operation;
use comm_bench::against::{Key, Medium, Sample};
use comm_core::{Error, ErrorKind, Result};

use super::program::{self, Running, Scratch};
use super::{Found, Job, Peer, ucx};

const PROGRAM: &str = "iperf3";
const SECONDS: u64 = 1;
/// Until the server listens.
const TRIES: u32 = 40;
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

struct Iperf3;

pub(super) fn find() -> Found {
    if program::exists(PROGRAM) {
        Found::Ready(Box::new(Iperf3))
    } else {
        Found::Absent(format!("{PROGRAM} is not installed (package iperf3)"))
    }
}

impl Peer for Iperf3 {
    fn name(&self) -> &'static str {
        "iperf3"
    }

    fn measure(&self, job: &Job) -> Result<Vec<Sample>> {
        let streams = job.operations.contains(&Operation::Bandwidth);
        let (Medium::Tcp, 2, true) = (job.medium, job.ranks, streams) else {
            return Ok(Vec::new());
        };
        let Some(bytes) = job.sizes().last().copied() else {
            return Ok(Vec::new());
        };
        let key = Key {
            op: Operation::Bandwidth,
            medium: Medium::Tcp,
            ranks: 2,
            bytes,
        };
        let us = bytes as f64 / bytes_per_second(job)? * 1e6;
        Ok(vec![Sample { key, us }])
    }
}

fn bytes_per_second(job: &Job) -> Result<f64> {
    let port = ucx::free_port()?.to_string();
    let address = Ipv4Addr::LOCALHOST.to_string();
    let command = |place: usize| {
        let mut command = Command::new(PROGRAM);
        if let Some(cpu) = job.cpus.get(place) {
            command.args(["-A", &cpu.to_string()]);
        }
        command.args(["-p", &port]);
        command
    };
    let mut server = command(0);
    server
        .args(["-s", "-1", "-B", &address])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let _server = Running::start(&mut server)?;
    let scratch = Scratch::new()?;
    let mut tries = 0;
    loop {
        let mut client = command(1);
        client.args(["-c", &address, "-J", "-t", &SECONDS.to_string()]);
        // A client that found no server may tell so in its report only.
        let printed = program::output(&mut client, job.limit(1), &scratch.file("client"));
        match printed.and_then(|printed| rate(&printed)) {
            Ok(rate) => return Ok(rate),
            Err(error) if tries == TRIES || error.kind() == ErrorKind::Timeout => {
                return Err(error);
            }
            Err(_) => {
                tries += 1;
                std::thread::sleep(BETWEEN_TRIES);
            }
        }
    }
}

/// What the receiver got, in bytes per second.
fn rate(printed: &str) -> Result<f64> {
    let report: serde_json::Value = serde_json::from_str(printed).map_err(|error| {
        Error::new(ErrorKind::Unsupported, "its output cannot be read").with_source(error)
    })?;
    let bits = report["end"]["sum_received"]["bits_per_second"].as_f64();
    bits.filter(|bits| *bits > 0.0)
        .map(|bits| bits / 8.0)
        .ok_or_else(|| Error::new(ErrorKind::Unsupported, "its output holds no rate"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receivers_rate_counts() {
        let printed = r#"{"end":{"sum_received":{"bits_per_second":8e9}}}"#;
        assert_eq!(rate(printed).unwrap(), 1e9);
        assert!(rate(r#"{"error":"unable to connect"}"#).is_err());
    }
}
