//! The variables that workers get, as listed in the documentation of `launch`.
//!
//! They come in three layers, the later replacing the earlier: what the launcher inherited, what it
//! sets itself, what the user gave by `--env`.

use std::ffi::OsString;
use std::fmt::Write as _;

use comm_core::{Error, ErrorKind, Result};

use super::options::{Options, Variable};
use super::port;

/// What the workers of one launch have in common.
#[derive(Debug)]
pub(super) struct Job {
    world_size: u32,
    master_port: u16,
    rendezvous: String,
    job_id: String,
    /// `None`: the workers inherit the one that is set.
    secret: Option<String>,
    one_thread: bool,
    user: Vec<Variable>,
}

impl Job {
    /// Decides the variables of a launch; `ambient` looks up the launcher's own variables.
    ///
    /// # Errors
    ///
    /// When the system has no free port or no random numbers, or when an inherited `COMM_JOB_ID`
    /// is not UTF-8.
    pub(super) fn new(
        options: &Options,
        ambient: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self> {
        let inherited = |key: &str| ambient(key).filter(|value| !value.is_empty());
        let given = |key: &str| options.variables.iter().any(|variable| variable.key == key);
        let is_set = |key: &str| inherited(key).is_some() || given(key);

        let [master_port, rendezvous_port] = port::free_ports()?;
        let rendezvous = match &options.rendezvous {
            Some(address) => address.clone(),
            None => format!("127.0.0.1:{rendezvous_port}"),
        };
        let job_id = match inherited("COMM_JOB_ID") {
            Some(job_id) => job_id.into_string().map_err(|job_id| {
                let message = "COMM_JOB_ID is not valid UTF-8; unset it to get a random one";
                Error::new(ErrorKind::InvalidConfiguration, message)
                    .with("COMM_JOB_ID", job_id.display())
            })?,
            None => random_hex::<8>()?,
        };
        let secret = if is_set("COMM_SECRET") || is_set("COMM_SECRET_FILE") {
            None
        } else {
            Some(random_hex::<32>()?)
        };
        Ok(Self {
            world_size: options.workers,
            master_port,
            rendezvous,
            job_id,
            secret,
            one_thread: options.workers > 1 && !is_set("OMP_NUM_THREADS"),
            user: options.variables.clone(),
        })
    }

    /// The variables of one worker; later ones replace earlier ones of the same name.
    pub(super) fn variables(&self, rank: u32) -> Vec<Variable> {
        let rank = rank.to_string();
        let size = self.world_size.to_string();
        let port = self.master_port.to_string();
        let mut variables: Vec<Variable> = [
            ("RANK", rank.as_str()),
            ("LOCAL_RANK", &rank),
            ("ROLE_RANK", &rank),
            ("WORLD_SIZE", &size),
            ("LOCAL_WORLD_SIZE", &size),
            ("ROLE_WORLD_SIZE", &size),
            ("GROUP_RANK", "0"),
            ("GROUP_WORLD_SIZE", "1"),
            ("ROLE_NAME", "default"),
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", &port),
            ("TORCHELASTIC_RUN_ID", &self.job_id),
            ("TORCHELASTIC_RESTART_COUNT", "0"),
            ("TORCHELASTIC_MAX_RESTARTS", "0"),
            ("TORCHELASTIC_USE_AGENT_STORE", "False"),
            ("COMM_LAUNCHER", "commctl"),
            ("COMM_RENDEZVOUS", &self.rendezvous),
            ("COMM_JOB_ID", &self.job_id),
        ]
        .into_iter()
        .chain(self.secret.as_deref().map(|secret| ("COMM_SECRET", secret)))
        .chain(self.one_thread.then_some(("OMP_NUM_THREADS", "1")))
        .map(|(key, value)| Variable {
            key: key.to_owned(),
            value: value.to_owned(),
        })
        .collect();
        variables.extend(self.user.iter().cloned());
        variables
    }
}

/// `BYTES` random bytes in hex.
fn random_hex<const BYTES: usize>() -> Result<String> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::new(ErrorKind::System, "the system gives no random numbers").with_source(error)
    })?;
    Ok(bytes
        .iter()
        .fold(String::with_capacity(2 * BYTES), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;

    fn options(workers: u32, variables: &[&str]) -> Options {
        Options {
            workers,
            variables: variables.iter().map(|text| text.parse().unwrap()).collect(),
            no_prefix: false,
            rendezvous: None,
            grace: Duration::from_secs(2),
            pin: None,
            program: vec!["true".into()],
        }
    }

    fn variables(options: &Options, ambient: &[(&str, &str)]) -> BTreeMap<String, String> {
        let find = |key: &str| {
            ambient
                .iter()
                .find(|(k, _)| *k == key)
                .map(|(_, v)| v.into())
        };
        let job = Job::new(options, find).unwrap();
        job.variables(1)
            .into_iter()
            .map(|variable| (variable.key, variable.value))
            .collect()
    }

    #[test]
    fn a_worker_gets_rank_and_sizes_in_torchruns_names() {
        let variables = variables(&options(4, &[]), &[]);
        for key in ["RANK", "LOCAL_RANK", "ROLE_RANK"] {
            assert_eq!(variables[key], "1", "{key}");
        }
        for key in ["WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"] {
            assert_eq!(variables[key], "4", "{key}");
        }
        assert_eq!(variables["GROUP_RANK"], "0");
        assert_ne!(
            variables["COMM_RENDEZVOUS"],
            format!("127.0.0.1:{}", variables["MASTER_PORT"])
        );
    }

    #[test]
    fn secret_and_job_id_are_fresh_for_each_launch() {
        let launches = [0, 1].map(|_| variables(&options(2, &[]), &[]));
        assert_eq!(launches[0]["COMM_SECRET"].len(), 64);
        assert!(
            launches[0]["COMM_SECRET"]
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit())
        );
        assert_ne!(launches[0]["COMM_SECRET"], launches[1]["COMM_SECRET"]);
        assert_ne!(launches[0]["COMM_JOB_ID"], launches[1]["COMM_JOB_ID"]);
    }

    #[test]
    fn a_secret_or_job_id_of_the_user_is_kept() {
        for key in ["COMM_SECRET", "COMM_SECRET_FILE"] {
            let inherited = variables(&options(2, &[]), &[(key, "mine"), ("COMM_JOB_ID", "j")]);
            assert!(
                !inherited.contains_key("COMM_SECRET"),
                "inherited, not set again"
            );
            assert_eq!(inherited["COMM_JOB_ID"], "j");
        }
        let given = variables(&options(2, &["COMM_SECRET_FILE=/f"]), &[]);
        assert!(!given.contains_key("COMM_SECRET"));
        let empty = variables(&options(2, &[]), &[("COMM_SECRET", "")]);
        assert_eq!(empty["COMM_SECRET"].len(), 64, "an empty secret is none");
    }

    #[test]
    fn options_have_the_last_word() {
        let mut options = options(2, &["WORLD_SIZE=7", "OMP_NUM_THREADS=3"]);
        options.rendezvous = Some("host:1234".into());
        let variables = variables(&options, &[]);
        assert_eq!(variables["WORLD_SIZE"], "7");
        assert_eq!(variables["OMP_NUM_THREADS"], "3");
        assert_eq!(variables["COMM_RENDEZVOUS"], "host:1234");
    }

    #[test]
    fn only_several_workers_are_kept_from_starting_a_thread_per_cpu() {
        assert_eq!(variables(&options(2, &[]), &[])["OMP_NUM_THREADS"], "1");
        assert!(!variables(&options(1, &[]), &[]).contains_key("OMP_NUM_THREADS"));
        assert!(
            !variables(&options(2, &[]), &[("OMP_NUM_THREADS", "8")])
                .contains_key("OMP_NUM_THREADS")
        );
    }
}
