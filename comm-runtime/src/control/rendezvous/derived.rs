//! Ports that all ranks of a job derive from what its launcher tells every one of them.
//!
//! # Contract
//!
//! A launcher that names a host but no free port leaves the choice to the ranks: all of them derive
//! the same [`PORTS`] ports from the job's identity, one of them serves the table at the first that
//! is free, the others try them all. Which of them is this job's table, the hello tells.

use crate::control::hello::JobId;

/// How many ports are tried.
pub(super) const PORTS: usize = 16;

/// The ports lie below the range from which systems hand out ports to clients (32768 on Linux).
const FIRST_PORT: u16 = 20_000;
const PORT_COUNT: u16 = 12_000;

/// The ports of a job, in the order in which they are tried; never `taken`.
pub(super) fn ports(job: &JobId, taken: Option<u16>) -> Vec<u16> {
    let mut hasher = blake3::Hasher::new_derive_key("comm derived ports 1");
    hasher.update(job);
    let mut stream = hasher.finalize_xof();
    let mut ports = Vec::with_capacity(PORTS);
    while ports.len() < PORTS {
        let mut bytes = [0; 2];
        stream.fill(&mut bytes);
        let port = FIRST_PORT + u16::from_le_bytes(bytes) % PORT_COUNT;
        if Some(port) != taken && !ports.contains(&port) {
            ports.push(port);
        }
    }
    ports
}

/// Every port at a host.
pub(super) fn targets(host: &str, ports: &[u16]) -> Vec<(String, u16)> {
    ports.iter().map(|port| (host.to_owned(), *port)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_sixteen_different_ports_in_the_documented_range() {
        let mut of_job = ports(&[7; 16], None);
        assert_eq!(of_job, ports(&[7; 16], None));
        assert_ne!(of_job, ports(&[8; 16], None));
        of_job.sort_unstable();
        of_job.dedup();
        assert_eq!(of_job.len(), PORTS);
        assert!(of_job.iter().all(|port| (20_000..32_000).contains(port)));
    }

    #[test]
    fn a_port_that_is_known_to_be_taken_is_left_out() {
        let taken = ports(&[7; 16], None)[0];
        assert!(!ports(&[7; 16], Some(taken)).contains(&taken));
    }
}
