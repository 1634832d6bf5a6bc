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
//! * The descriptor is only needed until the peer has it: [`SealedMemory::into_mapping`] closes it
//!   and keeps the memory, so that edges do not use up the process's descriptors.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::{Error, ErrorKind, Result};

/// Memory of a sealed file, mapped for reading and writing; unmapped when dropped.
#[derive(Debug)]
pub struct SharedMapping {
    base: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: the mapping is plain memory without thread affinity; whoever accesses it through
// `as_ptr` is responsible for synchronisation.
unsafe impl Send for SharedMapping {}
// SAFETY: as above; `SharedMapping` itself offers no access to the contents.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    pub(super) fn new(fd: BorrowedFd<'_>, len_bytes: usize) -> Result<Self> {
        // SAFETY: a new shared mapping at an address that the kernel chooses aliases nothing.
        let address = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                len_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )
        };
        let address =
            address.map_err(|errno| refused("mapping shared memory", errno, len_bytes))?;
        let base = NonNull::new(address.cast::<u8>()).ok_or_else(|| {
            Error::new(ErrorKind::Internal, "the kernel mapped memory at address 0")
        })?;
        Ok(Self { base, len_bytes })
    }

    /// Start of the mapping, page-aligned.
    #[must_use]
    #[inline]
    pub const fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }

    /// Length of the mapping.
    #[must_use]
    #[inline]
    pub const fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Gets pages for the first `len_bytes` now instead of at their first touch.
    ///
    /// Only a hint: a kernel before Linux 5.14 does not know it, and the pages come later then.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ResourceExhausted`] if there is no memory for them.
    pub fn prefault(&self, len_bytes: usize) -> Result<()> {
        match self.populate(len_bytes) {
            Err(errno @ (Errno::NOMEM | Errno::FAULT)) => {
                Err(refused("getting pages of shared memory", errno, len_bytes))
            }
            _ => Ok(()),
        }
    }

    /// Gets pages for the first `len_bytes`, if the kernel knows how.
    pub(super) fn populate(&self, len_bytes: usize) -> rustix::io::Result<()> {
        let len_bytes = len_bytes.min(self.len_bytes);
        // SAFETY: the range lies in this mapping, and populating it leaves the contents as they
        // are.
        unsafe {
            rustix::mm::madvise(
                self.base.as_ptr().cast(),
                len_bytes,
                Advice::LinuxPopulateWrite,
            )
        }
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `len_bytes` are exactly the mapping made in `new`, and nobody can use
        // it after the owner is gone.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len_bytes) };
    }
}

/// A sealed memory file with its mapping.
#[derive(Debug)]
pub struct SealedMemory {
    fd: OwnedFd,
    mapping: SharedMapping,
}

impl SealedMemory {
    /// Creates a zero-filled file of `len_bytes` and maps it. `name` shows up in `/proc`.
    ///
    /// Pages are allocated at first touch.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the file or the mapping.
    pub fn create(name: &str, len_bytes: usize) -> Result<Self> {
        let fd = create_file(name)
            .map_err(|errno| refused("creating a memory file", errno, len_bytes))?;
        rustix::fs::ftruncate(&fd, len_bytes as u64)
            .map_err(|errno| refused("sizing a memory file", errno, len_bytes))?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(|errno| refused("sealing a memory file", errno, len_bytes))?;
        let mapping = SharedMapping::new(fd.as_fd(), len_bytes)?;
        Ok(Self { fd, mapping })
    }

    /// Maps a file that a peer sent; it must be sealed and `len_bytes` long.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] if seals or size are not as agreed; a system error if the mapping
    /// is refused.
    pub fn map(fd: OwnedFd, len_bytes: usize) -> Result<Self> {
        let unfit = |what: &'static str| {
            Error::new(ErrorKind::Protocol, what).with("expected_bytes", len_bytes)
        };
        let seals = rustix::fs::fcntl_get_seals(&fd)
            .map_err(|_| unfit("a peer sent a file that is not a memory file"))?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(unfit(
                "a peer sent a memory file that is not sealed against resizing",
            ));
        }
        if seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
            return Err(unfit(
                "a peer sent a memory file that is sealed against writing",
            ));
        }
        let stat = rustix::fs::fstat(&fd)
            .map_err(|errno| Error::system("inspecting a peer's memory file", errno))?;
        if usize::try_from(stat.st_size) != Ok(len_bytes) {
            return Err(unfit("a peer sent a memory file of another size")
                .with("actual_bytes", stat.st_size));
        }
        let mapping = SharedMapping::new(fd.as_fd(), len_bytes)?;
        Ok(Self { fd, mapping })
    }

    pub(super) const fn from_parts(fd: OwnedFd, mapping: SharedMapping) -> Self {
        Self { fd, mapping }
    }

    /// Closes the file and keeps the memory.
    #[must_use]
    pub fn into_mapping(self) -> SharedMapping {
        self.mapping
    }

    /// File and memory apart.
    #[must_use]
    pub fn into_parts(self) -> (OwnedFd, SharedMapping) {
        (self.fd, self.mapping)
    }

    /// The memory.
    #[must_use]
    pub const fn mapping(&self) -> &SharedMapping {
        &self.mapping
    }

    /// Start of the mapping, page-aligned.
    #[must_use]
    pub const fn as_ptr(&self) -> NonNull<u8> {
        self.mapping.as_ptr()
    }

    /// Length of file and mapping.
    #[must_use]
    pub const fn len_bytes(&self) -> usize {
        self.mapping.len_bytes()
    }

    /// The file, to be sent to a peer.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A memory file that can be sealed and, where the kernel knows how, never be executed: hosts with
/// `vm.memfd_noexec=2` allow no other.
pub(super) fn create_file(name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Kernels before 6.3 do not know NOEXEC_SEAL.
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        created => created,
    }
}

/// What the kernel refused, and what its user can do about it.
pub(super) fn refused(what: &str, errno: Errno, len_bytes: usize) -> Error {
    let advice = match errno {
        Errno::NOSYS | Errno::PERM | Errno::ACCESS => {
            "the host forbids it; allow memfd_create, ftruncate, fcntl and mmap in the container's \
             seccomp profile, or disable shared memory with COMM_SHM_DISABLE=1"
        }
        Errno::NOMEM | Errno::NOSPC | Errno::FAULT => {
            "there is not enough memory; raise the memory limit of the cgroup or container \
             (shared memory counts towards it) or `ulimit -v`, or ask for less"
        }
        Errno::MFILE | Errno::NFILE => "too many files are open; raise `ulimit -n`",
        _ => return Error::system(what.to_owned(), errno).with("bytes", len_bytes),
    };
    Error::system(format!("{what} failed: {advice}"), errno).with("bytes", len_bytes)
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

    #[test]
    fn a_peers_file_that_cannot_be_written_is_refused() {
        let file = rustix::fs::memfd_create("sealed", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, 4096).unwrap();
        rustix::fs::fcntl_add_seals(
            &file,
            SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE,
        )
        .unwrap();
        assert_eq!(
            SealedMemory::map(file, 4096).unwrap_err().kind(),
            ErrorKind::Protocol
        );
    }

    #[test]
    fn the_memory_outlives_its_descriptor_and_is_zero() {
        let memory = SealedMemory::create("test", 3 * 4096).unwrap();
        memory.mapping().prefault(4096).unwrap();
        let mapping = memory.into_mapping();
        mapping.prefault(usize::MAX).unwrap();
        // SAFETY: the last byte of the mapping.
        let last = unsafe { mapping.as_ptr().add(3 * 4096 - 1) };
        // SAFETY: in bounds, and nobody else accesses the byte.
        assert_eq!(unsafe { last.read_volatile() }, 0);
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let too_much = SealedMemory::create("test", 1 << 62).unwrap_err();
        assert_eq!(too_much.kind(), ErrorKind::ResourceExhausted);
        assert!(too_much.message().contains("memory limit"), "{too_much}");
        let forbidden = refused("creating a memory file", Errno::PERM, 1);
        assert!(
            forbidden.message().contains("COMM_SHM_DISABLE"),
            "{forbidden}"
        );
        let files = refused("creating a memory file", Errno::MFILE, 1);
        assert!(files.message().contains("ulimit -n"), "{files}");
    }
}
