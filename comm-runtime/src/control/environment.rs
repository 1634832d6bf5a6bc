//! Who started this process, and as which rank.
//!
//! # Contract
//!
//! [`LaunchEnvironment::detect`] is a function of the variables alone. The rank comes from the
//! first of these that is set: `COMM_RANK`, `RANK`, Open MPI's, Slurm's. The rendezvous comes
//! from `COMM_RENDEZVOUS` or, for torchrun, from `MASTER_ADDR` and `MASTER_PORT`. Half a launcher
//! is an error that says which variables are missing.

use std::fmt;

use comm_core::{Error, ErrorKind, Rank, Result};

use super::rendezvous::{RendezvousAddress, TorchrunJob};

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
        world_size: &["SLURM_NTASKS", "SLURM_NPROCS"],
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
            None => return Err(missing(&[names.rank], &[names.world_size[0]])),
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
        let example = "COMM_RENDEZVOUS=<host of rank 0>:29400";
        match self.launcher {
            Launcher::Torchrun | Launcher::Commctl => {
                let (address, port) = (variable("MASTER_ADDR"), variable("MASTER_PORT"));
                let (Some(host), Some(_)) = (&address, &port) else {
                    let mut absent = Vec::new();
                    absent.extend(address.is_none().then_some("MASTER_ADDR"));
                    absent.extend(port.is_none().then_some("MASTER_PORT"));
                    return Err(
                        missing(&["RANK", "WORLD_SIZE"], &absent).with("or_instead", example)
                    );
                };
                // One host needs no network, and so no secret.
                let one_host = self.local_world_size == Some(self.world_size);
                let port = number(variable, "MASTER_PORT")?;
                Ok(RendezvousAddress::Torchrun(TorchrunJob {
                    host: if one_host {
                        "127.0.0.1".to_owned()
                    } else {
                        host.clone()
                    },
                    agent_port: u16::try_from(port).map_err(|_| {
                        Error::new(
                            ErrorKind::InvalidConfiguration,
                            "MASTER_PORT is no port number",
                        )
                        .with("MASTER_PORT", port)
                    })?,
                    run_id: variable("TORCHELASTIC_RUN_ID").unwrap_or_default(),
                    restart_count: variable("TORCHELASTIC_RESTART_COUNT").unwrap_or_default(),
                }))
            }
            Launcher::OpenMpi => Err(Error::new(
                ErrorKind::InvalidConfiguration,
                format!(
                    "Open MPI tells its processes their ranks but no address to meet at; add one, \
                     as in `mpirun -x {example} ...`"
                ),
            )),
            Launcher::Slurm => Err(Error::new(
                ErrorKind::InvalidConfiguration,
                format!(
                    "Slurm tells its processes their ranks but no address to meet at; add one, as \
                     in `srun --export=ALL,{example} ...` (the first host of \
                     `scontrol show hostnames` has rank 0)"
                ),
            )),
            Launcher::Manual => Err(missing(
                &["COMM_RANK", "COMM_WORLD_SIZE"],
                &["COMM_RENDEZVOUS"],
            )
            .with("example", example)),
        }
    }
}

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
        "no launcher started this process; use `commctl launch -n 4 -- PROGRAM`, `torchrun`, or \
         set COMM_RANK, COMM_WORLD_SIZE and COMM_RENDEZVOUS=host:port for every rank",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn open_mpi_and_slurm_need_an_address_and_say_so() {
        let mpi = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2")];
        let slurm = [
            ("SLURM_PROCID", "1"),
            ("SLURM_NTASKS", "2"),
            ("SLURM_LOCALID", "0"),
        ];
        for (variables, launcher) in [(&mpi[..], Launcher::OpenMpi), (&slurm[..], Launcher::Slurm)]
        {
            let error = detect(variables).unwrap_err();
            assert!(error.message().contains("COMM_RENDEZVOUS="), "{error}");
            let mut with_address = variables.to_vec();
            with_address.push(("COMM_RENDEZVOUS", "node1:29400"));
            let found = detect(&with_address).unwrap();
            assert_eq!(
                (found.launcher, found.rank, found.world_size),
                (launcher, 1, 2)
            );
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
}
