//! Memory files that one process writes and others only read.
//!
//! # Contract
//!
//! * The owner has all pages before anybody hears of the file: memory that cannot be had is an
//!   error, not a signal at the first touch.
//! * Before the file is passed on it is sealed against writing (`F_SEAL_FUTURE_WRITE`) and against
//!   changes of its size: whatever another process does with the descriptor, only the owner's
//!   mapping can be written, and no page of it can be taken away.
//! * Readers check both seals, the size and that no page is missing before they map it, and map it for
//!   reading: reading it never faults. The owner may write at any time, so the contents are only read
//!   through raw pointers.
//! * Neither mapping reaches a forked child.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::fs::{FallocateFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::sealed::{SealedMemory, SharedMapping, create_file, refused};
use crate::{Error, ErrorKind, Result};

/// Seals that keep the size as it is.
const SIZE: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// The unit in which the system counts what a file occupies.
const STAT_BLOCK_BYTES: u64 = 512;

impl SealedMemory {
    /// Creates a zero-filled file of `len_bytes`, gets all its pages, maps it and seals it against
    /// other writers. `name` shows up in `/proc`.
    ///
    /// Takes as long as the system needs to clear the pages, which then lie near the calling thread's
    /// CPU. The mapping is not inherited by forked children.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the file, a page or the mapping; all that was got is given back then.
    pub fn create_exclusive(name: &str, len_bytes: usize) -> Result<Self> {
        let fd = create_file(name)
            .map_err(|errno| refused("creating a memory file", errno, len_bytes))?;
        rustix::fs::ftruncate(&fd, len_bytes as u64)
            .map_err(|errno| refused("sizing a memory file", errno, len_bytes))?;
        let seal = |seals| {
            rustix::fs::fcntl_add_seals(&fd, seals)
                .map_err(|errno| refused("sealing a memory file", errno, len_bytes))
        };
        seal(SIZE)?;
        let mapping = SharedMapping::new(fd.as_fd(), len_bytes)?;
        get_all_pages(&fd, &mapping)?;
        keep_from_children(mapping.as_ptr(), len_bytes)?;
        // Kernels before 5.1 do not know the first; `is_exclusive` tells.
        match rustix::fs::fcntl_add_seals(&fd, SealFlags::FUTURE_WRITE | SealFlags::SEAL) {
            Err(Errno::INVAL) => seal(SealFlags::SEAL)?,
            sealed => {
                sealed.map_err(|errno| refused("sealing a memory file", errno, len_bytes))?;
            }
        }
        Ok(Self::from_parts(fd, mapping))
    }

    /// Whether nobody but those who have mapped the file for writing already can ever write to it.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        rustix::fs::fcntl_get_seals(self.fd())
            .is_ok_and(|seals| seals.contains(SIZE | SealFlags::FUTURE_WRITE))
    }
}

/// Gets every page of the file, or says that there is no memory for them.
fn get_all_pages(fd: &OwnedFd, mapping: &SharedMapping) -> Result<()> {
    let len_bytes = mapping.len_bytes();
    let missing = |errno| {
        // A page that cannot be had, as the kernel calls it in a mapping.
        let errno = if errno == Errno::FAULT {
            Errno::NOMEM
        } else {
            errno
        };
        refused("getting the pages of shared memory", errno, len_bytes)
    };
    match mapping.populate(len_bytes) {
        // Kernels before 5.14 do not know it: there the file gets its pages.
        Err(Errno::INVAL) => {
            rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, len_bytes as u64).map_err(missing)
        }
        populated => populated.map_err(missing),
    }
}

/// Keeps a mapping out of forked children.
fn keep_from_children(base: NonNull<u8>, len_bytes: usize) -> Result<()> {
    // SAFETY: the caller's own mapping; the advice changes what a child sees of it.
    let advised =
        unsafe { rustix::mm::madvise(base.as_ptr().cast(), len_bytes, Advice::LinuxDontFork) };
    advised.map_err(|errno| refused("keeping memory from forked children", errno, len_bytes))
}

/// Another process's [exclusive](SealedMemory::create_exclusive) memory, mapped for reading;
/// unmapped when dropped.
#[derive(Debug)]
pub struct ReadMapping {
    base: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: the mapping is plain memory without thread affinity; whoever reads it through `as_ptr` is
// responsible for synchronisation.
unsafe impl Send for ReadMapping {}
// SAFETY: as above; `ReadMapping` itself offers no access to the contents.
unsafe impl Sync for ReadMapping {}

impl ReadMapping {
    /// Maps a file that a peer sent; it must be `len_bytes` long and sealed as
    /// [`SealedMemory::create_exclusive`] does.
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
        if !seals.contains(SIZE | SealFlags::FUTURE_WRITE) {
            return Err(unfit(
                "a peer sent a memory file that is not sealed against resizing and writing",
            ));
        }
        let stat = rustix::fs::fstat(&fd)
            .map_err(|errno| Error::system("inspecting a peer's memory file", errno))?;
        if usize::try_from(stat.st_size) != Ok(len_bytes) {
            return Err(unfit("a peer sent a memory file of another size")
                .with("actual_bytes", stat.st_size));
        }
        // What is there stays, as the seals forbid to punch holes.
        let block_bytes = u64::try_from(stat.st_blocks).unwrap_or(0) * STAT_BLOCK_BYTES;
        if block_bytes < len_bytes as u64 {
            return Err(
                unfit("a peer sent a memory file without all its pages").with("bytes", block_bytes)
            );
        }
        // SAFETY: a new shared mapping at an address that the kernel chooses aliases nothing.
        let address = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                len_bytes,
                ProtFlags::READ,
                MapFlags::SHARED,
                &fd,
                0,
            )
        };
        let address =
            address.map_err(|errno| refused("mapping a peer's memory", errno, len_bytes))?;
        let base = NonNull::new(address.cast::<u8>()).ok_or_else(|| {
            Error::new(ErrorKind::Internal, "the kernel mapped memory at address 0")
        })?;
        let mapping = Self { base, len_bytes };
        keep_from_children(base, len_bytes)?;
        Ok(mapping)
    }

    /// Start of the mapping, page-aligned; valid for reading.
    #[must_use]
    #[inline]
    pub const fn as_ptr(&self) -> *const u8 {
        self.base.as_ptr().cast_const()
    }

    /// Length of the mapping.
    #[must_use]
    #[inline]
    pub const fn len_bytes(&self) -> usize {
        self.len_bytes
    }
}

impl Drop for ReadMapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `len_bytes` are exactly the mapping made in `map`, and nobody can use
        // it after the owner is gone.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fd_of(memory: &SealedMemory) -> OwnedFd {
        memory.fd().try_clone_to_owned().unwrap()
    }

    #[test]
    fn what_the_owner_writes_readers_read() {
        let memory = SealedMemory::create_exclusive("test", 10_000).unwrap();
        let reader = ReadMapping::map(fd_of(&memory), 10_000).unwrap();
        let (_, owner) = memory.into_parts();
        // SAFETY: the mapping is 10 000 bytes long.
        let last = unsafe { reader.as_ptr().add(9_999) };
        // SAFETY: in bounds, and nobody writes the byte at the same time.
        assert_eq!(unsafe { last.read_volatile() }, 0, "fresh memory is zero");
        // SAFETY: the mapping is 10 000 bytes long.
        let written = unsafe { owner.as_ptr().add(9_999) };
        // SAFETY: in bounds, and nobody else accesses the byte at the same time.
        unsafe { written.write_volatile(42) };
        // SAFETY: as above.
        assert_eq!(unsafe { last.read_volatile() }, 42);
    }

    #[test]
    fn nobody_else_can_write_resize_or_punch_holes() {
        let memory = SealedMemory::create_exclusive("test", 8192).unwrap();
        if !memory.is_exclusive() {
            eprintln!("skipped: this kernel does not seal against future writers");
            return;
        }
        let fd = fd_of(&memory);
        assert!(rustix::io::pwrite(&fd, b"x", 0).is_err());
        assert!(SharedMapping::new(fd.as_fd(), 8192).is_err());
        assert!(rustix::fs::ftruncate(&fd, 4096).is_err());
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert!(rustix::fs::fallocate(&fd, punch, 0, 4096).is_err());
        let reader = ReadMapping::map(fd, 8192).unwrap();
        // SAFETY: the reader's own mapping.
        let writable = unsafe {
            rustix::mm::mprotect(
                reader.as_ptr().cast_mut().cast(),
                8192,
                rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::WRITE,
            )
        };
        assert!(writable.is_err());
    }

    #[test]
    fn all_pages_are_there_from_the_start() {
        let memory = SealedMemory::create_exclusive("test", 64 << 12).unwrap();
        let stat = rustix::fs::fstat(memory.fd()).unwrap();
        let bytes = stat.st_blocks as u64 * STAT_BLOCK_BYTES;
        assert!(bytes >= 64 << 12, "{bytes}");
    }

    #[test]
    fn forked_children_have_neither_mapping() {
        let memory = SealedMemory::create_exclusive("test", 4096).unwrap();
        let reader = ReadMapping::map(fd_of(&memory), 4096).unwrap();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        for address in [memory.as_ptr().as_ptr().cast_const(), reader.as_ptr()] {
            let start = format!("{:x}-", address.addr());
            let mut lines = maps.lines().skip_while(|line| !line.starts_with(&start));
            let flags = lines.find(|line| line.starts_with("VmFlags:")).unwrap();
            assert!(flags.split(' ').any(|flag| flag == "dc"), "{flags}");
        }
    }

    #[test]
    fn a_file_that_its_owner_could_still_change_is_refused() {
        let refused = |fd, bytes| {
            let error = ReadMapping::map(fd, bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        };
        let memory = SealedMemory::create_exclusive("test", 4096).unwrap();
        refused(fd_of(&memory), 8192);
        let writable = SealedMemory::create("test", 4096).unwrap();
        assert!(!writable.is_exclusive());
        refused(fd_of(&writable), 4096);
        refused(std::fs::File::open("/dev/null").unwrap().into(), 4096);

        let sparse = create_file("sparse").unwrap();
        rustix::fs::ftruncate(&sparse, 64 << 12).unwrap();
        rustix::fs::fcntl_add_seals(&sparse, SIZE | SealFlags::FUTURE_WRITE).unwrap();
        refused(sparse, 64 << 12);
    }

    #[test]
    fn memory_that_cannot_be_had_is_an_error() {
        let error = SealedMemory::create_exclusive("test", 1 << 62).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceExhausted, "{error}");
    }
}
