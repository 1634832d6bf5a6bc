//! Shared memory between ranks of one host.
//!
//! ```
//! use comm_core::doorbell::Doorbells;
//! use comm_core::{ConnectionIndex, Edge, HostId, PeerInfo, ProcessId, Transport, Verdict};
//! use comm_transport_shm::ShmTransport;
//!
//! let transport = ShmTransport::new(Doorbells::shared()?);
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
//! * One directed edge is one [step FIFO](comm_core::fifo) in a sealed memory file of its own.
//!   The receiving end makes and sizes it; the sending end gets it as a file descriptor and checks
//!   seals and size before it maps it.
//! * Each end rings the [doorbells](comm_core::doorbell) of the other end's process, which travel
//!   as a second descriptor and are mapped once per process, however many edges use them.
//! * Nothing has a name: not in `/dev/shm`, not elsewhere. When the last process of an edge ends,
//!   in whatever way, the kernel frees its memory.
//! * A connected edge holds no descriptor, only memory: one page, and the slots as far as they
//!   were used.
//! * Ranks that are threads of one process are served in the same way.
//! * If asked to ([`ShmTransport::pulling`]), a receiving end reads what a sender offers straight from
//!   its process (module `pull`), and never writes there.
//! * Every receiving end takes offers of memory that its process has mapped of the sender's, which is the
//!   runtime's business.
//! * A peer can write wrong contents, which is an error or a wrong payload here, and nothing worse.
//!
//! With the Cargo feature `named` there is `ShmTransport::named`, which uses named segments instead:
//! a weaker promise, for processes that cannot hand each other descriptors.
//!
//! # Layout of a handle
//!
//! 48 bytes, little-endian, checked field by field (module `handle`), from the sending end 28 more for
//! pulling (module `pull`), and descriptors: from the receiving end its memory file and its doorbells,
//! from the sending end its doorbells.

#![cfg(target_os = "linux")]

mod edge;
mod facts;
mod handle;
#[cfg(feature = "named")]
mod named;
mod peers;
mod pull;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use comm_core::doorbell::Doorbells;
use comm_core::{
    Capabilities, Edge, Error, ErrorKind, RecvSetup, Result, SendSetup, Transport, Verdict,
    async_trait,
};

use self::edge::{ShmRecvSetup, ShmSendSetup};
#[cfg(feature = "named")]
pub use self::named::{NamedDoorbells, sweep};

/// The name under which users select the transport.
pub const NAME: &str = "shm";

/// The shared memory transport; see the [crate documentation](crate) for the contract.
#[derive(Debug)]
pub struct ShmTransport {
    state: State,
    pulls: bool,
}

#[derive(Debug)]
enum State {
    Enabled(Arc<Doorbells>),
    #[cfg(feature = "named")]
    Named {
        doorbells: NamedDoorbells,
        /// Goes into the names of segments.
        job: String,
    },
    Disabled(String),
}

impl ShmTransport {
    /// The transport of a process (or rank) whose threads wait at `doorbells`.
    ///
    /// The doorbells must be [`Doorbells::shared`]; [`Transport::facts`] fails otherwise.
    #[must_use]
    pub const fn new(doorbells: Arc<Doorbells>) -> Self {
        Self {
            state: State::Enabled(doorbells),
            pulls: false,
        }
    }

    /// The transport of a process whose threads wait at `doorbells`, over named segments; `job` goes
    /// into their names.
    ///
    /// The promise is weaker than that of [`ShmTransport::new`]: named memory cannot be sealed, so a
    /// process of the same user that shrinks a segment ends those that use it; it counts towards the
    /// size of `/dev/shm`; and a killed process leaves names behind, until a [`sweep`].
    #[cfg(feature = "named")]
    #[must_use]
    pub fn named(doorbells: NamedDoorbells, job: impl Into<String>) -> Self {
        Self {
            state: State::Named {
                doorbells,
                job: job.into(),
            },
            pulls: false,
        }
    }

    /// Whether receiving ends read what senders offer straight from their processes, where the kernel
    /// allows it; not by default.
    ///
    /// One copy by the kernel instead of two through slots. Which is faster depends on the processor:
    /// see [`ShmTransport::pulls_by_default`].
    #[must_use]
    pub const fn pulling(mut self, pulls: bool) -> Self {
        self.pulls = pulls;
        self
    }

    /// Whether pulling was measured to be faster on processors like this one.
    ///
    /// It is where each core has a large second-level cache of its own and a line of another core's is
    /// slow to come by (Intel from Skylake-SP on): a slot costs that price for every write and every
    /// read, an offer for the read alone. It is not where the cores share a fast cache (AMD Zen), in
    /// which slots stay.
    #[must_use]
    pub fn pulls_by_default() -> bool {
        pull::is_faster_here()
    }

    /// A transport that serves no edge because of `reason`, which users get to see.
    ///
    /// For `COMM_SHM_DISABLE=1`, or when the kernel refused the process's shared doorbells.
    #[must_use]
    pub fn disabled(reason: impl Into<String>) -> Self {
        Self {
            state: State::Disabled(reason.into()),
            pulls: false,
        }
    }

    fn doorbells(&self) -> Result<&Arc<Doorbells>> {
        let reason = match &self.state {
            State::Enabled(doorbells) if doorbells.fd().is_some() => return Ok(doorbells),
            State::Enabled(_) => "the doorbells of this process are not in a memory file",
            #[cfg(feature = "named")]
            State::Named { .. } => "it is named",
            State::Disabled(reason) => reason,
        };
        Err(Error::new(
            ErrorKind::Unavailable,
            format!("shared memory is not used: {reason}"),
        ))
    }
}

#[async_trait]
impl Transport for ShmTransport {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.same_process = true;
        capabilities.same_host = true;
        capabilities.maps_memory = !matches!(self.state, State::Disabled(_));
        capabilities.passes_fds = matches!(self.state, State::Enabled(_));
        capabilities
    }

    fn facts(&self) -> Result<Bytes> {
        #[cfg(feature = "named")]
        if let State::Named { .. } = &self.state {
            return Ok(facts::Facts::of_this_process(Some(named::device()?))?.encode());
        }
        self.doorbells()?;
        Ok(facts::Facts::of_this_process(None)?.encode())
    }

    fn can_connect(&self, edge: &Edge<'_>) -> Verdict {
        facts::verdict(edge)
    }

    async fn setup_send(&self, edge: &Edge<'_>, _deadline: Instant) -> Result<Box<dyn SendSetup>> {
        #[cfg(feature = "named")]
        if let State::Named { doorbells, .. } = &self.state {
            return Ok(Box::new(named::NamedSendSetup::new(edge, doorbells)?));
        }
        Ok(Box::new(ShmSendSetup::new(edge, self.doorbells()?)?))
    }

    async fn setup_recv(&self, edge: &Edge<'_>, _deadline: Instant) -> Result<Box<dyn RecvSetup>> {
        #[cfg(feature = "named")]
        if let State::Named { doorbells, job } = &self.state {
            return Ok(Box::new(named::NamedRecvSetup::new(edge, doorbells, job)?));
        }
        Ok(Box::new(ShmRecvSetup::new(
            edge,
            self.doorbells()?,
            self.pulls,
        )?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disabled_transport_has_no_facts_and_says_why() {
        let disabled = ShmTransport::disabled("COMM_SHM_DISABLE=1");
        let error = disabled.facts().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains("COMM_SHM_DISABLE=1"), "{error}");
    }

    #[test]
    fn doorbells_that_no_peer_can_ring_disable_the_transport() {
        let error = ShmTransport::new(Doorbells::local()).facts().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
}
