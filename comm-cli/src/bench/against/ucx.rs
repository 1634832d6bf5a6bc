//! UCX, by its own `ucx_perftest`: a server and a client for each size.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::time::Duration;

use comm_bench::Operation;
use comm_bench::against::{Key, Medium, Sample};
use comm_core::{Error, ErrorKind, Result};

use super::program::{self, Running, Scratch};
use super::{Found, Job, Peer};

const PROGRAM: &str = "ucx_perftest";
/// A client that comes too early for its server tries again, so often.
const TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(50);
/// About what a message takes, to decide how many there are: a part that does not depend on the size
/// and a rate.
const MESSAGE_SECONDS: f64 = 1e-6;
const BYTES_PER_SECOND: f64 = 5e9;

struct Ucx;

pub(super) fn find() -> Found {
    if program::exists(PROGRAM) {
        Found::Ready(Box::new(Ucx))
    } else {
        Found::Absent(format!(
            "ucx: {PROGRAM} is not installed (package ucx-utils)"
        ))
    }
}

impl Peer for Ucx {
    fn name(&self) -> &'static str {
        "ucx"
    }

    fn measure(&self, job: &Job) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        if job.ranks != 2 {
            return Ok(samples);
        }
        let scratch = Scratch::new()?;
        for op in job.among(&[Operation::Pingpong, Operation::Bandwidth]) {
            for bytes in job.sizes().into_iter().filter(|bytes| *bytes > 0) {
                let key = Key {
                    op,
                    medium: job.medium,
                    ranks: 2,
                    bytes,
                };
                let us = one(job, key, &scratch)?;
                samples.push(Sample { key, us });
            }
        }
        Ok(samples)
    }
}

/// The time of one message.
fn one(job: &Job, key: Key, scratch: &Scratch) -> Result<f64> {
    let port = free_port()?.to_string();
    let seconds = MESSAGE_SECONDS + key.bytes as f64 / BYTES_PER_SECOND;
    let messages = (job.time.as_secs_f64() / seconds).clamp(20.0, 1e6) as u64;
    let warm_up = (messages / 10).clamp(5, 1000);
    let command = |place: usize| {
        let mut command = Command::new(PROGRAM);
        let transport = match key.medium {
            Medium::Shm => "posix,cma,self",
            Medium::Tcp => "tcp,self",
        };
        command
            .env("UCX_TLS", transport)
            .env("UCX_LOG_LEVEL", "error")
            .args(["-p", &port]);
        if let Some(cpu) = job.cpus.get(place) {
            command.args(["-c", &cpu.to_string()]);
        }
        command
    };
    let mut server = command(0);
    server.stdout(Stdio::null()).stderr(Stdio::null());
    // Ends with its client; else it is killed when dropped.
    let _server = Running::start(&mut server)?;
    let test = match key.op {
        Operation::Pingpong => "tag_lat",
        _ => "tag_bw",
    };
    let mut tries = 0;
    loop {
        let mut client = command(1);
        client
            .arg(Ipv4Addr::LOCALHOST.to_string())
            .args(["-t", test, "-s", &key.bytes.to_string()])
            .args(["-n", &messages.to_string(), "-w", &warm_up.to_string()])
            .args(["-f", "-v"]);
        match program::output(&mut client, job.limit(1), &scratch.file("client")) {
            Ok(printed) => return time(&printed, key),
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

/// The time of one message in the CSV that is printed: iterations, median, average and overall
/// latency, average and overall bandwidth in MB/s, message rates. The median of a ping-pong; of a
/// stream the overall bandwidth in units of 2^20 bytes.
fn time(printed: &str, key: Key) -> Result<f64> {
    let values = printed.lines().rev().find_map(|line| {
        let values: Vec<f64> = line
            .split(',')
            .map(|value| value.trim().parse().ok())
            .collect::<Option<_>>()?;
        (values.len() >= 6).then_some(values)
    });
    let us = values.map(|values| match key.op {
        Operation::Pingpong => values[1],
        _ => key.bytes as f64 / (values[5] * f64::from(1 << 20)) * 1e6,
    });
    us.filter(|us| us.is_finite() && *us > 0.0).ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, "its output cannot be read").with("output", printed)
    })
}

/// A port that was free a moment ago.
pub(super) fn free_port() -> Result<u16> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| Error::system("looking for a free port", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(op: Operation) -> Key {
        Key {
            op,
            medium: Medium::Shm,
            ranks: 2,
            bytes: 1 << 20,
        }
    }

    #[test]
    fn times_are_read_from_the_last_line_of_numbers() {
        let printed = "header\n20000,1.497,9.241,9.241,422.71,1000.0,108214,108214\n";
        assert_eq!(time(printed, key(Operation::Pingpong)).unwrap(), 1.497);
        let us = time(printed, key(Operation::Bandwidth)).unwrap();
        assert!((us - 1000.0).abs() < 1e-9, "{us}");
        assert!(time("1,2\n", key(Operation::Pingpong)).is_err());
    }
}
