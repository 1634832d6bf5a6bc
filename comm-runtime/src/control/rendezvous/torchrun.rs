//! The rendezvous of a job that `torchrun` started.
//!
//! # Contract
//!
//! `MASTER_ADDR` and `MASTER_PORT` name a store that torchrun's agent serves, so that port is
//! taken. Rank 0 serves a table of its own at the first free one of 16 other ports, which all
//! ranks [derive](super::derived) from what they know in common: run id, restart count and
//! `MASTER_PORT`.

use comm_core::Rank;

use super::place::{Place, Serve};
use super::{derived, job_id};

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
        derived::ports(&self.job(), Some(self.agent_port))
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
            targets: derived::targets(&self.host, &ports),
            job: self.job(),
            serve: Serve::by_this_process_if(rank == 0),
            ..Place::default()
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
    fn another_start_of_the_workers_is_another_job() {
        let again = TorchrunJob {
            restart_count: "1".to_owned(),
            ..job()
        };
        assert_ne!(again.job(), job().job());
        assert_ne!(again.ports(), job().ports());
    }

    #[test]
    fn rank_0_serves_and_the_others_look_for_it() {
        assert_eq!(job().place(0).serve, Serve::ThisProcess);
        assert_eq!(job().place(3).serve, Serve::AnotherProcess);
    }
}
