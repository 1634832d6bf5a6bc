//! The rendezvous of a job that `torchrun` started.
//!
//! # Contract
//!
//! `MASTER_ADDR` and `MASTER_PORT` name a store that torchrun's agent serves, so that port is
//! taken. Rank 0 serves a table of its own at the first free one of [`PORTS`] other ports, which
//! all ranks derive from what they know in common: run id, restart count and `MASTER_PORT`. The
//! others try them all; which of them is this job's table, the hello tells.

use comm_core::Rank;

use super::job_id;
use super::place::{Place, Serve};

/// How many ports are tried.
const PORTS: usize = 16;

/// The ports lie below the range from which systems hand out ports to clients (32768 on Linux).
const FIRST_PORT: u16 = 20_000;
const PORT_COUNT: u16 = 12_000;

/// What a worker knows about the job that torchrun started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorchrunJob {
    /// `MASTER_ADDR`, or `127.0.0.1` if all ranks are on one host.
    pub host: String,
    /// `MASTER_PORT`, which the agent holds.
    pub agent_port: u16,
    /// `TORCHELASTIC_RUN_ID`; empty without an elastic agent.
    pub run_id: String,
    /// `TORCHELASTIC_RESTART_COUNT`: tells this start of the workers from those before.
    pub restart_count: String,
}

impl TorchrunJob {
    /// The ports that are tried, in this order; never the agent's.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        let mut hasher = blake3::Hasher::new_derive_key("comm torchrun ports 1");
        hasher.update(&self.job());
        let mut stream = hasher.finalize_xof();
        let mut ports = Vec::with_capacity(PORTS);
        while ports.len() < PORTS {
            let mut bytes = [0; 2];
            stream.fill(&mut bytes);
            let port = FIRST_PORT + u16::from_le_bytes(bytes) % PORT_COUNT;
            if port != self.agent_port && !ports.contains(&port) {
                ports.push(port);
            }
        }
        ports
    }

    fn job(&self) -> [u8; 16] {
        job_id(&[
            "torchrun",
            &self.run_id,
            &self.restart_count,
            &self.agent_port.to_string(),
        ])
    }

    pub(super) fn place(&self, rank: Rank) -> Place {
        let ports = self.ports();
        Place {
            name: format!("torchrun job at {}, ports {ports:?}", self.host),
            targets: ports
                .into_iter()
                .map(|port| (self.host.clone(), port))
                .collect(),
            job: self.job(),
            serve: if rank == 0 {
                Serve::ThisProcess
            } else {
                Serve::AnotherProcess
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> TorchrunJob {
        TorchrunJob {
            host: "localhost".to_owned(),
            agent_port: 29_500,
            run_id: "none".to_owned(),
            restart_count: "0".to_owned(),
        }
    }

    #[test]
    fn all_ranks_derive_the_same_sixteen_different_ports() {
        let mut ports = job().ports();
        assert_eq!(ports, job().ports());
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), PORTS);
        assert!(ports.iter().all(|port| (20_000..32_000).contains(port)));
    }

    #[test]
    fn another_start_of_the_workers_is_another_job() {
        let again = TorchrunJob {
            restart_count: "1".to_owned(),
            ..job()
        };
        assert_ne!(again.job(), job().job());
        assert_ne!(again.ports(), job().ports());
    }

    #[test]
    fn the_port_of_the_agent_is_left_alone() {
        let taken = job().ports()[0];
        let beside = TorchrunJob {
            agent_port: taken,
            ..job()
        };
        assert!(!beside.ports().contains(&taken));
    }
}
