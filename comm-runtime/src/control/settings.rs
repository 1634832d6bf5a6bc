//! The control plane's settings from the environment.
//!
//! # Contract
//!
//! * Only variables that are set change anything, and one that is set to nothing counts as not set;
//!   a value that does not parse is an error that names the variable.
//! * Where NCCL has the same knob its variable is the fallback, so that jobs that were set up for
//!   it keep working.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

use comm_core::{Error, ErrorKind, Rank, Result};

use super::interfaces::InterfaceFilter;
use super::join::DEFAULT_JOIN_TIMEOUT;
use super::listener::Ports;
use super::liveness::Heartbeat;
use super::process::{ListenScope, ProcessOptions};
use super::rendezvous::Visitor;
use super::secret::JobSecret;

/// A year. More cannot be added to the current time on every system.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(365 * 86_400);

const HEARTBEAT: &str = "COMM_HEARTBEAT_TIMEOUT_SECONDS";

/// The settings of the control plane.
///
/// ```
/// use comm_runtime::control::ControlSettings;
///
/// let settings = ControlSettings::detect(&|name| match name {
///     "COMM_INIT_TIMEOUT_SECONDS" => Some("7.5".to_owned()),
///     _ => None,
/// })?;
/// assert_eq!(settings.join_timeout.as_secs_f64(), 7.5);
/// # Ok::<(), comm_core::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ControlSettings {
    /// The job secret (`COMM_SECRET`, or the content of the file `COMM_SECRET_FILE`).
    pub secret: Option<JobSecret>,
    /// Connections between hosts are allowed without a secret (`COMM_INSECURE`).
    pub insecure: bool,
    /// The ports to listen on (`COMM_PORT` or `COMM_PORT_RANGE`).
    pub ports: Ports,
    /// The interfaces to use (`COMM_SOCKET_IFNAME`, `NCCL_SOCKET_IFNAME`).
    pub interfaces: Option<InterfaceFilter>,
    /// The identity of the host (`COMM_HOSTID`, `NCCL_HOSTID`).
    pub host_id: Option<String>,
    /// What tells this job apart from others that meet at the same host and port (`COMM_JOB_ID`).
    pub job_id: Option<String>,
    /// How long a join may take (`COMM_INIT_TIMEOUT_SECONDS`).
    pub join_timeout: Duration,
    /// When a silent peer is dead (`COMM_HEARTBEAT_TIMEOUT_SECONDS`).
    pub heartbeat: Heartbeat,
}

impl Default for ControlSettings {
    /// The settings when no variable is set.
    fn default() -> Self {
        Self {
            secret: None,
            insecure: false,
            ports: Ports::default(),
            interfaces: None,
            host_id: None,
            job_id: None,
            join_timeout: DEFAULT_JOIN_TIMEOUT,
            heartbeat: Heartbeat::default(),
        }
    }
}

impl ControlSettings {
    /// The settings in an environment; `variable` looks up one variable.
    ///
    /// Reads nothing else, except the file that `COMM_SECRET_FILE` names.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfiguration`] for a value that does not parse or contradicts another
    /// one, and if the secret file cannot be read.
    pub fn detect(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let variable: &dyn Fn(&str) -> Option<String> =
            &|name| variable(name).filter(|text| !text.trim().is_empty());
        let defaults = Self::default();
        let ports = match (variable("COMM_PORT"), variable("COMM_PORT_RANGE")) {
            (Some(_), Some(_)) => {
                return Err(Error::new(
                    ErrorKind::InvalidConfiguration,
                    "COMM_PORT and COMM_PORT_RANGE are both set; keep one of them",
                ));
            }
            _ => match parsed(variable, &["COMM_PORT", "COMM_PORT_RANGE"])? {
                Some(ports) => ports,
                None => defaults.ports,
            },
        };
        let join_timeout = seconds(variable, "COMM_INIT_TIMEOUT_SECONDS")?;
        let heartbeat = match variable(HEARTBEAT).as_deref().map(str::trim) {
            // As for the time-out of operations.
            Some("none") => Some(Duration::ZERO),
            _ => seconds(variable, HEARTBEAT)?,
        };
        Ok(Self {
            secret: secret(variable)?,
            insecure: flag(variable, "COMM_INSECURE")?,
            ports,
            interfaces: parsed(variable, &["COMM_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"])?,
            host_id: variable("COMM_HOSTID").or_else(|| variable("NCCL_HOSTID")),
            job_id: variable("COMM_JOB_ID"),
            join_timeout: join_timeout.unwrap_or(defaults.join_timeout),
            heartbeat: heartbeat.map_or(defaults.heartbeat, Heartbeat::after),
        })
    }

    /// How a process with these settings listens: on loopback only, unless it has a secret or the
    /// user accepts to go without.
    #[must_use]
    pub fn process_options(&self) -> ProcessOptions {
        let scope = if self.secret.is_some() || self.insecure {
            ListenScope::Network
        } else {
            ListenScope::Loopback
        };
        ProcessOptions::new()
            .scope(scope)
            .ports(self.ports.clone())
            .interfaces(self.interfaces.clone())
            .host_id(self.host_id.clone())
    }

    /// The ports on which transports listen: the same range as the control plane's, or the one
    /// behind it if that is a single port (`COMM_PORT`).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfiguration`] if there is no port behind it.
    pub fn data_ports(&self) -> Result<Ports> {
        match &self.ports {
            Ports::Range(range) if range.start() == range.end() => {
                let next = range.start().checked_add(1).ok_or_else(|| {
                    Error::new(
                        ErrorKind::InvalidConfiguration,
                        "COMM_PORT is the control plane's port and the next one carries data; \
                         65535 has no next one",
                    )
                })?;
                Ok(Ports::Range(next..=next))
            }
            ports => Ok(ports.clone()),
        }
    }

    /// When a join that begins now has to be through: after [`join_timeout`](Self::join_timeout),
    /// and after a year at the latest.
    #[must_use]
    pub fn join_deadline(&self) -> Instant {
        Instant::now() + self.join_timeout.min(LONGEST_WAIT)
    }

    /// What `rank` brings to a rendezvous.
    #[must_use]
    pub fn visitor(&self, rank: Rank) -> Visitor {
        let mut visitor = Visitor::new(rank);
        visitor.secret.clone_from(&self.secret);
        visitor.insecure = self.insecure;
        visitor.job_id.clone_from(&self.job_id);
        visitor
    }
}

fn secret(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<JobSecret>> {
    let text = match (
        variable("COMM_SECRET"),
        variable("COMM_SECRET_FILE").map(PathBuf::from),
    ) {
        (Some(_), Some(_)) => {
            return Err(Error::new(
                ErrorKind::InvalidConfiguration,
                "COMM_SECRET and COMM_SECRET_FILE are both set; keep one of them",
            ));
        }
        (Some(text), None) => text,
        (None, Some(file)) => std::fs::read_to_string(&file).map_err(|error| {
            Error::new(
                ErrorKind::InvalidConfiguration,
                "the file that COMM_SECRET_FILE names cannot be read",
            )
            .with("file", file.display())
            .with_source(error)
        })?,
        (None, None) => return Ok(None),
    };
    JobSecret::from_text(&text).map(Some)
}

/// The value of the first of these variables that is set.
fn parsed<T: FromStr<Err = Error>>(
    variable: &dyn Fn(&str) -> Option<String>,
    names: &[&'static str],
) -> Result<Option<T>> {
    for name in names {
        if let Some(text) = variable(name) {
            return text
                .parse()
                .map(Some)
                .map_err(|error: Error| error.with("variable", name));
        }
    }
    Ok(None)
}

fn seconds(
    variable: &dyn Fn(&str) -> Option<String>,
    name: &'static str,
) -> Result<Option<Duration>> {
    let Some(text) = variable(name) else {
        return Ok(None);
    };
    let duration = text
        .trim()
        .parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration
        .filter(|duration| *duration <= LONGEST_WAIT)
        .map(Some)
        .ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidConfiguration,
                "the value is no number of seconds up to a year",
            )
            .with("variable", name)
            .with("value", text)
        })
}

/// A switch: `1`, `true`, `yes`, `on` or their opposites; off if the variable is not set.
fn flag(variable: &dyn Fn(&str) -> Option<String>, name: &'static str) -> Result<bool> {
    let Some(text) = variable(name) else {
        return Ok(false);
    };
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(Error::new(
            ErrorKind::InvalidConfiguration,
            "the value is neither 1 nor 0",
        )
        .with("variable", name)
        .with("value", text)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn detect(variables: &[(&str, &str)]) -> Result<ControlSettings> {
        ControlSettings::detect(&|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn an_empty_environment_gives_the_defaults() {
        let settings = detect(&[]).unwrap();
        assert!(settings.secret.is_none() && !settings.insecure);
        assert_eq!(settings.ports, Ports::Any);
        assert_eq!(settings.join_timeout, DEFAULT_JOIN_TIMEOUT);
        assert_eq!(settings.heartbeat, Heartbeat::default());
        assert_eq!(
            settings.process_options().listen_scope(),
            ListenScope::Loopback
        );
    }

    #[test]
    fn a_variable_that_is_set_to_nothing_counts_as_not_set() {
        for name in [
            "COMM_SECRET",
            "COMM_SECRET_FILE",
            "COMM_INSECURE",
            "COMM_PORT",
            "COMM_PORT_RANGE",
            "COMM_SOCKET_IFNAME",
            "COMM_HOSTID",
            "COMM_JOB_ID",
            "COMM_INIT_TIMEOUT_SECONDS",
            "COMM_HEARTBEAT_TIMEOUT_SECONDS",
        ] {
            let settings = detect(&[(name, " ")]).unwrap();
            assert_eq!(
                format!("{settings:?}"),
                format!("{:?}", ControlSettings::default()),
                "{name}"
            );
        }
        let settings = detect(&[("COMM_PORT", ""), ("COMM_PORT_RANGE", "9-10")]).unwrap();
        assert_eq!(settings.ports, Ports::Range(9..=10));
        let settings = detect(&[("COMM_HOSTID", ""), ("NCCL_HOSTID", "pod")]).unwrap();
        assert_eq!(settings.host_id.as_deref(), Some("pod"));
    }

    #[test]
    fn the_limit_on_silence_is_switched_off_by_zero_or_none() {
        for text in ["0", "none"] {
            let settings = detect(&[("COMM_HEARTBEAT_TIMEOUT_SECONDS", text)]).unwrap();
            assert_eq!(settings.heartbeat.timeout(), None, "{text}");
        }
    }

    #[test]
    fn every_variable_has_its_effect() {
        let settings = detect(&[
            ("COMM_SECRET", "swordfish"),
            ("COMM_INSECURE", "1"),
            ("COMM_PORT_RANGE", "20000-20100"),
            ("COMM_SOCKET_IFNAME", "=eth0"),
            ("NCCL_SOCKET_IFNAME", "ib"),
            ("COMM_HOSTID", "pod"),
            ("COMM_HEARTBEAT_TIMEOUT_SECONDS", "0"),
        ])
        .unwrap();
        assert_eq!(
            settings.secret,
            Some(JobSecret::from_text("swordfish").unwrap())
        );
        assert!(settings.insecure);
        assert_eq!(settings.ports, Ports::Range(20000..=20100));
        assert_eq!(settings.interfaces.as_ref().unwrap().to_string(), "=eth0");
        assert_eq!(settings.host_id.as_deref(), Some("pod"));
        assert_eq!(settings.heartbeat.timeout(), None);
        assert_eq!(
            settings.process_options().listen_scope(),
            ListenScope::Network
        );
    }

    #[test]
    fn data_takes_the_same_range_or_the_port_behind_a_single_one() {
        let of = |name, value| detect(&[(name, value)]).unwrap().data_ports();
        let range = of("COMM_PORT_RANGE", "20000-20100").unwrap();
        assert_eq!(range, Ports::Range(20_000..=20_100));
        let behind = of("COMM_PORT", "20000").unwrap();
        assert_eq!(behind, Ports::Range(20_001..=20_001));
        assert_eq!(detect(&[]).unwrap().data_ports().unwrap(), Ports::Any);
        let error = of("COMM_PORT", "65535").unwrap_err();
        assert!(error.message().contains("COMM_PORT"), "{error}");
    }

    #[test]
    fn the_variable_of_nccl_is_the_fallback() {
        let settings = detect(&[("NCCL_SOCKET_IFNAME", "^docker")]).unwrap();
        assert_eq!(settings.interfaces.unwrap().to_string(), "^docker");
    }

    #[test]
    fn a_secret_can_come_from_a_file() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "swordfish").unwrap();
        let path = file.path().to_str().unwrap();
        let settings = detect(&[("COMM_SECRET_FILE", path)]).unwrap();
        assert_eq!(
            settings.secret,
            Some(JobSecret::from_text("swordfish").unwrap())
        );
        let error = detect(&[("COMM_SECRET_FILE", "/nonexistent/secret")]).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/secret"), "{error}");
    }

    #[test]
    fn values_that_do_not_parse_name_their_variable() {
        for (name, value) in [
            ("COMM_INSECURE", "maybe"),
            ("COMM_PORT", "http"),
            ("COMM_PORT_RANGE", "9-1"),
            ("COMM_SOCKET_IFNAME", "^"),
            ("COMM_INIT_TIMEOUT_SECONDS", "-1"),
            ("COMM_INIT_TIMEOUT_SECONDS", "1e300"),
            ("COMM_HEARTBEAT_TIMEOUT_SECONDS", "NaN"),
        ] {
            let error = detect(&[(name, value)]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    #[test]
    fn contradicting_variables_are_an_error() {
        for (first, second) in [
            ("COMM_PORT", "COMM_PORT_RANGE"),
            ("COMM_SECRET", "COMM_SECRET_FILE"),
        ] {
            let error = detect(&[(first, "1"), (second, "1")]).unwrap_err();
            assert!(error.message().contains(first) && error.message().contains(second));
        }
    }
}
