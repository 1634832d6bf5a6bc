//! One named segment: created, opened, removed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::ptr::NonNull;

use comm_core::{Error, ErrorKind, Result};
use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::Errno;
use shared_memory::{Shmem, ShmemConf, ShmemError};

use super::names;

/// A mapped segment. Dropping it unmaps the memory, and removes the name if it was made here.
pub(crate) struct NamedSegment {
    shmem: Shmem,
    name: String,
    /// Holds the lock that says that the creator lives.
    lock: Option<File>,
    /// The process that made or opened it: a forked child removes nothing.
    process: u32,
}

// SAFETY: the mapping is plain memory without thread affinity; the rest is a name and descriptors.
unsafe impl Send for NamedSegment {}
// SAFETY: as above; the contents are reached through a raw pointer only, whose users synchronise.
unsafe impl Sync for NamedSegment {}

impl std::fmt::Debug for NamedSegment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NamedSegment")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl NamedSegment {
    /// A new segment of `len_bytes` zeros, all of whose pages exist.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ResourceExhausted`] if `/dev/shm` has no room for it; what the system says
    /// otherwise.
    pub(crate) fn create(job: &str, len_bytes: usize) -> Result<Self> {
        let name = names::fresh(job)?;
        let shmem = ShmemConf::new()
            .os_id(format!("/{name}"))
            .size(len_bytes)
            .create()
            .map_err(|error| refused("creating a named segment", &error, len_bytes))?;
        let mut segment = Self {
            shmem,
            name,
            lock: None,
            process: std::process::id(),
        };
        // From here on dropping the segment removes the name.
        let file = names::open_file(&segment.path())
            .map_err(|error| Error::system("opening a named segment", error))?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|errno| Error::system("locking a named segment", errno))?;
        allocate(&file, len_bytes)?;
        segment.lock = Some(file);
        Ok(segment)
    }

    /// The segment of this name, which a peer has made.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] if the bytes are no name of ours or the file is not as agreed;
    /// [`ErrorKind::Unavailable`] if there is no such segment here.
    pub(crate) fn open(name: &[u8], len_bytes: usize) -> Result<Self> {
        let name = names::checked(name)?;
        let path = names::path(name);
        let found = fs::symlink_metadata(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::new(
                ErrorKind::Unavailable,
                "a peer's segment is not in the /dev/shm of this process: the two have different \
                 ones, or somebody removed it",
            )
            .with("name", name),
            _ => Error::system("inspecting a peer's segment", error).with("name", name),
        })?;
        let unfit =
            |what: &'static str| Err(Error::new(ErrorKind::Protocol, what).with("name", name));
        if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() {
            return unfit("a peer named a segment that belongs to another user or is none");
        }
        if found.mode() & 0o077 != 0 {
            return unfit("a peer named a segment that other users may open");
        }
        if usize::try_from(found.len()) != Ok(len_bytes) {
            return unfit("a peer named a segment of another size");
        }
        let shmem = ShmemConf::new()
            .os_id(format!("/{name}"))
            .open()
            .map_err(|error| refused("opening a peer's segment", &error, len_bytes))?;
        // It may have been replaced since it was looked at.
        if shmem.len() != len_bytes {
            return unfit("a peer named a segment of another size");
        }
        Ok(Self {
            shmem,
            name: name.to_owned(),
            lock: None,
            process: std::process::id(),
        })
    }

    /// Removes the name, which nobody needs any more; the memory stays.
    pub(crate) fn remove_name(&self) {
        // What stays is removed by its creator, or swept once that is dead.
        let _ = fs::remove_file(self.path());
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn path(&self) -> PathBuf {
        names::path(&self.name)
    }

    /// Start of the mapping, page-aligned.
    pub(crate) fn as_ptr(&self) -> Result<NonNull<u8>> {
        NonNull::new(self.shmem.as_ptr())
            .ok_or_else(|| Error::new(ErrorKind::Internal, "the kernel mapped memory at address 0"))
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.shmem.len()
    }
}

impl Drop for NamedSegment {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            self.shmem.set_owner(false);
        }
    }
}

/// Gets all pages of the file, so that no access can meet a full file system.
fn allocate(file: &File, len_bytes: usize) -> Result<()> {
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len_bytes as u64) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => {
                return Err(no_room(
                    "getting the memory of a named segment",
                    errno,
                    len_bytes,
                ));
            }
        }
    }
}

fn refused(what: &'static str, error: &ShmemError, len_bytes: usize) -> Error {
    match error {
        ShmemError::MapCreateFailed(code)
        | ShmemError::MapOpenFailed(code)
        | ShmemError::UnknownOsError(code) => no_room(
            what,
            Errno::from_raw_os_error(code.cast_signed()),
            len_bytes,
        ),
        other => Error::new(ErrorKind::System, format!("{what}: {other}")),
    }
}

/// What the system refused, and what its user can do about it.
fn no_room(what: &'static str, errno: Errno, len_bytes: usize) -> Error {
    let advice = match errno {
        Errno::NOSPC | Errno::NOMEM => {
            "/dev/shm is full; give it more room (`docker run --shm-size=4g`, `mount -o \
             remount,size=4g /dev/shm`), remove what is stale there, lower COMM_STEP_BYTES, or go \
             without shared memory with COMM_SHM_DISABLE=1"
        }
        Errno::MFILE | Errno::NFILE => "too many files are open; raise `ulimit -n`",
        Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOENT => {
            "/dev/shm cannot be used; mount a tmpfs there that this user may write to, or unset \
             COMM_SHM_NAMED"
        }
        _ => return Error::system(what, errno).with("bytes", len_bytes),
    };
    Error::system(format!("{what} failed: {advice}"), errno).with("bytes", len_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exists(name: &str) -> bool {
        names::path(name).exists()
    }

    #[test]
    fn a_segment_is_private_to_its_user_and_gone_when_its_creator_drops_it() {
        let made = NamedSegment::create("job", 8192).unwrap();
        let name = made.name().to_owned();
        let found = fs::metadata(made.path()).unwrap();
        assert_eq!((found.mode() & 0o777, found.len()), (0o600, 8192));
        // All pages are there: nothing is left to be refused later.
        assert_eq!(found.blocks() * 512, 8192);
        drop(made);
        assert!(!exists(&name));
    }

    #[test]
    fn memory_stays_when_its_name_goes() {
        let made = NamedSegment::create("job", 4096).unwrap();
        let opened = NamedSegment::open(made.name().as_bytes(), 4096).unwrap();
        opened.remove_name();
        assert!(!exists(made.name()));
        // SAFETY: the first byte of a mapping of 4096, which nobody else accesses now.
        unsafe { made.as_ptr().unwrap().write_volatile(42) };
        // SAFETY: as above.
        let read = unsafe { opened.as_ptr().unwrap().read_volatile() };
        assert_eq!(read, 42);
    }

    #[test]
    fn what_a_peer_names_is_checked_before_it_is_mapped() {
        let made = NamedSegment::create("job", 4096).unwrap();
        let error = NamedSegment::open(made.name().as_bytes(), 8192).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        fs::set_permissions(made.path(), mode).unwrap();
        let error = NamedSegment::open(made.name().as_bytes(), 4096).unwrap_err();
        assert!(error.message().contains("other users"), "{error}");
        let absent = names::fresh("job").unwrap();
        let error = NamedSegment::open(absent.as_bytes(), 4096).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let link = names::path(&absent);
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        let error = NamedSegment::open(absent.as_bytes(), 4096).unwrap_err();
        fs::remove_file(link).unwrap();
        assert_eq!(error.kind(), ErrorKind::Protocol);
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let full = no_room("creating", Errno::NOSPC, 1);
        assert_eq!(full.kind(), ErrorKind::ResourceExhausted);
        assert!(full.message().contains("--shm-size"), "{full}");
        assert!(full.message().contains("COMM_SHM_DISABLE"), "{full}");
        let files = no_room("creating", Errno::MFILE, 1);
        assert!(files.message().contains("ulimit -n"), "{files}");
    }

    #[test]
    fn a_segment_larger_than_the_file_system_is_refused_without_a_trace() {
        let before = fs::read_dir(names::DIRECTORY).unwrap().count();
        let error = NamedSegment::create("job", 1 << 50).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceExhausted, "{error}");
        // Other tests make segments, too, but no more than a few.
        assert!(fs::read_dir(names::DIRECTORY).unwrap().count() < before + 16);
    }
}
