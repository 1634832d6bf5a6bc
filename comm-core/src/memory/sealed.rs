//! Anonymous memory files that can be handed to another process and cannot change their size.
//!
//! # Contract
//!
//! * The file has no name in any file system; it vanishes with the last process that holds it,
//!   also when that process is killed. Its pages are charged to the memory cgroup, not to
//!   `/dev/shm`.
//! * The file is sealed against shrinking, growing and further seals before anybody else gets it,
//!   so no access through a mapping can fault.
//! * A file that came from a peer is checked (seals, then size) before it is mapped.
//! * Peers can write to the contents at any time: only atomics may be referenced, everything else
//!   is copied through raw pointers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::{Error, ErrorKind, Result};

/// A mapped, sealed memory file.
#[derive(Debug)]
pub struct SealedMemory {
    fd: OwnedFd,
    base: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: the mapping is plain memory without thread affinity; whoever accesses it through
// `as_ptr` is responsible for synchronisation.
unsafe impl Send for SealedMemory {}
// SAFETY: as above; `SealedMemory` itself offers no access to the contents.
unsafe impl Sync for SealedMemory {}

impl SealedMemory {
    /// Creates a zero-filled file of `len_bytes` and maps it. `name` shows up in `/proc`.
    ///
    /// Pages are allocated at first touch.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the file or the mapping.
    pub fn create(name: &str, len_bytes: usize) -> Result<Self> {
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(|errno| Error::system("creating a memory file for shared memory", errno))?;
        rustix::fs::ftruncate(&fd, len_bytes as u64).map_err(|errno| {
            Error::system("sizing a memory file", errno).with("bytes", len_bytes)
        })?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(|errno| Error::system("sealing a memory file", errno))?;
        Self::map_checked(fd, len_bytes)
    }

    /// Maps a file that a peer sent; it must be sealed and `len_bytes` long.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] if seals or size are not as agreed; a system error if the mapping
    /// is refused.
    pub fn map(fd: OwnedFd, len_bytes: usize) -> Result<Self> {
        let refused = |what: &'static str| {
            Error::new(ErrorKind::Protocol, what).with("expected_bytes", len_bytes)
        };
        let seals = rustix::fs::fcntl_get_seals(&fd)
            .map_err(|_| refused("a peer sent a file that is not a memory file"))?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(refused(
                "a peer sent a memory file that is not sealed against resizing",
            ));
        }
        let stat = rustix::fs::fstat(&fd)
            .map_err(|errno| Error::system("inspecting a peer's memory file", errno))?;
        if usize::try_from(stat.st_size) != Ok(len_bytes) {
            return Err(refused("a peer sent a memory file of another size")
                .with("actual_bytes", stat.st_size));
        }
        Self::map_checked(fd, len_bytes)
    }

    fn map_checked(fd: OwnedFd, len_bytes: usize) -> Result<Self> {
        // SAFETY: a new shared mapping at an address that the kernel chooses aliases nothing.
        let address = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                len_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &fd,
                0,
            )
        };
        let address = address.map_err(|errno| {
            Error::system("mapping shared memory", errno).with("bytes", len_bytes)
        })?;
        let base = NonNull::new(address.cast::<u8>()).ok_or_else(|| {
            Error::new(ErrorKind::Internal, "the kernel mapped memory at address 0")
        })?;
        Ok(Self {
            fd,
            base,
            len_bytes,
        })
    }

    /// Start of the mapping, page-aligned.
    #[must_use]
    pub const fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }

    /// Length of file and mapping.
    #[must_use]
    pub const fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// The file, to be sent to a peer.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for SealedMemory {
    fn drop(&mut self) {
        // SAFETY: `base` and `len_bytes` are exactly the mapping made in `map_checked`, and nobody
        // can use it after the owner is gone.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_file_cannot_change_its_size() {
        let memory = SealedMemory::create("test", 8192).unwrap();
        assert!(rustix::fs::ftruncate(memory.fd(), 4096).is_err());
        assert!(rustix::fs::ftruncate(memory.fd(), 16384).is_err());
    }

    #[test]
    fn what_one_mapping_writes_the_other_reads() {
        let memory = SealedMemory::create("test", 4096).unwrap();
        let other = SealedMemory::map(memory.fd().try_clone_to_owned().unwrap(), 4096).unwrap();
        assert_ne!(memory.as_ptr(), other.as_ptr());
        // SAFETY: the mapping is 4096 bytes long.
        let written = unsafe { memory.as_ptr().add(17) };
        // SAFETY: in bounds, and nobody else accesses the byte at the same time.
        unsafe { written.write_volatile(42) };
        // SAFETY: the mapping is 4096 bytes long.
        let read = unsafe { other.as_ptr().add(17) };
        // SAFETY: in bounds, and nobody else accesses the byte at the same time.
        assert_eq!(unsafe { read.read_volatile() }, 42);
    }

    #[test]
    fn a_peers_file_is_refused_unless_sealed_and_of_the_agreed_size() {
        let memory = SealedMemory::create("test", 4096).unwrap();
        let fd = memory.fd().try_clone_to_owned().unwrap();
        assert_eq!(
            SealedMemory::map(fd, 8192).unwrap_err().kind(),
            ErrorKind::Protocol
        );

        let open = rustix::fs::memfd_create("open", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&open, 4096).unwrap();
        assert_eq!(
            SealedMemory::map(open, 4096).unwrap_err().kind(),
            ErrorKind::Protocol
        );

        let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        assert_eq!(
            SealedMemory::map(file, 4096).unwrap_err().kind(),
            ErrorKind::Protocol
        );
    }
}
