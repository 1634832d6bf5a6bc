//! [`TcpBackend`].

use std::fmt;
use std::sync::Arc;

use comm_core::net::{
    MemoryRegion, NetBackend, NetConnect, NetListener, NetProperties, Reach, Region, WakeSource,
};
use comm_core::{Armed, Error, ErrorKind, Result};

use super::acceptor;
use super::dial::TcpConnect;
use super::listener::TcpListener;
use super::memory;
use super::options::{MAX_ADDRESSES, TcpOptions};
use super::requests::CAPACITY;
use super::shared::Shared;
use super::wire::MAX_MESSAGE_BYTES;

/// The name of the network.
const NAME: &str = "tcp";

/// A [`NetBackend`] over TCP; see the [module documentation](super).
pub struct TcpBackend {
    shared: Arc<Shared>,
    devices: [NetProperties; 1],
}

impl TcpBackend {
    /// Listens on the addresses of `options`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfiguration`] for options that make no sense; what the system says if
    /// it can listen on no address.
    pub fn new(mut options: TcpOptions) -> Result<Self> {
        options.check()?;
        if options.addresses.len() > MAX_ADDRESSES {
            tracing::info!("only the first {MAX_ADDRESSES} addresses of the host are used");
            options.addresses.truncate(MAX_ADDRESSES);
        }
        let only_loopback = options
            .addresses
            .iter()
            .all(|address| address.is_loopback());
        let reach = if only_loopback {
            Reach::Host
        } else {
            Reach::Network
        };
        let mut device = NetProperties::new(NAME, reach);
        device.max_message_bytes = MAX_MESSAGE_BYTES;
        device.max_outstanding = CAPACITY;
        device.cheap_registration = true;
        device.cancels_at_once = true;
        device.inline_progress = true;
        device.copies_synchronously = true;
        let shared = Shared::new(options)?;
        acceptor::open(&shared)?;
        Ok(Self {
            shared,
            devices: [device],
        })
    }

    fn check_device(&self, device: usize) -> Result<()> {
        if device == 0 {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InvalidArgument,
            "the TCP network has one device, number 0",
        )
        .with("device", device))
    }
}

impl fmt::Debug for TcpBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpBackend")
            .field("options", &self.shared.options)
            .finish_non_exhaustive()
    }
}

impl Drop for TcpBackend {
    fn drop(&mut self) {
        acceptor::close(&self.shared);
    }
}

// SAFETY: no memory is touched here; the ends keep the promise.
unsafe impl NetBackend for TcpBackend {
    fn name(&self) -> &str {
        NAME
    }

    fn devices(&self) -> &[NetProperties] {
        &self.devices
    }

    fn listen(&self, device: usize) -> Result<Box<dyn NetListener>> {
        self.check_device(device)?;
        Ok(Box::new(TcpListener::new(&self.shared)?))
    }

    fn connect(&self, device: usize, handle: &[u8]) -> Result<Box<dyn NetConnect>> {
        self.check_device(device)?;
        Ok(Box::new(TcpConnect::new(&self.shared, handle)?))
    }

    fn register(&self, device: usize, region: Region) -> Result<MemoryRegion> {
        self.check_device(device)?;
        memory::register(self.shared.number, region)
    }

    fn progress(&self) -> Result<bool> {
        self.shared.progress()
    }

    fn wake_source(&self) -> WakeSource<'_> {
        self.shared.poller.wake_source()
    }

    fn arm(&self) -> Result<Armed> {
        self.shared.check()?;
        // Everything that is wanted was registered when it was found to be missing, and is
        // reported until it is taken.
        Ok(match self.wake_source() {
            WakeSource::Fd(_) => Armed::WillRing,
            _ => Armed::Ready,
        })
    }
}
