//! [`UdsBackend`].

use std::sync::Arc;

use comm_core::net::{
    MemoryRegion, NetBackend, NetConnect, NetListener, NetProperties, Reach, Region, WakeSource,
};
use comm_core::{Armed, Error, ErrorKind, Result};

use crate::listener::{UdsConnect, UdsListener};
use crate::memory;
use crate::poller::Poller;
use crate::requests::MAX_OUTSTANDING;

/// The name of the network, and the one to register it under.
pub const NAME: &str = "uds";

/// A network of Unix-domain sockets; see the [crate documentation](crate) for the contract.
#[derive(Debug)]
pub struct UdsBackend {
    poller: Arc<Poller>,
    devices: [NetProperties; 1],
}

impl UdsBackend {
    /// A network without connections.
    ///
    /// # Errors
    ///
    /// What the system says if it gives no more descriptors.
    pub fn new() -> Result<Self> {
        let mut device = NetProperties::new(NAME, Reach::Host);
        device.max_outstanding = MAX_OUTSTANDING;
        device.cheap_registration = true;
        device.cancels_at_once = true;
        device.inline_progress = true;
        Ok(Self {
            poller: Arc::new(Poller::new()?),
            devices: [device],
        })
    }

    fn check_device(&self, device: usize) -> Result<()> {
        if device < self.devices.len() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InvalidArgument,
            "the Unix-socket network has one device, number 0",
        )
        .with("device", device))
    }
}

// SAFETY: no memory is touched here; the ends keep the promise.
unsafe impl NetBackend for UdsBackend {
    fn name(&self) -> &str {
        NAME
    }

    fn devices(&self) -> &[NetProperties] {
        &self.devices
    }

    fn listen(&self, device: usize) -> Result<Box<dyn NetListener>> {
        self.check_device(device)?;
        Ok(Box::new(UdsListener::new(&self.poller)?))
    }

    fn connect(&self, device: usize, handle: &[u8]) -> Result<Box<dyn NetConnect>> {
        self.check_device(device)?;
        Ok(Box::new(UdsConnect::new(&self.poller, handle)?))
    }

    fn register(&self, device: usize, region: Region) -> Result<MemoryRegion> {
        self.check_device(device)?;
        memory::register(&self.poller, region)
    }

    fn progress(&self) -> Result<bool> {
        self.poller.progress()
    }

    fn wake_source(&self) -> WakeSource<'_> {
        WakeSource::Fd(self.poller.fd())
    }

    fn arm(&self) -> Result<Armed> {
        // Whoever found a socket wanting has asked for a report already.
        Ok(Armed::WillRing)
    }
}
