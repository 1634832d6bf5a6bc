//! What the ranks tell each other about themselves before anything is connected.
//!
//! Every rank publishes one [`PeerInfo`]; all ranks gather all of them. Every later decision that
//! must come out equal on all ranks (graph, plan, candidates of an edge) is a pure function of
//! this table.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The number of a process or thread in a communicator, from 0 to the world size (exclusive).
pub type Rank = u32;

/// The identity of one host; equal on all processes that share a kernel.
///
/// Made of the kernel's boot id and the host name, or of `COMM_HOSTID` when that is set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostId(pub [u8; 16]);

/// The identity of one process: unique over hosts, restarts and pid namespaces.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId(pub [u8; 16]);

macro_rules! hexadecimal_debug {
    ($($name:ident),*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    )*};
}
hexadecimal_debug!(HostId, ProcessId);

/// The facts about one rank that all other ranks know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PeerInfo {
    /// The rank that these facts are about.
    pub rank: Rank,
    /// The host on which it runs.
    pub host: HostId,
    /// The host's name, for messages only.
    pub host_name: String,
    /// The process in which it runs; ranks that are threads of one process share it.
    pub process: ProcessId,
    /// The process number, for messages only.
    pub pid: u32,
    /// Version of the library, for messages.
    pub version: String,
    /// Addresses on which the control plane of the process listens, best first.
    pub control_addresses: Vec<SocketAddr>,
    /// Name of the abstract Unix socket over which the process takes file descriptors.
    pub fd_socket: Option<String>,
    /// NUMA nodes whose CPUs the process may use.
    pub numa_nodes: Vec<u32>,
    /// Number of CPUs that the process may use (affinity mask and cgroup quota).
    pub cpus: u32,
    /// Settings that must be equal on all ranks, by name.
    pub settings: BTreeMap<String, String>,
    /// What each transport of this rank says about itself ([`Transport::facts`]), by name.
    ///
    /// [`Transport::facts`]: crate::Transport::facts
    pub transports: BTreeMap<String, Bytes>,
    /// Transports that this rank was meant to have and why it cannot use them, by name.
    pub unavailable: BTreeMap<String, String>,
}

impl PeerInfo {
    /// Facts about `rank` with neither addresses nor transports.
    #[must_use]
    pub fn new(rank: Rank, host: HostId, process: ProcessId) -> Self {
        Self {
            rank,
            host,
            host_name: String::new(),
            process,
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            control_addresses: Vec::new(),
            fd_socket: None,
            numa_nodes: Vec::new(),
            cpus: 1,
            settings: BTreeMap::new(),
            transports: BTreeMap::new(),
            unavailable: BTreeMap::new(),
        }
    }

    /// The facts that the transport of this name published, if the rank has that transport.
    #[must_use]
    pub fn transport_facts(&self, name: &str) -> Option<&Bytes> {
        self.transports.get(name)
    }
}

impl fmt::Display for PeerInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "rank {} (pid {} on {})",
            self.rank, self.pid, self.host_name
        )
    }
}
