//! Memory mapped twice: once for nobody, once for the device.

use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};

use comm_core::{Error, ErrorKind, Result};
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// Zero-filled memory with an address that faults and one that works.
pub(super) struct Twofold {
    forbidden: Mapping,
    alias: Mapping,
}

struct Mapping {
    address: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: mappings have no thread affinity.
unsafe impl Send for Mapping {}
// SAFETY: shared references offer no access.
unsafe impl Sync for Mapping {}

impl Twofold {
    pub(super) fn new(len_bytes: usize) -> Result<Self> {
        // An empty mapping is refused by the kernel; one page shows misuse just as well.
        let len_bytes = len_bytes.max(1);
        let fd = rustix::fs::memfd_create("comm-mock-device", MemfdFlags::CLOEXEC)
            .map_err(|errno| Error::system("creating memory of the mock device", errno))?;
        rustix::fs::ftruncate(&fd, len_bytes as u64).map_err(|errno| too_much(errno, len_bytes))?;
        Ok(Self {
            forbidden: Mapping::new(&fd, len_bytes, ProtFlags::empty())?,
            alias: Mapping::new(&fd, len_bytes, ProtFlags::READ | ProtFlags::WRITE)?,
        })
    }

    /// The address that users see. Any access through it faults.
    pub(super) const fn forbidden(&self) -> NonNull<u8> {
        self.forbidden.address
    }

    /// The address at which the device reaches the same bytes.
    pub(super) const fn alias(&self) -> NonNull<u8> {
        self.alias.address
    }
}

impl Mapping {
    fn new(fd: &OwnedFd, len_bytes: usize, protection: ProtFlags) -> Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses aliases no Rust object.
        let address = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                len_bytes,
                protection,
                MapFlags::SHARED,
                fd,
                0,
            )
        };
        let address = address.map_err(|errno| too_much(errno, len_bytes))?;
        let address = NonNull::new(address.cast()).ok_or_else(|| {
            Error::new(ErrorKind::Internal, "the kernel mapped memory at address 0")
        })?;
        Ok(Self { address, len_bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`, which nobody can use after its owner.
        let _ = unsafe { rustix::mm::munmap(self.address.as_ptr().cast(), self.len_bytes) };
    }
}

/// The kernel gives no memory of this length.
fn too_much(errno: rustix::io::Errno, len_bytes: usize) -> Error {
    Error::new(
        ErrorKind::ResourceExhausted,
        "the mock device has no memory of this length",
    )
    .with("bytes", len_bytes)
    .with("reason", errno)
}
