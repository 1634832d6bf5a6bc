//! Jobs that real launchers start, without an address given by hand. Each launcher is tested where it
//! is installed; the reason is printed where it is not.

use std::path::Path;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};

#[path = "support/worker.rs"]
mod worker;

use worker::{Ended, start};

fn main() -> ExitCode {
    if let Some(code) = worker::played() {
        return code;
    }
    let trials = vec![
        Trial::test("the_tasks_of_one_slurm_node_meet", || {
            slurm(&["-N", "1", "-n", "4"])
        }),
        Trial::test("the_tasks_of_two_slurm_nodes_meet", || {
            slurm(&["-N", "2", "-n", "4"])
        }),
        Trial::test("slurm_tasks_meet_wherever_rank_0_is", || {
            slurm(&["-N", "2", "-n", "3", "--distribution=plane=1"])
        }),
        Trial::test(
            "a_batch_script_without_srun_is_told_to_use_it",
            slurm_without_srun,
        ),
        Trial::test("the_processes_of_open_mpi_meet", open_mpi),
        Trial::test("the_workers_of_torchrun_meet", torchrun),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// This program as one word of a command line.
fn this() -> Result<String, Failed> {
    let path = std::env::current_exe()?;
    Ok(path.to_str().ok_or("a path that is no text")?.to_owned())
}

/// Whether a program can be started, by the exit code of a harmless call.
fn is_installed(program: &str, argument: &str) -> bool {
    let tried = Command::new(program).arg(argument).output();
    let installed = tried.is_ok_and(|output| output.status.success());
    if !installed {
        eprintln!("skipped: {program} is not installed");
    }
    installed
}

/// Runs a shell command under a Slurm of its own; `None` if that cannot be.
fn under_slurm(command: &str) -> Result<Option<Ended>, Failed> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../interop/launchers/slurm.sh");
    if !script.is_file() {
        eprintln!("skipped: {} is not there", script.display());
        return Ok(None);
    }
    let ended = start(
        Command::new(script)
            .args(["bash", "-c", command])
            .env_remove("COMM_RENDEZVOUS"),
    )?
    .end()?;
    if ended.code == Some(77) {
        eprint!("{}", ended.errors);
        return Ok(None);
    }
    Ok(Some(ended))
}

fn slurm(arguments: &[&str]) -> Result<(), Failed> {
    let command = format!("srun {} '{}'", arguments.join(" "), this()?);
    let Some(ended) = under_slurm(&command)? else {
        return Ok(());
    };
    let last = format!("rank 2 of {}, started by Slurm", arguments[3]);
    ended.succeeded_with(&["rank 0 of", &last, "met at Slurm job"])
}

fn slurm_without_srun() -> Result<(), Failed> {
    let command = format!(
        "sbatch --wait -N 2 -n 4 -o out --wrap \"'{}'\"; cat out",
        this()?
    );
    let directory = tempfile::tempdir()?;
    let command = format!("cd '{}' && {command}", directory.path().display());
    let Some(ended) = under_slurm(&command)? else {
        return Ok(());
    };
    ended.succeeded_with(&["srun PROGRAM"])
}

fn open_mpi() -> Result<(), Failed> {
    if !is_installed("mpirun", "--version") {
        return Ok(());
    }
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "-np", "4"]);
    let ended = start(command.arg(this()?).env_remove("COMM_RENDEZVOUS"))?.end()?;
    ended.succeeded_with(&["rank 3 of 4, started by Open MPI", "met at Open MPI job"])
}

fn torchrun() -> Result<(), Failed> {
    if !is_installed("torchrun", "--help") {
        return Ok(());
    }
    let mut command = Command::new("torchrun");
    // Spelt as all releases take it; those that are older than their Python cannot do without a value
    // for what is redirected.
    command.args(["--standalone", "--nproc_per_node", "4", "--no_python"]);
    command.args(["--redirects", "1", "--tee", "1"]);
    let ended = start(command.arg(this()?).env_remove("COMM_RENDEZVOUS"))?.end()?;
    ended.succeeded_with(&["rank 3 of 4, started by torchrun", "met at torchrun"])
}
