//! Who started this process, and as which rank.
//!
//! # Contract
//!
//! [`LaunchEnvironment::detect`] is a function of the variables alone. The rank comes from the
//! first of these that is set: `COMM_RANK`, `RANK`, Open MPI's, Slurm's. The rendezvous comes
//! from `COMM_RENDEZVOUS` or from what the launcher tells all ranks. Half a launcher is an error
//! that says which variables are missing.

mod hostlist;
mod open_mpi;
mod slurm;
#[cfg(test)]
mod tests;
mod torchrun;

use std::fmt;

use comm_core::{Error, ErrorKind, Rank, Result};

use super::rendezvous::RendezvousAddress;

/// A program that starts the ranks of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// `commctl launch`.
    Commctl,
    /// `torchrun`, or whatever else sets its variables.
    Torchrun,
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `srun` of Slurm.
    Slurm,
    /// Somebody who set the rank and `COMM_RENDEZVOUS` by hand.
    Manual,
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Commctl => "commctl launch",
            Self::Torchrun => "torchrun",
            Self::OpenMpi => "Open MPI",
            Self::Slurm => "Slurm",
            Self::Manual => "the environment",
        })
    }
}

/// What a launcher tells one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaunchEnvironment {
    /// Who started this process.
    pub launcher: Launcher,
    /// The rank of this process.
    pub rank: Rank,
    /// The number of ranks of the job.
    pub world_size: u32,
    /// The rank among those of this host, if the launcher tells.
    pub local_rank: Option<u32>,
    /// The number of ranks on this host, if the launcher tells.
    pub local_world_size: Option<u32>,
    /// Where the ranks meet; `None` only for a job of one rank.
    pub rendezvous: Option<RendezvousAddress>,
}

/// The names of one launcher's variables.
struct Names {
    launcher: Launcher,
    rank: &'static str,
    world_size: &'static [&'static str],
    local_rank: &'static str,
    local_world_size: &'static str,
}

/// The launchers in the order in which their variables are looked for. A shell inside of a Slurm
/// allocation has Slurm's variables, too, so those come last.
const LAUNCHERS: [Names; 4] = [
    Names {
        launcher: Launcher::Manual,
        rank: "COMM_RANK",
        world_size: &["COMM_WORLD_SIZE"],
        local_rank: "COMM_LOCAL_RANK",
        local_world_size: "COMM_LOCAL_WORLD_SIZE",
    },
    Names {
        launcher: Launcher::Torchrun,
        rank: "RANK",
        world_size: &["WORLD_SIZE"],
        local_rank: "LOCAL_RANK",
        local_world_size: "LOCAL_WORLD_SIZE",
    },
    Names {
        launcher: Launcher::OpenMpi,
        rank: "OMPI_COMM_WORLD_RANK",
        world_size: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_world_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
    },
    Names {
        launcher: Launcher::Slurm,
        rank: "SLURM_PROCID",
        // The first is that of the step; the others are also set where no step was started.
        world_size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"],
        local_rank: "SLURM_LOCALID",
        // Slurm has no such variable with one number in it.
        local_world_size: "",
    },
];

impl LaunchEnvironment {
    /// What the variables say; `variable` looks up one of them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfiguration`] if no launcher set a rank, if variables are missing
    /// (the message names them), or if one does not parse. A rank that is not smaller than the world
    /// size is left to the join, which tells the other ranks.
    pub fn detect(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        // Some launchers set variables that do not apply to the empty text.
        let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let names = LAUNCHERS
            .iter()
            .find(|names| variable(names.rank).is_some());
        let Some(names) = names else {
            return Err(nobody_started_this(&variable));
        };
        let rank = number(&variable, names.rank)?;
        let world_size = names
            .world_size
            .iter()
            .find(|name| variable(name).is_some());
        let world_size = match world_size {
            Some(name) => number(&variable, name)?,
            None => return Err(missing(&[names.rank], &names.world_size[..1])),
        };
        let optional = |name: &'static str| match variable(name) {
            Some(_) => number(&variable, name).map(Some),
            None => Ok(None),
        };
        let mut found = Self {
            launcher: names.launcher,
            rank,
            world_size,
            local_rank: optional(names.local_rank)?,
            local_world_size: optional(names.local_world_size)?,
            rendezvous: match variable("COMM_RENDEZVOUS") {
                Some(text) => Some(
                    text.parse()
                        .map_err(|error: Error| error.with("variable", "COMM_RENDEZVOUS"))?,
                ),
                None => None,
            },
        };
        if variable("COMM_LAUNCHER").as_deref() == Some("commctl") {
            found.launcher = Launcher::Commctl;
        } else if found.launcher == Launcher::Torchrun
            && found.rendezvous.is_some()
            && variable("TORCHELASTIC_RUN_ID").is_none()
        {
            found.launcher = Launcher::Manual;
        }
        if found.rendezvous.is_none() && (world_size != 1 || rank != 0) {
            found.rendezvous = Some(found.rendezvous_of_launcher(&variable)?);
        }
        Ok(found)
    }

    /// Where the ranks meet if `COMM_RENDEZVOUS` is not set.
    fn rendezvous_of_launcher(
        &self,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<RendezvousAddress> {
        match self.launcher {
            Launcher::Torchrun | Launcher::Commctl => {
                torchrun::job(self, variable).map(RendezvousAddress::Torchrun)
            }
            Launcher::OpenMpi => open_mpi::job(self, variable).map(RendezvousAddress::OpenMpi),
            Launcher::Slurm => slurm::job(self, variable).map(RendezvousAddress::Slurm),
            Launcher::Manual => Err(missing(
                &["COMM_RANK", "COMM_WORLD_SIZE"],
                &["COMM_RENDEZVOUS"],
            )
            .with("example", EXAMPLE)),
        }
    }
}

/// How an address is given by hand.
const EXAMPLE: &str = "COMM_RENDEZVOUS=<host of rank 0>:29400";

/// Where ranks meet that are all on one host: no network is needed, and so no secret.
const LOOPBACK: &str = "127.0.0.1";

fn number(variable: &dyn Fn(&str) -> Option<String>, name: &'static str) -> Result<u32> {
    let text = variable(name).unwrap_or_default();
    text.trim().parse().map_err(|_| {
        Error::new(ErrorKind::InvalidConfiguration, "the variable is no number")
            .with("variable", name)
            .with("value", text)
    })
}

fn missing(present: &[&str], absent: &[&str]) -> Error {
    Error::new(
        ErrorKind::InvalidConfiguration,
        format!(
            "{} {} set, but {} {} missing; start all ranks with one launcher, or set all of them",
            present.join(" and "),
            if present.len() == 1 { "is" } else { "are" },
            absent.join(" and "),
            if absent.len() == 1 { "is" } else { "are" },
        ),
    )
}

fn nobody_started_this(variable: &dyn Fn(&str) -> Option<String>) -> Error {
    let sizes = LAUNCHERS
        .iter()
        .flat_map(|names| names.world_size.iter().map(move |size| (names, size)));
    for (names, size) in sizes {
        if variable(size).is_some() && names.launcher != Launcher::Slurm {
            return missing(&[size], &[names.rank]);
        }
    }
    Error::new(
        ErrorKind::InvalidConfiguration,
        "no launcher started this process; use `commctl launch -n 4 -- PROGRAM`, `torchrun`, \
         `srun`, `mpirun`, or set COMM_RANK, COMM_WORLD_SIZE and COMM_RENDEZVOUS=host:port for every rank",
    )
}
