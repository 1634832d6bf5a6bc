//! Memory of every kind, and what moves it: [`Device`].
//!
//! # Contract
//!
//! * A [`DeviceMemory`] is a piece of memory and whatever keeps it alive. It says of which
//!   [`MemoryKind`] it is; **only host kinds may be accessed by the CPU**. A transport or executor
//!   that meets another kind moves the bytes with [`Device::copy`] or hands the memory to a
//!   network that can read it.
//! * D1. [`Device::alloc`] and [`Device::alloc_pinned`] yield zero-filled memory, aligned to
//!   [`ALIGNMENT_BYTES`], that is freed when the last clone of its [`DeviceMemory`] is gone.
//! * D2. [`Device::copy`] never waits for the copy. It may have happened when the call returns; it
//!   has happened once the event is done, and only then may anybody look at the target or change
//!   the source. The device keeps both memories alive until then.
//! * D3. Copies are independent of each other: who needs an order waits for the event.
//! * D4. [`Device::memory_kind_at`] answers for any address; memory that no device knows is
//!   [`MemoryKind::Host`].
//! * Devices and events are shared by threads. No method but [`DeviceEvent::wait`] blocks.
//! * The device is injected by whoever assembles the library: transports see this trait alone.

mod completion;
mod host;
mod memory;

use std::fmt;
use std::ptr::NonNull;
use std::time::Instant;

pub use completion::{CopyCompleter, CopyEvent, check_copy_lengths};
pub use host::HostDevice;
pub use memory::DeviceMemory;
pub(crate) use memory::check_range;

pub use crate::memory_kind::MemoryKind;

use crate::doorbell::Doorbell;
use crate::{Armed, Result};

/// Alignment of memory that a [`Device`] allocates: a page, so that it can be registered with a
/// network without touching its neighbours.
pub const ALIGNMENT_BYTES: usize = 4096;

/// An allocator and copier of memory; see the [module documentation](self) for the contract.
pub trait Device: Send + Sync + fmt::Debug {
    /// The device's name, for messages: `host`, `cuda:0`.
    fn name(&self) -> &str;

    /// The kind of memory that [`Device::alloc`] yields.
    fn memory_kind(&self) -> MemoryKind;

    /// Allocates memory of the device.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ResourceExhausted`](crate::ErrorKind) if there is not enough,
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind) for more than `isize::MAX` bytes.
    fn alloc(&self, len_bytes: usize) -> Result<DeviceMemory>;

    /// Allocates host memory that the device reaches directly.
    ///
    /// # Errors
    ///
    /// As for [`Device::alloc`].
    fn alloc_pinned(&self, len_bytes: usize) -> Result<DeviceMemory>;

    /// Starts to copy all of `source` to `target`; one of both may be any host memory.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind) if the lengths differ or the device
    /// reaches neither; [`ErrorKind::System`](crate::ErrorKind) if the device fails.
    ///
    /// # Safety
    ///
    /// Until the event is done or has failed, nobody else writes to `source` or accesses
    /// `target`, and the two do not overlap.
    unsafe fn copy(
        &self,
        target: &DeviceMemory,
        source: &DeviceMemory,
    ) -> Result<Box<dyn DeviceEvent>>;

    /// The kind of the memory at this address.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::System`](crate::ErrorKind) if the device cannot be asked.
    fn memory_kind_at(&self, address: NonNull<u8>) -> Result<MemoryKind>;
}

/// The completion of a [`Device::copy`].
///
/// Dropping an event does not stop the copy.
pub trait DeviceEvent: Send + Sync + fmt::Debug {
    /// Whether the copy has happened.
    ///
    /// # Errors
    ///
    /// The copy's failure; every later call repeats it, and the device no longer touches the
    /// memory.
    fn is_done(&self) -> Result<bool>;

    /// Blocks until the copy has happened.
    ///
    /// # Errors
    ///
    /// The copy's failure; [`ErrorKind::Timeout`](crate::ErrorKind) if it has not happened by
    /// `deadline` (it goes on).
    fn wait(&self, deadline: Instant) -> Result<()>;

    /// Asks for `doorbell` to be rung once the copy has happened or failed.
    ///
    /// # Errors
    ///
    /// The copy's failure.
    fn arm(&self, doorbell: &Doorbell) -> Result<Armed>;
}
