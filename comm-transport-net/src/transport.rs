//! [`NetTransport`].

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use comm_core::net::{NetBackend, Reach};
use comm_core::{
    Capabilities, Device, Edge, Error, ErrorKind, HostDevice, RecvSetup, Result, SendSetup,
    Transport, Verdict, async_trait,
};

use crate::engine::Engine;
use crate::facts;
use crate::place::Place;
use crate::pool::SlotPool;
use crate::setup::{NetRecvSetup, NetSendSetup, Prepared};
use crate::stats::MemStats;

/// How long a dropped end goes on by default.
const LINGER: Duration = Duration::from_secs(5);

/// Choices of a [`NetTransport`].
#[derive(Clone, Debug)]
pub struct NetOptions {
    name: String,
    linger: Duration,
    memory: Arc<dyn Device>,
}

impl Default for NetOptions {
    /// Name `net`, 5 seconds of linger, slots in memory of the [`HostDevice`].
    fn default() -> Self {
        Self {
            name: "net".to_owned(),
            linger: LINGER,
            memory: Arc::new(HostDevice),
        }
    }
}

impl NetOptions {
    /// The name under which users select the transport. Custom backends use their own
    /// [`NetBackend::name`], so that they can stand beside the built-in network.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How long the engine goes on sending what an end had published when it was dropped, and
    /// waits for the network to let go of the end's memory.
    #[must_use]
    pub const fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// The device whose pinned host memory the slots are made of.
    #[must_use]
    pub fn memory(mut self, device: Arc<dyn Device>) -> Self {
        self.memory = device;
        self
    }
}

/// A [`Transport`] over a [`NetBackend`]; see the [crate documentation](crate) for the contract.
pub struct NetTransport {
    engine: Arc<Engine>,
    options: NetOptions,
}

impl NetTransport {
    /// A transport over a backend, of which it becomes the only driver in this process.
    ///
    /// # Errors
    ///
    /// If the system refuses the engine's thread or its descriptors.
    pub fn new(backend: Arc<dyn NetBackend>, options: NetOptions) -> Result<Self> {
        Ok(Self {
            engine: Engine::start(backend)?,
            options,
        })
    }

    /// A transport over a custom backend, under the backend's own name and with default options.
    ///
    /// # Errors
    ///
    /// As for [`NetTransport::new`].
    pub fn custom(backend: Arc<dyn NetBackend>) -> Result<Self> {
        let options = NetOptions::default().name(backend.name());
        Self::new(backend, options)
    }

    /// The memory that the transport and its edges hold.
    #[must_use]
    pub fn mem_stats(&self) -> MemStats {
        self.engine.counters.read(self.engine.closing_count())
    }

    /// What either end of an edge needs, whether it is connected or not.
    fn prepare(&self, edge: &Edge<'_>, sending: bool) -> Result<Prepared> {
        let backend = &self.engine.backend;
        let device = facts::device_for(edge.channel, backend.devices().len());
        let Some(properties) = backend.devices().get(device) else {
            return Err(
                Error::new(ErrorKind::Unavailable, "the network has no usable device")
                    .with("backend", backend.name()),
            );
        };
        let place = Place::new(edge, sending, backend.name(), &properties.name);
        let counters = Arc::clone(&self.engine.counters);
        let memory = &*self.options.memory;
        let pool = SlotPool::new(&**backend, device, memory, edge.step_bytes, counters)
            .map_err(|error| place.name(error))?;
        Ok(Prepared {
            engine: Arc::clone(&self.engine),
            pool,
            place,
            device,
            direct: properties.copies_synchronously,
            linger: self.options.linger,
        })
    }
}

impl fmt::Debug for NetTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetTransport")
            .field("name", &self.options.name)
            .field("backend", &self.engine.backend)
            .field("memory", &self.mem_stats())
            .finish()
    }
}

#[async_trait]
impl Transport for NetTransport {
    fn name(&self) -> &str {
        &self.options.name
    }

    fn capabilities(&self) -> Capabilities {
        let reach = self
            .engine
            .backend
            .devices()
            .iter()
            .map(|device| device.reach)
            .max();
        let mut capabilities = Capabilities::default();
        capabilities.same_process = reach >= Some(Reach::Process);
        capabilities.same_host = reach >= Some(Reach::Host);
        capabilities.across_hosts = reach >= Some(Reach::Network);
        capabilities
    }

    fn facts(&self) -> Result<Bytes> {
        facts::encode(&*self.engine.backend)
    }

    fn can_connect(&self, edge: &Edge<'_>) -> Verdict {
        facts::verdict(&self.options.name, edge)
    }

    async fn setup_send(&self, edge: &Edge<'_>, _deadline: Instant) -> Result<Box<dyn SendSetup>> {
        Ok(Box::new(NetSendSetup(self.prepare(edge, true)?)))
    }

    async fn setup_recv(&self, edge: &Edge<'_>, _deadline: Instant) -> Result<Box<dyn RecvSetup>> {
        let prepared = self.prepare(edge, false)?;
        let listener = self
            .engine
            .backend
            .listen(prepared.device)
            .map_err(|error| prepared.place.name(error))?;
        Ok(Box::new(NetRecvSetup { prepared, listener }))
    }
}
