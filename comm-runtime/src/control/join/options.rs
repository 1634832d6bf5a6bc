//! How a rank joins.

use std::sync::Arc;
use std::time::{Duration, Instant};

use comm_core::{Rank, Rendezvous};

use crate::control::liveness::Heartbeat;
use crate::control::process::ListenScope;
use crate::control::rendezvous::Nowhere;
use crate::control::secret::{Admission, JobSecret};

/// How long a join may take unless the user says otherwise (`COMM_INIT_TIMEOUT_SECONDS`).
pub const DEFAULT_JOIN_TIMEOUT: Duration = Duration::from_secs(300);

/// The name of a communicator that has none of its own.
pub(crate) const WORLD: &str = "world";

/// How a rank joins; see [`crate::control::ControlPlane::join`].
#[derive(Clone, Debug)]
pub struct JoinOptions {
    pub(super) rank: Rank,
    pub(super) world_size: u32,
    pub(super) rendezvous: Arc<dyn Rendezvous>,
    pub(super) name: String,
    pub(super) admission: Admission,
    pub(super) heartbeat: Heartbeat,
    pub(super) deadline: Instant,
}

impl JoinOptions {
    /// Joins as `rank` of `world_size` ranks that meet at `rendezvous`.
    #[must_use]
    pub fn new(rank: Rank, world_size: u32, rendezvous: Arc<dyn Rendezvous>) -> Self {
        Self {
            rank,
            world_size,
            rendezvous,
            name: WORLD.to_owned(),
            admission: Admission::default(),
            heartbeat: Heartbeat::default(),
            deadline: Instant::now() + DEFAULT_JOIN_TIMEOUT,
        }
    }

    /// Joins a world of one rank, which meets nobody.
    #[must_use]
    pub fn alone() -> Self {
        Self::new(0, 1, Arc::new(Nowhere))
    }

    /// Names the communicator. All its ranks use one name; communicators that meet at the same
    /// rendezvous, also one after the other, have different names.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the job secret.
    #[must_use]
    pub fn secret(mut self, secret: Option<JobSecret>) -> Self {
        self.admission.secret = secret;
        self
    }

    /// Allows connections between hosts without a secret (`COMM_INSECURE=1`).
    #[must_use]
    pub const fn insecure(mut self, insecure: bool) -> Self {
        self.admission.insecure = insecure;
        self
    }

    /// Sets when a silent peer counts as dead.
    #[must_use]
    pub const fn heartbeat(mut self, heartbeat: Heartbeat) -> Self {
        self.heartbeat = heartbeat;
        self
    }

    /// Sets when the join gives up.
    #[must_use]
    pub const fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = deadline;
        self
    }

    /// From which networks a process of this job has to take connections.
    #[must_use]
    pub const fn scope(&self) -> ListenScope {
        if self.admission.may_leave_host() {
            ListenScope::Network
        } else {
            ListenScope::Loopback
        }
    }
}
