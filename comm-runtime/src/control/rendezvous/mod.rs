//! The built-in kinds of [`Rendezvous`].
//!
//! All of them check what they read only for its shape; that a peer belongs to the job is proved
//! by the handshake of the links. Their methods can be awaited on any executor, except for
//! [`LocalRendezvous`], whose timers are those of the control thread.

mod derived;
mod file;
mod kin;
mod local;
mod open_mpi;
mod place;
mod slurm;
mod tcp_client;
mod tcp_connection;
mod tcp_server;
mod torchrun;
mod unique_id;
mod wire;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use comm_core::{Error, ErrorKind, Rank, Rendezvous, Result, async_trait};

pub use file::FileRendezvous;
pub(crate) use kin::{Kin, open as meet_kin};
pub use local::LocalRendezvous;
pub use open_mpi::OpenMpiJob;
pub use slurm::SlurmJob;
pub use tcp_client::TcpRendezvous;
pub(crate) use tcp_server::{REFUSED_KEY, Tables};
pub use torchrun::TorchrunJob;
pub use unique_id::UniqueId;

use super::hello::JobId;
use super::process::Process;
use super::secret::{Admission, JobSecret};

/// Where the ranks of a job meet: a parsed `COMM_RENDEZVOUS`, or what a launcher says.
///
/// ```
/// use comm_runtime::control::rendezvous::RendezvousAddress;
///
/// let address: RendezvousAddress = "node1:29400".parse()?;
/// assert_eq!(address.to_string(), "node1:29400");
/// assert!("node1".parse::<RendezvousAddress>().is_err());
/// # Ok::<(), comm_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RendezvousAddress {
    /// A host and port; whichever rank can bind it serves.
    Tcp {
        /// A host name or address.
        host: String,
        /// The port.
        port: u16,
    },
    /// A directory that all ranks can reach.
    File(PathBuf),
    /// A unique id that the user passed.
    UniqueId(UniqueId),
    /// What torchrun tells its workers.
    Torchrun(TorchrunJob),
    /// What Slurm tells its tasks.
    Slurm(SlurmJob),
    /// What Open MPI tells its processes.
    OpenMpi(OpenMpiJob),
}

/// What a rank brings to a rendezvous.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Visitor {
    /// The rank.
    pub rank: Rank,
    /// The secret of the job.
    pub secret: Option<JobSecret>,
    /// Connections between hosts are allowed without a secret.
    pub insecure: bool,
    /// `COMM_JOB_ID`: tells jobs apart that meet at one host and port.
    pub job_id: Option<String>,
}

impl Visitor {
    /// A rank without a secret.
    #[must_use]
    pub fn new(rank: Rank) -> Self {
        Self {
            rank,
            ..Self::default()
        }
    }
}

impl RendezvousAddress {
    /// The rendezvous at this address, for a rank of this process. Nothing happens before its
    /// first use.
    ///
    /// # Errors
    ///
    /// None at present for a parsed address.
    pub fn open(&self, process: &Process, visitor: Visitor) -> Result<Arc<dyn Rendezvous>> {
        let Visitor {
            rank,
            secret,
            insecure,
            job_id,
        } = visitor;
        let place = match self {
            Self::Tcp { host, port } => tcp_client::place(host.clone(), *port, job_id.as_deref()),
            Self::File(directory) => return Ok(Arc::new(FileRendezvous::new(process, directory))),
            Self::UniqueId(id) => return id.rendezvous(process),
            Self::Torchrun(job) => job.place(rank),
            Self::Slurm(job) => job.place(),
            Self::OpenMpi(job) => job.place(rank),
        };
        let admission = Admission { secret, insecure };
        Ok(Arc::new(TcpRendezvous::at(
            process.core(),
            place,
            admission,
        )))
    }
}

impl FromStr for RendezvousAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        if text.starts_with("comm-id-") {
            return text.parse().map(Self::UniqueId);
        }
        let path = text.strip_prefix("file://").unwrap_or(text);
        if path.starts_with('/') {
            return Ok(Self::File(PathBuf::from(path)));
        }
        parse_host_port(text).map(|(host, port)| Self::Tcp { host, port })
    }
}

impl fmt::Display for RendezvousAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::File(directory) => write!(f, "file://{}", directory.display()),
            // The id itself contains the secret.
            Self::UniqueId(id) => f.write_str(&id.place_name()),
            Self::Torchrun(job) => write!(f, "torchrun at {}:{}", job.host, job.agent_port),
            Self::Slurm(job) => f.write_str(&job.describe()),
            Self::OpenMpi(job) => f.write_str(&job.describe()),
        }
    }
}

/// The rendezvous of a world of one rank: nobody ever asks it.
#[derive(Debug)]
pub(crate) struct Nowhere;

#[async_trait]
impl Rendezvous for Nowhere {
    fn describe(&self) -> String {
        "nowhere".to_owned()
    }

    async fn publish(&self, _: &str, _: Bytes, _: Instant) -> Result<()> {
        Err(Error::new(
            ErrorKind::Rendezvous,
            "a world of one rank has no rendezvous",
        ))
    }

    async fn lookup(&self, _: &str, _: Instant) -> Result<Bytes> {
        Err(Error::new(
            ErrorKind::Rendezvous,
            "a world of one rank has no rendezvous",
        ))
    }
}

/// Splits `host:port` or `[address]:port`.
fn parse_host_port(text: &str) -> Result<(String, u16)> {
    let invalid = || {
        Error::new(
            ErrorKind::InvalidConfiguration,
            "a rendezvous is host:port, [IPv6 address]:port, file:///directory or a unique id",
        )
        .with("value", text)
    };
    let (host, port) = text.trim().rsplit_once(':').ok_or_else(invalid)?;
    let port: u16 = port.parse().map_err(|_| invalid())?;
    let bracketed = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let host = bracketed.unwrap_or(host);
    if port == 0 || host.is_empty() || (bracketed.is_none() && host.contains([':', '/'])) {
        return Err(invalid());
    }
    Ok((host.to_owned(), port))
}

/// The identity of a job, made of what all its ranks know about it.
fn job_id(parts: &[&str]) -> JobId {
    let mut hasher = blake3::Hasher::new_derive_key("comm control plane 1 job id");
    for part in parts {
        // The lengths keep the parts apart.
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    let mut id = JobId::default();
    hasher.finalize_xof().fill(&mut id);
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_address_is_parsed_and_printed() {
        for text in [
            "node1:29400",
            "[fd00::1]:29400",
            "127.0.0.1:1",
            "file:///tmp/job",
        ] {
            let address: RendezvousAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
        let path = "/tmp/job".parse::<RendezvousAddress>().unwrap();
        assert_eq!(path, RendezvousAddress::File("/tmp/job".into()));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "node1",
            "node1:",
            "node1:0",
            ":1",
            "fd00::1:1",
            "http://a:1",
            "a:99999",
        ] {
            let error = text.parse::<RendezvousAddress>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfiguration, "{text:?}");
        }
    }

    #[test]
    fn parts_of_a_job_id_do_not_run_into_each_other() {
        assert_ne!(job_id(&["ab", "c"]), job_id(&["a", "bc"]));
    }
}
