//! Names of segments: made, checked, and removed when their owners are dead.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use comm_core::{Error, ErrorKind, Result};
use rustix::fs::FlockOperation;

/// Where the system keeps named segments.
pub(super) const DIRECTORY: &str = "/dev/shm";

const PREFIX: &str = "comm-";

/// Length of a name: prefix, 16 digits of the job, a dash, 32 random digits.
pub(super) const NAME_BYTES: usize = PREFIX.len() + 16 + 1 + 32;

/// How old a segment is before [`sweep`] looks at it: its creator has locked it by then.
const SWEEP_AGE: Duration = Duration::from_secs(10);

/// Where the segment of this name is.
pub(super) fn path(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(name)
}

/// Opens a segment as a file, never through a link.
pub(super) fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)
}

/// A name that nobody has.
pub(super) fn fresh(job: &str) -> Result<String> {
    // 122 random bits from the kernel.
    let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid")
        .map_err(|error| Error::system("reading a random name, which needs /proc", error))?;
    let random: String = uuid.chars().filter(char::is_ascii_hexdigit).collect();
    let name = format!("{PREFIX}{:016x}-{random}", fnv1a(job.as_bytes()));
    checked(name.as_bytes())?;
    Ok(name)
}

/// FNV-1a, 64 bits: tells an administrator which segments belong together, and nothing else.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The bytes as a name, if they have the form of one.
pub(super) fn checked(bytes: &[u8]) -> Result<&str> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let digits = bytes
        .strip_prefix(PREFIX.as_bytes())
        .filter(|rest| rest.len() == NAME_BYTES - PREFIX.len() && rest[16] == b'-');
    let fits = digits.is_some_and(|digits| {
        digits[..16].iter().all(is_digit) && digits[17..].iter().all(is_digit)
    });
    std::str::from_utf8(bytes)
        .ok()
        .filter(|_| fits)
        .ok_or_else(|| {
            Error::new(
                ErrorKind::Protocol,
                "a peer sent something that is no name of a segment",
            )
            .with("bytes", bytes.len())
        })
}

/// Removes the names that dead processes of this user left behind, and tells how many.
pub fn sweep() -> usize {
    let Ok(entries) = fs::read_dir(DIRECTORY) else {
        return 0;
    };
    let own = rustix::process::geteuid().as_raw();
    let mut removed = 0;
    for entry in entries.flatten() {
        let name = entry.file_name();
        if checked(name.as_encoded_bytes()).is_err() {
            continue;
        }
        let path = entry.path();
        let is_old = |found: &fs::Metadata| {
            let age = found.modified().ok().and_then(|at| at.elapsed().ok());
            age.is_some_and(|age| age >= SWEEP_AGE)
        };
        let ours = fs::symlink_metadata(&path)
            .is_ok_and(|found| found.is_file() && found.uid() == own && is_old(&found));
        if !ours {
            continue;
        }
        let Ok(file) = open_file(&path) else { continue };
        // As long as its creator lives it holds this lock.
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
            && fs::remove_file(&path).is_ok()
        {
            removed += 1;
        }
    }
    removed
}

/// The identity of the file system with the named segments: equal for processes that have the same.
///
/// # Errors
///
/// If there is none.
pub(crate) fn device() -> Result<u64> {
    fs::metadata(DIRECTORY)
        .map(|found| found.dev())
        .map_err(|error| {
            Error::system(
                "COMM_SHM_NAMED=1 needs /dev/shm, which cannot be looked at",
                error,
            )
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::NamedSegment;
    use super::*;

    #[test]
    fn names_of_the_dead_are_swept_and_those_of_the_living_stay() {
        let living = NamedSegment::create("job", 4096).unwrap();
        let dead = path(&fresh("job").unwrap());
        let young = path(&fresh("job").unwrap());
        let foreign = path("comm-of-somebody-else");
        for file in [&dead, &young, &foreign] {
            fs::write(file, "x").unwrap();
        }
        let long_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
        for file in [&dead, &foreign, &path(living.name())] {
            open_file(file).unwrap().set_modified(long_ago).unwrap();
        }
        sweep();
        assert!(!dead.exists());
        assert!(young.exists() && foreign.exists() && path(living.name()).exists());
        for file in [young, foreign] {
            fs::remove_file(file).unwrap();
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn no_change_of_a_name_leads_out_of_the_directory(at in 0..NAME_BYTES, byte in any::<u8>()) {
            let mut name = fresh("job").unwrap().into_bytes();
            name[at] = byte;
            if let Ok(name) = checked(&name) {
                prop_assert!(name.starts_with(PREFIX) && !name.contains(['/', '.']));
            }
        }

        #[test]
        fn other_bytes_are_no_names(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            prop_assert_eq!(checked(&bytes).unwrap_err().kind(), ErrorKind::Protocol);
        }
    }
}
