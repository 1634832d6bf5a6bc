//! [`MockRdma`]: a network inside one process that behaves as badly as the contract allows.
//!
//! A [`MockFabric`] is a network with a seed; each [`MockRdma`] on it stands for the network card
//! of one process. A thread of the fabric plays the hardware: it waits a random time, then moves a
//! burst of messages between random connections and reports completions to the cards' queues.
//!
//! What it does that a careless transport gets wrong:
//!
//! * `test` knows nothing that `progress` has not fetched from the completion queue;
//! * the descriptor fires once for each `arm`;
//! * few requests fit, and now and then none does (`None`), with an event when one fits again;
//! * requests pin their memory, and withdrawn receives are **written to** until the connection has
//!   quiesced, which takes its time or never happens;
//! * memory of another card, or none that was registered, is refused;
//! * connections and cards break on demand, at any call ([`MockRdma::fail_call`]) or on their own.

mod ends;
mod fabric;
mod nic;
mod state;

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use comm_core::net::{
    MemoryRegion, NetBackend, NetConnect, NetListener, NetProperties, Reach, Region, WakeSource,
};
use comm_core::{Armed, Error, ErrorKind, Result};
use rustix::event::{EventfdFlags, eventfd};

use self::ends::{MockConnect, MockListener};
use self::fabric::Fabric;
use self::state::Port;

pub use self::fabric::MockFabric;

/// How a [`MockFabric`] behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MockConfig {
    /// Every random choice depends on it.
    pub seed: u64,
    /// Requests of one end that can be outstanding.
    pub max_outstanding: usize,
    /// Of how many requests one gets a spurious `None`; 0 for never.
    pub refuse_one_in: u64,
    /// The longest wait before a burst of completions.
    pub max_delay: Duration,
    /// The most completions of one burst.
    pub max_burst: u64,
    /// How long withdrawn requests keep a connection busy; `None` for ever.
    pub quiesce_delay: Option<Duration>,
    /// Devices of each card.
    pub devices: usize,
}

impl Default for MockConfig {
    fn default() -> Self {
        Self {
            seed: 1,
            max_outstanding: 4,
            refuse_one_in: 8,
            max_delay: Duration::from_micros(100),
            max_burst: 6,
            quiesce_delay: Some(Duration::from_millis(3)),
            devices: 1,
        }
    }
}

/// One card of a [`MockFabric`]; see the module's text at [`MockFabric`].
pub struct MockRdma {
    fabric: Arc<Fabric>,
    port: usize,
    event: Arc<OwnedFd>,
    devices: Vec<NetProperties>,
}

/// What makes a region one of this card's.
struct MockKey {
    fabric: Arc<Fabric>,
    port: usize,
    device: usize,
    /// Windows to be closed with the registration.
    windows: std::sync::Mutex<Vec<u64>>,
}

impl Drop for MockKey {
    fn drop(&mut self) {
        for window in fabric::lock(&self.windows).drain(..) {
            self.fabric.close_window(window);
        }
    }
}

impl MockKey {
    /// Whether the region belongs to this card and device.
    fn check(
        region: &MemoryRegion,
        fabric: &Arc<Fabric>,
        port: usize,
        device: usize,
    ) -> Result<()> {
        let known = region.key::<Self>().is_some_and(|key| {
            Arc::ptr_eq(&key.fabric, fabric) && key.port == port && key.device == device
        });
        if known {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InvalidArgument,
            "the memory is not registered with this device; register it first",
        )
        .with("device", device))
    }
}

impl MockRdma {
    fn new(fabric: Arc<Fabric>) -> Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| Error::system("creating an event descriptor", errno))?;
        let event = Arc::new(event);
        let devices = (0..fabric.config.devices)
            .map(|number| {
                let mut device = NetProperties::new(format!("mock{number}"), Reach::Process);
                device.max_outstanding = fabric.config.max_outstanding;
                device.put = true;
                device
            })
            .collect();
        let port = {
            let mut state = fabric.state();
            state.ports.push(Port::new(Arc::clone(&event)));
            state.ports.len() - 1
        };
        Ok(Self {
            fabric,
            port,
            event,
            devices,
        })
    }

    /// Makes the call with this number (counted from 1 over all calls that can fail, from now
    /// on) fail with an injected error.
    pub fn fail_call(&self, number: u64) {
        let mut state = self.fabric.state();
        let port = &mut state.ports[self.port];
        port.calls = 0;
        port.fail_call = Some(number);
    }

    /// Whether the call named with [`MockRdma::fail_call`] has come and failed.
    #[must_use]
    pub fn call_has_failed(&self) -> bool {
        self.fabric.state().ports[self.port].fail_call.is_none()
    }

    /// Calls that could fail, made since [`MockRdma::fail_call`] or the beginning.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.fabric.state().ports[self.port].calls
    }

    /// Lets the process of this card die: the peers notice, and nothing works any more here.
    pub fn kill(&self) {
        let error = Error::new(ErrorKind::System, "the process of this card was killed");
        self.fabric.fail_port(self.port, &error);
    }

    /// Breaks all connections of this card at some later moment, as a cable would.
    pub fn break_connections(&self) {
        let error = Error::new(
            ErrorKind::System,
            "transport retry counter exceeded (injected)",
        );
        self.fabric.break_links_of(self.port, &error);
    }

    /// Connections that keep memory since they were dropped before they had quiesced.
    #[must_use]
    pub fn busy_connections(&self) -> usize {
        self.fabric
            .state()
            .undead
            .iter()
            .filter(|undead| undead.port == self.port)
            .count()
    }

    fn check_device(&self, device: usize) -> Result<()> {
        if device < self.devices.len() {
            return Ok(());
        }
        Err(
            Error::new(ErrorKind::InvalidArgument, "there is no such device")
                .with("device", device)
                .with("devices", self.devices.len()),
        )
    }
}

impl fmt::Debug for MockRdma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockRdma")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

// SAFETY: N9: `MockKey::check` before every request. N10: the fabric copies between the slices of
// accepted requests only, under the lock under which completions and withdrawals are recorded.
// N11, N12: every request holds its slice until then; `undead` holds those of dropped connections.
unsafe impl NetBackend for MockRdma {
    fn name(&self) -> &str {
        "mock"
    }

    fn devices(&self) -> &[NetProperties] {
        &self.devices
    }

    fn listen(&self, device: usize) -> Result<Box<dyn NetListener>> {
        self.check_device(device)?;
        Ok(Box::new(MockListener::new(
            &self.fabric,
            self.port,
            device,
        )?))
    }

    fn connect(&self, device: usize, handle: &[u8]) -> Result<Box<dyn NetConnect>> {
        self.check_device(device)?;
        Ok(Box::new(MockConnect::new(
            &self.fabric,
            self.port,
            device,
            handle,
        )?))
    }

    fn register(&self, device: usize, region: Region) -> Result<MemoryRegion> {
        self.check_device(device)?;
        self.fabric.state().enter(self.port)?;
        if !matches!(region, Region::Host(_)) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "this device reaches host memory only; copy to host memory first",
            )
            .with("memory", region.memory().kind()));
        }
        let key = MockKey {
            fabric: Arc::clone(&self.fabric),
            port: self.port,
            device,
            windows: std::sync::Mutex::default(),
        };
        Ok(MemoryRegion::new(region, key))
    }

    fn progress(&self) -> Result<bool> {
        self.fabric.progress(self.port)
    }

    fn wake_source(&self) -> WakeSource<'_> {
        WakeSource::Fd(self.event.as_fd())
    }

    fn arm(&self) -> Result<Armed> {
        self.fabric.arm(self.port)
    }

    fn window(&self, region: &MemoryRegion) -> Result<Bytes> {
        let key = region
            .key::<MockKey>()
            .filter(|key| Arc::ptr_eq(&key.fabric, &self.fabric) && key.port == self.port);
        let Some(key) = key else {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the memory is not registered with this backend; register it first",
            ));
        };
        let window = self.fabric.open_window(region.region().memory());
        fabric::lock(&key.windows).push(window);
        Ok(Bytes::copy_from_slice(&window.to_le_bytes()))
    }
}
