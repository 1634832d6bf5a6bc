//! The CPU as a device.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

use super::{ALIGNMENT_BYTES, Device, DeviceEvent, DeviceMemory, MemoryKind, check_copy_lengths};
use crate::doorbell::Doorbell;
use crate::{Armed, Error, ErrorKind, Result};

/// The [`Device`] of programs without an accelerator: memory of the process, copied by the CPU.
///
/// Pinned memory is ordinary memory here: there is no device for which it had to be locked.
/// Copies have happened when [`Device::copy`] returns.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostDevice;

/// One allocation of the process's allocator.
struct Allocation {
    address: NonNull<u8>,
    layout: Layout,
}

// SAFETY: memory of the global allocator has no thread affinity.
unsafe impl Send for Allocation {}
// SAFETY: shared references offer no access.
unsafe impl Sync for Allocation {}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated in `HostDevice::alloc` with this layout, and freed once, here.
        unsafe { dealloc(self.address.as_ptr(), self.layout) }
    }
}

impl Device for HostDevice {
    fn name(&self) -> &str {
        "host"
    }

    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn alloc(&self, len_bytes: usize) -> Result<DeviceMemory> {
        // The allocator must not be asked for nothing.
        let layout = Layout::from_size_align(len_bytes.max(1), ALIGNMENT_BYTES).map_err(|_| {
            Error::new(
                ErrorKind::InvalidArgument,
                "no memory can be that large; ask for less",
            )
            .with("bytes", len_bytes)
        })?;
        // SAFETY: the layout's size is not 0.
        let address = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(|| {
            Error::new(
                ErrorKind::ResourceExhausted,
                "the process has no memory left",
            )
            .with("bytes", len_bytes)
        })?;
        let owner = Arc::new(Allocation { address, layout });
        // SAFETY: the allocation is valid until its owner is dropped, which does not access it.
        Ok(unsafe { DeviceMemory::from_raw_parts(address, len_bytes, MemoryKind::Host, owner) })
    }

    fn alloc_pinned(&self, len_bytes: usize) -> Result<DeviceMemory> {
        self.alloc(len_bytes)
    }

    unsafe fn copy(
        &self,
        target: &DeviceMemory,
        source: &DeviceMemory,
    ) -> Result<Box<dyn DeviceEvent>> {
        check_copy_lengths(target, source)?;
        if !(target.kind().is_host() && source.kind().is_host()) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the host device copies host memory only; use the device that owns the memory",
            )
            .with("source", source.kind())
            .with("target", target.kind()));
        }
        let bytes = source.len_bytes();
        // SAFETY: both are valid for this length, reachable by the CPU, and the caller promises
        // that nobody else accesses them and that they do not overlap.
        unsafe {
            source
                .as_ptr()
                .copy_to_nonoverlapping(target.as_ptr(), bytes)
        };
        Ok(Box::new(Done))
    }

    fn memory_kind_at(&self, _address: NonNull<u8>) -> Result<MemoryKind> {
        Ok(MemoryKind::Host)
    }
}

/// The event of a copy that has happened already.
#[derive(Debug)]
struct Done;

impl DeviceEvent for Done {
    fn is_done(&self) -> Result<bool> {
        Ok(true)
    }

    fn wait(&self, _deadline: Instant) -> Result<()> {
        Ok(())
    }

    fn arm(&self, _doorbell: &Doorbell) -> Result<Armed> {
        Ok(Armed::Ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d1_memory_is_zeroed_and_aligned() {
        for bytes in [0, 1, 4096, 100_000] {
            let memory = HostDevice.alloc(bytes).unwrap();
            assert_eq!(memory.as_ptr().as_ptr() as usize % ALIGNMENT_BYTES, 0);
            assert_eq!(memory.len_bytes(), bytes);
            // SAFETY: the memory is `bytes` long, zeroed, and nobody else has it.
            let contents = unsafe { std::slice::from_raw_parts(memory.as_ptr().as_ptr(), bytes) };
            assert!(contents.iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn too_much_memory_is_an_error() {
        assert_eq!(
            HostDevice.alloc(usize::MAX).unwrap_err().kind(),
            ErrorKind::InvalidArgument
        );
    }

    #[test]
    fn d2_a_copy_has_happened_once_its_event_is_done() {
        let source = HostDevice.alloc(10).unwrap();
        let target = HostDevice.alloc(10).unwrap();
        // SAFETY: 10 bytes that nobody else has.
        unsafe { source.as_ptr().write_bytes(7, 10) };
        // SAFETY: nobody else has either of the two separate allocations.
        let event = unsafe { HostDevice.copy(&target, &source) }.unwrap();
        assert!(event.is_done().unwrap());
        // SAFETY: the copy has happened and nobody else has the memory.
        let contents = unsafe { std::slice::from_raw_parts(target.as_ptr().as_ptr(), 10) };
        assert_eq!(contents, [7; 10]);
    }

    #[test]
    fn copies_of_different_lengths_or_foreign_memory_are_refused() {
        let ten = HostDevice.alloc(10).unwrap();
        let nine = ten.slice(0, 9).unwrap();
        // SAFETY: the call is refused before anything is accessed.
        let error = unsafe { HostDevice.copy(&ten, &nine) }.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);

        let kind = MemoryKind::Device { ordinal: 0 };
        // SAFETY: the bytes are never accessed.
        let foreign =
            unsafe { DeviceMemory::from_raw_parts(ten.as_ptr(), 10, kind, Arc::new(ten.clone())) };
        // SAFETY: the call is refused before anything is accessed.
        let error = unsafe { HostDevice.copy(&ten, &foreign) }.unwrap_err();
        assert!(error.to_string().contains("source=device 0"), "{error}");
    }
}
