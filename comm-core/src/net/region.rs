//! Memory that a network may touch.

use std::any::Any;
use std::fmt;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::Result;
use crate::device::{DeviceMemory, MemoryKind, check_range};

/// Memory as it is offered to [`NetBackend::register`](super::NetBackend::register).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Region {
    /// Memory of the process.
    Host(DeviceMemory),
    /// Memory of a device, which the network reaches by its address.
    Device(DeviceMemory),
    /// Memory of a device that was exported as a DMA buffer.
    DmaBuf {
        /// The memory, as the device sees it.
        memory: DeviceMemory,
        /// The exported buffer.
        fd: Arc<OwnedFd>,
        /// Where `memory` begins in the buffer.
        offset_bytes: u64,
    },
}

impl Region {
    /// The region for this memory, according to its kind.
    #[must_use]
    pub fn new(memory: DeviceMemory) -> Self {
        if memory.kind().is_host() {
            Self::Host(memory)
        } else {
            Self::Device(memory)
        }
    }

    /// The memory, whichever way the network reaches it.
    #[must_use]
    pub const fn memory(&self) -> &DeviceMemory {
        match self {
            Self::Host(memory) | Self::Device(memory) | Self::DmaBuf { memory, .. } => memory,
        }
    }
}

/// Memory that is registered with one device of one backend.
///
/// Clones share the registration; the last one ends it, and then releases the memory.
#[derive(Clone)]
pub struct MemoryRegion {
    inner: Arc<Registered>,
}

struct Registered {
    // Declared before `region`, so that the registration ends before the memory does.
    key: Box<dyn Any + Send + Sync>,
    region: Region,
}

impl MemoryRegion {
    /// A region that was registered. For backends.
    ///
    /// `key` is what the backend needs in order to use the region; dropping it ends the
    /// registration. Its type should be private to the backend: that is how the backend knows its
    /// own regions.
    #[must_use]
    pub fn new(region: Region, key: impl Any + Send + Sync) -> Self {
        Self {
            inner: Arc::new(Registered {
                key: Box::new(key),
                region,
            }),
        }
    }

    /// The backend's key, if it is of type `K`. For backends.
    #[must_use]
    pub fn key<K: Any>(&self) -> Option<&K> {
        self.inner.key.downcast_ref()
    }

    /// What was registered.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.inner.region
    }

    /// Length of the region.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.region().memory().len_bytes()
    }

    /// A part of the region, to be sent or received into.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind) if the part is not inside.
    pub fn slice(&self, offset_bytes: usize, len_bytes: usize) -> Result<MrSlice> {
        check_range(offset_bytes, len_bytes, self.len_bytes())?;
        Ok(MrSlice {
            region: self.clone(),
            offset_bytes,
            len_bytes,
        })
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryRegion").field(self.region()).finish()
    }
}

/// A part of a registered region; always inside it.
#[derive(Clone, Debug)]
pub struct MrSlice {
    region: MemoryRegion,
    offset_bytes: usize,
    len_bytes: usize,
}

impl MrSlice {
    /// The region of which this is a part.
    #[must_use]
    pub const fn region(&self) -> &MemoryRegion {
        &self.region
    }

    /// Where the part begins in the region.
    #[must_use]
    pub const fn offset_bytes(&self) -> usize {
        self.offset_bytes
    }

    /// Length of the part.
    #[must_use]
    pub const fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Where the memory lies.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.region.region().memory().kind()
    }

    /// Where the part begins, as the region's device or the CPU sees it.
    ///
    /// Following the pointer on the CPU is allowed only if [`MrSlice::kind`] is a host kind.
    #[must_use]
    pub fn as_ptr(&self) -> NonNull<u8> {
        let start = self.region.region().memory().as_ptr();
        // SAFETY: the offset was checked to be inside the region or at its end.
        unsafe { start.add(self.offset_bytes) }
    }

    /// The first `len_bytes` bytes of the part.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind) if it is shorter.
    pub fn prefix(&self, len_bytes: usize) -> Result<Self> {
        check_range(0, len_bytes, self.len_bytes)?;
        Ok(Self {
            region: self.region.clone(),
            offset_bytes: self.offset_bytes,
            len_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::ErrorKind;
    use crate::device::{Device, HostDevice};

    fn region() -> MemoryRegion {
        MemoryRegion::new(Region::new(HostDevice.alloc(100).unwrap()), 7_u8)
    }

    #[test]
    fn n9_a_slice_is_inside_its_region() {
        let region = region();
        assert_eq!(region.slice(60, 40).unwrap().len_bytes(), 40);
        for (offset, len) in [(61, 40), (101, 0), (usize::MAX, 1)] {
            let error = region.slice(offset, len).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
        let slice = region.slice(10, 20).unwrap();
        assert_eq!(slice.prefix(5).unwrap().as_ptr(), slice.as_ptr());
        assert!(slice.prefix(21).is_err());
    }

    #[test]
    fn n9_a_backend_knows_its_own_key() {
        assert_eq!(region().key::<u8>(), Some(&7));
        assert_eq!(region().key::<u16>(), None);
    }

    #[test]
    fn n12_a_slice_keeps_registration_and_memory_alive_and_they_end_in_this_order() {
        static CLOCK: AtomicU32 = AtomicU32::new(0);
        struct EndsAt(u32);
        impl Drop for EndsAt {
            fn drop(&mut self) {
                assert_eq!(CLOCK.fetch_add(1, Ordering::Relaxed), self.0);
            }
        }
        // SAFETY: no byte is ever accessed.
        let memory = unsafe {
            DeviceMemory::from_raw_parts(
                NonNull::dangling(),
                0,
                MemoryKind::Host,
                Arc::new(EndsAt(1)),
            )
        };
        let region = MemoryRegion::new(Region::new(memory), EndsAt(0));
        let slice = region.slice(0, 0).unwrap();
        drop(region);
        assert_eq!(CLOCK.load(Ordering::Relaxed), 0);
        drop(slice);
        assert_eq!(CLOCK.load(Ordering::Relaxed), 2);
    }
}
