//! Edges between ranks that reach each other's memory directly: threads of one process.
//!
//! ```
//! use comm_core::doorbell::Doorbells;
//! use comm_core::{ConnectionIndex, Edge, HostId, PeerInfo, ProcessId, Transport, Verdict};
//! use comm_transport_p2p::P2pTransport;
//!
//! let transport = P2pTransport::new(Doorbells::local());
//! let [mut first, mut second] =
//!     [0, 1].map(|rank| PeerInfo::new(rank, HostId([1; 16]), ProcessId([2; 16])));
//! for info in [&mut first, &mut second] {
//!     info.transports.insert(transport.name().to_owned(), transport.facts()?);
//! }
//! let edge = Edge::new(&first, &second, ConnectionIndex::Collective, 64 * 1024);
//! assert_eq!(transport.can_connect(&edge), Verdict::Yes);
//! # Ok::<(), comm_core::Error>(())
//! ```
//!
//! # Contract
//!
//! * Serves ranks with equal [`ProcessId`](comm_core::ProcessId) that also use the same copy of this
//!   crate (a process can load two). Everybody else is refused with the reason.
//! * One directed edge is one [step FIFO](comm_core::fifo) on the heap that carries
//!   [offers](comm_core::fifo::Offers), so that the receiver may work on the sender's memory in
//!   place. Only such edges do.
//! * The ends find each other in a registry of this process (module `registry`) by random tokens,
//!   which are all that the handles contain: what a peer in another process sends can name nothing
//!   here. An entry lives as long as its set-up.
//! * Needs neither descriptors nor system calls; works wherever the standard library does.
//!
//! Device memory of other processes (CUDA IPC) is meant to be reached by this transport too; it is
//! not served yet.

#![forbid(unsafe_code)]

mod edge;
mod facts;
mod handle;
mod registry;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use comm_core::doorbell::Doorbells;
use comm_core::{
    Capabilities, Edge, Error, ErrorKind, RecvSetup, Result, SendSetup, Transport, Verdict,
    async_trait,
};

use self::edge::Setup;

/// The name under which users select the transport.
pub const NAME: &str = "p2p";

/// The transport between threads of one process; see the [crate documentation](crate) for the
/// contract.
#[derive(Debug)]
pub struct P2pTransport {
    state: State,
}

#[derive(Debug)]
enum State {
    Enabled(Arc<Doorbells>),
    Disabled(String),
}

impl P2pTransport {
    /// The transport of a rank whose threads wait at `doorbells`, of whatever kind.
    #[must_use]
    pub const fn new(doorbells: Arc<Doorbells>) -> Self {
        Self {
            state: State::Enabled(doorbells),
        }
    }

    /// A transport that serves no edge because of `reason`, which users get to see.
    #[must_use]
    pub fn disabled(reason: impl Into<String>) -> Self {
        Self {
            state: State::Disabled(reason.into()),
        }
    }

    fn doorbells(&self) -> Result<&Arc<Doorbells>> {
        match &self.state {
            State::Enabled(doorbells) => Ok(doorbells),
            State::Disabled(reason) => Err(Error::new(
                ErrorKind::Unavailable,
                format!("direct access between threads is not used: {reason}"),
            )),
        }
    }
}

#[async_trait]
impl Transport for P2pTransport {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.same_process = true;
        capabilities.shares_address_space = true;
        capabilities
    }

    fn facts(&self) -> Result<Bytes> {
        self.doorbells()?;
        facts::of_this_process()
    }

    fn can_connect(&self, edge: &Edge<'_>) -> Verdict {
        facts::verdict(edge)
    }

    async fn setup_send(&self, edge: &Edge<'_>, _deadline: Instant) -> Result<Box<dyn SendSetup>> {
        Ok(Box::new(Setup::sending(edge, self.doorbells()?)?))
    }

    async fn setup_recv(&self, edge: &Edge<'_>, _deadline: Instant) -> Result<Box<dyn RecvSetup>> {
        Ok(Box::new(Setup::receiving(edge, self.doorbells()?)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disabled_transport_has_no_facts_and_says_why() {
        let disabled = P2pTransport::disabled("COMM_P2P_DISABLE=1 is set");
        let error = disabled.facts().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains("COMM_P2P_DISABLE=1"), "{error}");
    }
}
