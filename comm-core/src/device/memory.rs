//! A piece of memory and its owner.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use super::MemoryKind;
use crate::{Error, ErrorKind, Result};

/// A piece of memory of any [`MemoryKind`], kept alive by its clones.
///
/// The type bounds and owns; it does not synchronise. Whoever accesses the contents does so
/// through [`DeviceMemory::as_ptr`], in `unsafe` code of its own, and must know that nobody else
/// (another thread, a device, a network) does at the same time.
#[derive(Clone)]
pub struct DeviceMemory {
    address: NonNull<u8>,
    len_bytes: usize,
    kind: MemoryKind,
    owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: an address, a length and a shared owner that is itself `Send + Sync`; accesses to the
// contents are the accessor's responsibility.
unsafe impl Send for DeviceMemory {}
// SAFETY: as above; the type itself offers no access to the contents.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    /// Describes memory that belongs to `owner`.
    ///
    /// # Safety
    ///
    /// While `owner` lives, `len_bytes` bytes from `address` are one allocated object, valid for
    /// reads and writes by whoever can reach memory of this kind, and `owner` does not access
    /// them by itself.
    #[must_use]
    pub unsafe fn from_raw_parts(
        address: NonNull<u8>,
        len_bytes: usize,
        kind: MemoryKind,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self {
            address,
            len_bytes,
            kind,
            owner,
        }
    }

    /// Where the memory starts, as the device or the CPU sees it.
    ///
    /// Following the pointer on the CPU is allowed only if [`DeviceMemory::kind`] is a host kind.
    #[must_use]
    pub const fn as_ptr(&self) -> NonNull<u8> {
        self.address
    }

    /// Length of the memory.
    #[must_use]
    pub const fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Where the memory lies.
    #[must_use]
    pub const fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// A part of the memory, which keeps the whole alive.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the part is not inside.
    pub fn slice(&self, offset_bytes: usize, len_bytes: usize) -> Result<Self> {
        check_range(offset_bytes, len_bytes, self.len_bytes)?;
        // SAFETY: the offset was checked to be inside the allocated object or at its end.
        let address = unsafe { self.address.add(offset_bytes) };
        Ok(Self {
            address,
            len_bytes,
            kind: self.kind,
            owner: Arc::clone(&self.owner),
        })
    }
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceMemory")
            .field("address", &self.address)
            .field("len_bytes", &self.len_bytes)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// Whether `offset..offset + len` lies in `0..whole`; the error names all three numbers.
pub(crate) fn check_range(offset_bytes: usize, len_bytes: usize, whole_bytes: usize) -> Result<()> {
    if offset_bytes
        .checked_add(len_bytes)
        .is_some_and(|end| end <= whole_bytes)
    {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidArgument,
        "the part is not inside the memory",
    )
    .with("offset_bytes", offset_bytes)
    .with("len_bytes", len_bytes)
    .with("memory_bytes", whole_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Device, HostDevice};

    #[test]
    fn a_part_must_be_inside() {
        let memory = HostDevice.alloc(100).unwrap();
        assert_eq!(memory.slice(40, 60).unwrap().len_bytes(), 60);
        assert_eq!(memory.slice(100, 0).unwrap().len_bytes(), 0);
        for (offset, len) in [(40, 61), (101, 0), (usize::MAX, 2), (1, usize::MAX)] {
            let error = memory.slice(offset, len).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{offset} + {len}");
        }
    }

    #[test]
    fn a_part_keeps_the_owner_alive() {
        let owner = Arc::new(());
        // SAFETY: no byte is ever accessed, so any address is valid.
        let memory = unsafe {
            DeviceMemory::from_raw_parts(NonNull::dangling(), 0, MemoryKind::Host, owner.clone())
        };
        let part = memory.slice(0, 0).unwrap();
        drop(memory);
        assert_eq!(Arc::strong_count(&owner), 2);
        drop(part);
        assert_eq!(Arc::strong_count(&owner), 1);
    }
}
