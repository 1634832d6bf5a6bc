//! The rendezvous of a job step that Slurm's `srun` started.
//!
//! # Contract
//!
//! * The first task on the first host of the step serves the table, at the first free one of 16
//!   ports that all tasks [derive](super::derived) from cluster, job, step, restart count and the
//!   port of the step's `srun`. Two steps of one job, two runs of a requeued one, and jobs of two
//!   clusters on one host never meet.
//! * The first host is looked up by the name that Slurm uses for it. Only where that name does
//!   not resolve, the address from which `srun` was started is taken: in a batch job `srun` runs
//!   on the first host.
//! * A step on a single host meets on loopback.

use super::place::{Place, Serve};
use super::{derived, job_id};

/// What a task knows about its job step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmJob {
    /// The first host of the step, or `127.0.0.1` if it has no other.
    pub host: String,
    /// The address from which `srun` was started (`SLURM_LAUNCH_NODE_IPADDR`), if another one may
    /// be needed.
    pub launch_address: Option<String>,
    /// `SLURM_CLUSTER_NAME`.
    pub cluster: String,
    /// The port on which the `srun` of the step listens (`SLURM_STEP_LAUNCHER_PORT`).
    pub launcher_port: String,
    /// `SLURM_JOB_ID`.
    pub job_id: String,
    /// `SLURM_STEP_ID`.
    pub step_id: String,
    /// `SLURM_RESTART_COUNT`: tells runs of a requeued job apart; empty in the first.
    pub restart_count: String,
    /// Whether this is the first task on the first host.
    pub serves: bool,
}

impl SlurmJob {
    /// The ports that are tried, in this order.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        derived::ports(&self.job(), None)
    }

    fn job(&self) -> [u8; 16] {
        job_id(&[
            "slurm",
            &self.cluster,
            &self.launcher_port,
            &self.job_id,
            &self.step_id,
            &self.restart_count,
        ])
    }

    /// Job and step, and where they meet, in words.
    pub(super) fn describe(&self) -> String {
        let Self {
            job_id,
            step_id,
            host,
            ..
        } = self;
        match &self.launch_address {
            None => format!("Slurm job {job_id}, step {step_id} on {host}"),
            Some(address) => format!(
                "Slurm job {job_id}, step {step_id} on {host} (or, if that name does not resolve, \
                 {address})"
            ),
        }
    }

    pub(super) fn place(&self) -> Place {
        let ports = self.ports();
        let fallback = self.launch_address.as_deref();
        Place {
            name: format!("{}, ports {ports:?}", self.describe()),
            targets: derived::targets(&self.host, &ports),
            fallback: fallback.map_or_else(Vec::new, |host| derived::targets(host, &ports)),
            job: self.job(),
            serve: Serve::by_this_process_if(self.serves),
            ..Place::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> SlurmJob {
        SlurmJob {
            host: "n1".to_owned(),
            launch_address: Some("10.0.0.1".to_owned()),
            cluster: "rig".to_owned(),
            launcher_port: "37847".to_owned(),
            job_id: "4711".to_owned(),
            step_id: "0".to_owned(),
            restart_count: String::new(),
            serves: true,
        }
    }

    #[test]
    fn another_step_another_run_and_another_cluster_are_other_jobs() {
        let step = SlurmJob {
            step_id: "1".to_owned(),
            ..job()
        };
        let run = SlurmJob {
            restart_count: "1".to_owned(),
            ..job()
        };
        let cluster = SlurmJob {
            cluster: "other".to_owned(),
            ..job()
        };
        for other in [step, run, cluster] {
            assert_ne!(other.job(), job().job());
            assert_ne!(other.ports(), job().ports());
        }
    }

    #[test]
    fn all_tasks_look_at_the_same_places_whoever_serves() {
        let other = SlurmJob {
            serves: false,
            ..job()
        };
        let (serving, other) = (job().place(), other.place());
        assert_eq!(serving.targets, other.targets);
        assert_eq!(serving.fallback, other.fallback);
        assert_eq!(serving.job, other.job);
        assert_eq!(
            (serving.serve, other.serve),
            (Serve::ThisProcess, Serve::AnotherProcess)
        );
    }
}
