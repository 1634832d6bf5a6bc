//! [`VerbsBackend`].

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use comm_core::net::{
    MemoryRegion, NetBackend, NetConnect, NetListener, NetProperties, Region, WakeSource,
};
use comm_core::{Armed, Result};

use super::dial::VerbsConnect;
use super::listener::VerbsListener;
use super::options::VerbsOptions;
use super::shared::{Memory, Shared};

/// The name of the network.
const NAME: &str = "verbs";

/// A [`NetBackend`] over RDMA; see the [module documentation](super).
pub struct VerbsBackend {
    shared: Arc<Shared>,
    properties: Vec<NetProperties>,
}

impl VerbsBackend {
    /// Opens the devices that the options allow.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`](comm_core::ErrorKind::Unavailable) if the library is missing, the
    /// kernel has no RDMA support, or no device has an active port; the message says which.
    pub fn new(options: VerbsOptions) -> Result<Self> {
        let shared = Shared::new(options)?;
        let properties = shared.devices.iter();
        let properties = properties.map(|device| device.properties.clone()).collect();
        Ok(Self { shared, properties })
    }
}

impl fmt::Debug for VerbsBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.properties.iter().map(|device| &device.name);
        f.debug_struct("VerbsBackend")
            .field("devices", &names.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

// SAFETY: no memory is touched here; the ends keep the promise.
unsafe impl NetBackend for VerbsBackend {
    fn name(&self) -> &str {
        NAME
    }

    fn devices(&self) -> &[NetProperties] {
        &self.properties
    }

    fn listen(&self, device: usize) -> Result<Box<dyn NetListener>> {
        Ok(Box::new(VerbsListener::new(&self.shared, device)?))
    }

    fn connect(&self, device: usize, handle: &[u8]) -> Result<Box<dyn NetConnect>> {
        Ok(Box::new(VerbsConnect::new(&self.shared, device, handle)?))
    }

    fn register(&self, device: usize, region: Region) -> Result<MemoryRegion> {
        Memory::register(self.shared.device(device)?, region)
    }

    fn progress(&self) -> Result<bool> {
        self.shared.progress()
    }

    fn wake_source(&self) -> WakeSource<'_> {
        WakeSource::Fd(self.shared.event_set())
    }

    fn arm(&self) -> Result<Armed> {
        self.shared.arm()
    }

    fn window(&self, region: &MemoryRegion) -> Result<Bytes> {
        Memory::open_window(region, &self.shared)
    }
}
