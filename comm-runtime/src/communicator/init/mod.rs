//! How a communicator starts: [`CommunicatorBuilder`].

mod build;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use comm_core::doorbell::Doorbells;
use comm_core::{Rank, Rendezvous, Result, Transport};

use crate::control::rendezvous::RendezvousAddress;
use crate::control::{ControlSettings, JobSecret, Launcher, Ports};
use crate::settings::Settings;

/// What a transport is built from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TransportContext {
    /// The doorbells of this process.
    pub doorbells: Arc<Doorbells>,
    /// The addresses at which the ranks of the job reach this process, best first: loopback ones
    /// only, unless the job has a secret or goes without on purpose.
    pub addresses: Vec<IpAddr>,
    /// The ports on which listeners of a transport may bind, so that a firewall can let them
    /// through; see [`ControlSettings::data_ports`].
    pub ports: Ports,
}

/// Makes one rank's instance of a transport.
pub type TransportFactory = Box<dyn FnOnce(&TransportContext) -> Result<Arc<dyn Transport>> + Send>;

/// Where the ranks find each other.
#[derive(Debug)]
enum Meeting {
    Address(RendezvousAddress),
    Table(Arc<dyn Rendezvous>),
}

/// Starts a communicator: says who this rank is, how to find the others, and what may connect it.
#[derive(Default)]
pub struct CommunicatorBuilder {
    rank: Option<Rank>,
    world_size: Option<u32>,
    meeting: Option<Meeting>,
    launcher: Option<Launcher>,
    name: Option<String>,
    control: ControlSettings,
    doorbells: Option<Arc<Doorbells>>,
    transports: Vec<(String, TransportFactory)>,
    settings: Settings,
}

impl fmt::Debug for CommunicatorBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transports: Vec<_> = self.transports.iter().map(|(name, _)| name).collect();
        f.debug_struct("CommunicatorBuilder")
            .field("rank", &self.rank)
            .field("world_size", &self.world_size)
            .field("meeting", &self.meeting)
            .field("transports", &transports)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl CommunicatorBuilder {
    /// A builder with default settings and no transports.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets this rank's number and the number of ranks.
    #[must_use]
    pub const fn rank(mut self, rank: Rank, world_size: u32) -> Self {
        self.rank = Some(rank);
        self.world_size = Some(world_size);
        self
    }

    /// Notes who started this process, for `explain()`.
    #[must_use]
    pub const fn launcher(mut self, launcher: Launcher) -> Self {
        self.launcher = Some(launcher);
        self
    }

    /// Sets where the ranks find each other, by address.
    ///
    /// A unique id carries the job's secret, which then counts.
    #[must_use]
    pub fn rendezvous_at(mut self, address: RendezvousAddress) -> Self {
        self.meeting = Some(Meeting::Address(address));
        self
    }

    /// Sets where the ranks find each other: a table of the program's own.
    #[must_use]
    pub fn rendezvous(mut self, rendezvous: Arc<dyn Rendezvous>) -> Self {
        self.meeting = Some(Meeting::Table(rendezvous));
        self
    }

    /// Sets how this process listens, whom it lets in, and how long joining may take.
    #[must_use]
    pub fn control(mut self, control: ControlSettings) -> Self {
        self.control = control;
        self
    }

    /// Gives the process doorbells that were made elsewhere; see
    /// [`ProcessOptions::doorbells`](crate::control::ProcessOptions::doorbells).
    #[must_use]
    pub fn doorbells(mut self, doorbells: Arc<Doorbells>) -> Self {
        self.doorbells = Some(doorbells);
        self
    }

    /// Sets the secret that all processes of the job know.
    #[must_use]
    pub fn secret(mut self, secret: Option<JobSecret>) -> Self {
        self.control.secret = secret;
        self
    }

    /// Sets all settings at once; later calls on the builder win over them.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets how long one operation may take; `None` for any time.
    #[must_use]
    pub fn operation_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.settings.operation_timeout = timeout;
        let text = timeout.map_or_else(|| "none".to_owned(), |time| time.as_secs_f64().to_string());
        self.settings
            .note_builder("COMM_OPERATION_TIMEOUT_SECONDS", text);
        self
    }

    /// Names the communicator, the same on all its ranks.
    ///
    /// Communicators that meet at one rendezvous, also one after the other, need different names.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets how long the ranks may take to find each other.
    #[must_use]
    pub fn init_timeout(mut self, timeout: Duration) -> Self {
        self.control.join_timeout = timeout;
        self.settings.note_builder(
            "COMM_INIT_TIMEOUT_SECONDS",
            timeout.as_secs_f64().to_string(),
        );
        self
    }

    /// Sets the capacity of one slot of an edge; a multiple of 64, equal on all ranks.
    #[must_use]
    pub fn step_bytes(mut self, step_bytes: usize) -> Self {
        self.settings.plan.step_bytes = step_bytes;
        self.settings
            .note_builder("COMM_STEP_BYTES", step_bytes.to_string());
        self
    }

    /// Restricts the algorithms of collectives; equal on all ranks.
    #[must_use]
    pub fn algorithms(mut self, algorithms: Vec<comm_core::Algorithm>) -> Self {
        let names: Vec<_> = algorithms
            .iter()
            .map(|algorithm| algorithm.as_str())
            .collect();
        self.settings.note_builder("COMM_ALGO", names.join(","));
        self.settings.plan.algorithms = algorithms;
        self
    }

    /// Sets the number of channels of ring algorithms; equal on all ranks.
    #[must_use]
    pub fn channels(mut self, channels: u32) -> Self {
        self.settings.plan.channels = channels;
        self.settings
            .note_builder("COMM_CHANNELS", channels.to_string());
        self
    }

    /// Restricts the transports to these names, tried in this order.
    #[must_use]
    pub fn only_transports(mut self, names: Vec<String>) -> Self {
        self.settings
            .note_builder("COMM_TRANSPORTS", names.join(","));
        self.settings.transports = names;
        self
    }

    /// Registers a transport. The order of registration is the order in which transports are
    /// tried, and must be the same on all ranks.
    #[must_use]
    pub fn transport(
        mut self,
        name: impl Into<String>,
        factory: impl FnOnce(&TransportContext) -> Result<Arc<dyn Transport>> + Send + 'static,
    ) -> Self {
        self.transports.push((name.into(), Box::new(factory)));
        self
    }
}
