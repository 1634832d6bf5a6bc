//! What each launcher's variables come to.

use super::*;
use crate::control::rendezvous::{OpenMpiJob, SlurmJob};

fn detect(variables: &[(&str, &str)]) -> Result<LaunchEnvironment> {
    LaunchEnvironment::detect(&|name| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

/// What torchrun sets for the second of two workers on one host of several.
const TORCHRUN: [(&str, &str); 9] = [
    ("RANK", "3"),
    ("WORLD_SIZE", "4"),
    ("LOCAL_RANK", "1"),
    ("LOCAL_WORLD_SIZE", "2"),
    ("MASTER_ADDR", "h1"),
    ("MASTER_PORT", "29500"),
    ("TORCHELASTIC_RUN_ID", "none"),
    ("TORCHELASTIC_RESTART_COUNT", "0"),
    ("OMP_NUM_THREADS", "1"),
];

#[test]
fn torchrun_is_recognised() {
    let found = detect(&TORCHRUN).unwrap();
    assert_eq!(found.launcher, Launcher::Torchrun);
    assert_eq!((found.rank, found.world_size), (3, 4));
    assert_eq!(
        (found.local_rank, found.local_world_size),
        (Some(1), Some(2))
    );
    let Some(RendezvousAddress::Torchrun(job)) = found.rendezvous else {
        panic!("{:?}", found.rendezvous)
    };
    assert_eq!((job.host.as_str(), job.agent_port), ("h1", 29500));
    assert_eq!(
        (job.run_id.as_str(), job.restart_count.as_str()),
        ("none", "0")
    );
}

#[test]
fn torchrun_on_one_host_meets_on_loopback() {
    let mut variables = TORCHRUN;
    variables[3] = ("LOCAL_WORLD_SIZE", "4");
    let Some(RendezvousAddress::Torchrun(job)) = detect(&variables).unwrap().rendezvous else {
        panic!("no rendezvous")
    };
    assert_eq!(job.host, "127.0.0.1");
}

#[test]
fn comm_rendezvous_overrides_what_a_launcher_says() {
    let mut variables = TORCHRUN.to_vec();
    variables.push(("COMM_RENDEZVOUS", "node1:29400"));
    let found = detect(&variables).unwrap();
    assert_eq!(found.launcher, Launcher::Torchrun);
    assert_eq!(found.rendezvous.unwrap().to_string(), "node1:29400");
}

#[test]
fn missing_variables_are_named() {
    for absent in ["WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"] {
        let variables: Vec<_> = TORCHRUN
            .into_iter()
            .filter(|(name, _)| *name != absent)
            .collect();
        let error = detect(&variables).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
        assert!(
            error.message().contains(&format!("{absent} is missing")),
            "{error}"
        );
    }
    let error = detect(&[("WORLD_SIZE", "4")]).unwrap_err();
    assert!(error.message().contains("RANK is missing"), "{error}");
    let error = detect(&[("COMM_RANK", "0"), ("COMM_WORLD_SIZE", "2")]).unwrap_err();
    assert!(
        error.message().contains("COMM_RENDEZVOUS is missing"),
        "{error}"
    );
}

#[test]
fn without_a_launcher_the_error_says_how_to_start() {
    let error = detect(&[("HOME", "/root"), ("SLURM_NTASKS", "1")]).unwrap_err();
    assert!(error.message().contains("commctl launch"), "{error}");
    assert!(error.message().contains("torchrun"), "{error}");
}

/// What Slurm sets for the last of four tasks on two hosts.
const SLURM: [(&str, &str); 9] = [
    ("SLURM_PROCID", "3"),
    ("SLURM_STEP_NUM_TASKS", "4"),
    ("SLURM_NTASKS", "8"),
    ("SLURM_LOCALID", "1"),
    ("SLURM_NODEID", "1"),
    ("SLURM_JOB_ID", "4711"),
    ("SLURM_STEP_ID", "0"),
    ("SLURM_STEP_NODELIST", "n[08-09]"),
    ("SLURM_LAUNCH_NODE_IPADDR", "10.0.0.8"),
];

fn slurm_job(variables: &[(&str, &str)]) -> SlurmJob {
    match detect(variables).unwrap().rendezvous {
        Some(RendezvousAddress::Slurm(job)) => job,
        other => panic!("{other:?}"),
    }
}

fn with<'a>(
    variables: &[(&'a str, &'a str)],
    changed: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    let mut all = changed.to_vec();
    all.extend(
        variables
            .iter()
            .filter(|(name, _)| changed.iter().all(|(other, _)| other != name)),
    );
    all
}

#[test]
fn the_tasks_of_a_slurm_step_meet_at_its_first_host() {
    let found = detect(&SLURM).unwrap();
    assert_eq!(
        (found.launcher, found.rank, found.world_size),
        (Launcher::Slurm, 3, 4)
    );
    let job = slurm_job(&SLURM);
    assert_eq!(job.host, "n08");
    assert_eq!(job.launch_address.as_deref(), Some("10.0.0.8"));
    assert_eq!((job.job_id.as_str(), job.step_id.as_str()), ("4711", "0"));
}

#[test]
fn the_first_task_on_the_first_host_serves_whichever_rank_it_has() {
    assert!(!slurm_job(&SLURM).serves);
    let first = with(&SLURM, &[("SLURM_NODEID", "0"), ("SLURM_LOCALID", "0")]);
    assert!(slurm_job(&first).serves);
    let rank_0_elsewhere = with(&SLURM, &[("SLURM_PROCID", "0")]);
    assert!(!slurm_job(&rank_0_elsewhere).serves);
}

#[test]
fn a_slurm_step_on_one_host_meets_on_loopback() {
    let job = slurm_job(&with(&SLURM, &[("SLURM_STEP_NODELIST", "n8")]));
    assert_eq!((job.host.as_str(), job.launch_address), ("127.0.0.1", None));
}

#[test]
fn a_batch_script_that_did_not_use_srun_is_told_to() {
    let script: Vec<_> = SLURM
        .into_iter()
        .filter(|(name, _)| !name.contains("STEP"))
        .collect();
    let error = detect(&script).unwrap_err();
    assert!(error.message().contains("srun"), "{error}");
}

#[test]
fn a_list_of_hosts_that_cannot_be_read_names_its_variable() {
    let error = detect(&with(&SLURM, &[("SLURM_STEP_NODELIST", "n[1")])).unwrap_err();
    assert!(error.to_string().contains("SLURM_STEP_NODELIST"), "{error}");
}

/// What Open MPI 4.1 sets for the second of two processes of one host.
const OPEN_MPI: [(&str, &str); 6] = [
    ("OMPI_COMM_WORLD_RANK", "1"),
    ("OMPI_COMM_WORLD_SIZE", "2"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
    ("PMIX_NAMESPACE", "1249509377"),
    (
        "OMPI_MCA_orte_hnp_uri",
        "1249509376.0;tcp://192.0.2.2:39337",
    ),
];

fn open_mpi_job(variables: &[(&str, &str)]) -> OpenMpiJob {
    match detect(variables).unwrap().rendezvous {
        Some(RendezvousAddress::OpenMpi(job)) => job,
        other => panic!("{other:?}"),
    }
}

#[test]
fn open_mpi_on_one_host_meets_on_loopback() {
    assert_eq!(open_mpi_job(&OPEN_MPI).hosts, ["127.0.0.1"]);
    // Release 5 tells the address of the host's daemon only.
    let five: Vec<_> = with(
        &OPEN_MPI,
        &[("PMIX_SERVER_URI41", "prterun-a-7@0.0;tcp4://127.0.0.1:4000")],
    )
    .into_iter()
    .filter(|(name, _)| *name != "OMPI_MCA_orte_hnp_uri")
    .collect();
    assert_eq!(open_mpi_job(&five).hosts, ["127.0.0.1"]);
    assert_ne!(open_mpi_job(&five).ports(), open_mpi_job(&OPEN_MPI).ports());
}

#[test]
fn open_mpi_on_several_hosts_meets_where_mpirun_is_or_says_what_to_add() {
    let several = with(&OPEN_MPI, &[("OMPI_COMM_WORLD_LOCAL_SIZE", "1")]);
    assert_eq!(open_mpi_job(&several).hosts, ["192.0.2.2"]);
    let unknown: Vec<_> = several
        .into_iter()
        .filter(|(name, _)| *name != "OMPI_MCA_orte_hnp_uri")
        .collect();
    let error = detect(&unknown).unwrap_err();
    assert!(error.message().contains("COMM_RENDEZVOUS="), "{error}");
    assert!(error.message().contains("UniqueId"), "{error}");
}

#[test]
fn an_address_given_by_hand_goes_before_that_of_slurm_and_open_mpi() {
    for (variables, launcher) in [
        (&OPEN_MPI[..], Launcher::OpenMpi),
        (&SLURM[..], Launcher::Slurm),
    ] {
        let given = with(variables, &[("COMM_RENDEZVOUS", "node1:29400")]);
        let found = detect(&given).unwrap();
        assert_eq!(found.launcher, launcher);
        assert_eq!(found.rendezvous.unwrap().to_string(), "node1:29400");
    }
}

#[test]
fn torchrun_inside_of_a_slurm_allocation_is_torchrun() {
    let mut variables = TORCHRUN.to_vec();
    variables.extend([("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")]);
    assert_eq!(detect(&variables).unwrap().launcher, Launcher::Torchrun);
}

#[test]
fn a_job_of_one_rank_needs_no_rendezvous() {
    let found = detect(&[("RANK", "0"), ("WORLD_SIZE", "1")]).unwrap();
    assert_eq!(found.rendezvous, None);
}

#[test]
fn a_number_that_is_none_names_its_variable() {
    for (name, value) in [
        ("RANK", "x"),
        ("WORLD_SIZE", "-1"),
        ("MASTER_PORT", "99999"),
    ] {
        let mut variables = TORCHRUN;
        variables
            .iter_mut()
            .find(|(known, _)| *known == name)
            .unwrap()
            .1 = value;
        let error = detect(&variables).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
}
