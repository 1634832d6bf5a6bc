//! What Slurm tells the tasks of a job step about where to meet.

use comm_core::{Error, ErrorKind, Result};

use super::{LOOPBACK, LaunchEnvironment, hostlist};
use crate::control::rendezvous::SlurmJob;

/// The job step, from its list of hosts and its numbers.
pub(super) fn job(
    found: &LaunchEnvironment,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<SlurmJob> {
    let job_id = variable("SLURM_JOB_ID").or_else(|| variable("SLURM_JOBID"));
    let step_id = variable("SLURM_STEP_ID").or_else(|| variable("SLURM_STEPID"));
    let (Some(job_id), Some(step_id)) = (job_id, step_id) else {
        // A batch script has a rank and a number of tasks, too.
        return Err(Error::new(
            ErrorKind::InvalidConfiguration,
            format!(
                "Slurm has not started this process as one of {} tasks; start the program with \
                 `srun PROGRAM` inside of the batch script or allocation, or run it alone with \
                 COMM_RANK=0 COMM_WORLD_SIZE=1",
                found.world_size
            ),
        ));
    };
    let lists = [
        "SLURM_STEP_NODELIST",
        "SLURM_JOB_NODELIST",
        "SLURM_NODELIST",
    ];
    let list = lists
        .into_iter()
        .find_map(|name| variable(name).map(|list| (name, list)));
    let Some((name, list)) = list else {
        return Err(
            super::missing(&["SLURM_PROCID", "SLURM_STEP_ID"], &lists[..1])
                .with("or_instead", super::EXAMPLE),
        );
    };
    let hosts = hostlist::expand(&list).map_err(|error| error.with("variable", name))?;
    let restart_count = variable("SLURM_RESTART_COUNT").unwrap_or_default();
    // Which rank the first task on the first host has depends on the distribution of the tasks.
    let serves = match (variable("SLURM_NODEID"), found.local_rank) {
        (Some(node), Some(local)) => node.trim() == "0" && local == 0,
        _ => found.rank == 0,
    };
    let (host, launch_address) = match <[String; 1]>::try_from(hosts) {
        Ok(_) => (LOOPBACK.to_owned(), None),
        Err(hosts) => {
            let first = hosts.into_iter().next();
            let first = first.ok_or_else(|| {
                Error::new(ErrorKind::Internal, "a list of hosts has none").with("variable", name)
            })?;
            (first, variable("SLURM_LAUNCH_NODE_IPADDR"))
        }
    };
    let launcher_ports = ["SLURM_STEP_LAUNCHER_PORT", "SLURM_SRUN_COMM_PORT"];
    Ok(SlurmJob {
        host,
        launch_address,
        cluster: variable("SLURM_CLUSTER_NAME").unwrap_or_default(),
        launcher_port: launcher_ports
            .into_iter()
            .find_map(variable)
            .unwrap_or_default(),
        job_id,
        step_id,
        restart_count,
        serves,
    })
}
