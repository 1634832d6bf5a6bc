//! Reading another process's memory: one copy by the kernel, straight out of the sender's buffer.
//!
//! # Contract
//!
//! * The sending end tells its process id and where some random bytes lie in its memory. The receiving
//!   end pulls only if it finds these bytes there: the kernel may forbid it (Yama, seccomp), and an id
//!   may mean another process in another PID namespace.
//! * An address is handed to the kernel and never used here. The kernel writes to the target alone.
//! * The id of a process that has ended may be given to another one. What is read from that is
//!   garbage for an operation that the death of its peer has ended already.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::OnceLock;

use bytes::{BufMut, Bytes, BytesMut};
use comm_core::fifo::PeerMemory;
use comm_core::{Error, ErrorKind, Result};

use crate::facts::take;

/// Random bytes by which a process is recognised.
const PROBE_BYTES: usize = 16;
/// Length of a probe behind a handle: process id (u32), address (u64) and contents, little-endian.
const BYTES: usize = 4 + 8 + PROBE_BYTES;

/// What a sending end tells so that its memory can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    process: u32,
    address: u64,
    contents: [u8; PROBE_BYTES],
}

impl Probe {
    /// That of this process.
    pub(crate) fn of_this_process() -> Self {
        static CONTENTS: OnceLock<[u8; PROBE_BYTES]> = OnceLock::new();
        let contents = CONTENTS.get_or_init(|| {
            // Two hashes under keys that the standard library draws at random.
            let mut bytes = [0; PROBE_BYTES];
            for half in bytes.chunks_exact_mut(8) {
                half.copy_from_slice(&RandomState::new().build_hasher().finish().to_ne_bytes());
            }
            bytes
        });
        Self {
            process: std::process::id(),
            address: contents.as_ptr().expose_provenance() as u64,
            contents: *contents,
        }
    }

    /// The probe behind the bytes of a handle.
    pub(crate) fn append_to(&self, handle: &[u8]) -> Bytes {
        let mut bytes = BytesMut::with_capacity(handle.len() + BYTES);
        bytes.put_slice(handle);
        bytes.put_u32_le(self.process);
        bytes.put_u64_le(self.address);
        bytes.put_slice(&self.contents);
        bytes.freeze()
    }

    /// The handle's bytes and the probe behind them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] if there is not even room for a probe.
    pub(crate) fn split_from(bytes: &[u8]) -> Result<(&[u8], Self)> {
        let short = || {
            let message = "a peer sent something that is no shared memory handle";
            Error::new(ErrorKind::Protocol, message).with("bytes", bytes.len())
        };
        let at = bytes.len().checked_sub(BYTES).ok_or_else(short)?;
        let (handle, mut rest) = bytes.split_at(at);
        let probe = Self {
            process: take(&mut rest).map(u32::from_le_bytes).ok_or_else(short)?,
            address: take(&mut rest).map(u64::from_le_bytes).ok_or_else(short)?,
            contents: take(&mut rest).ok_or_else(short)?,
        };
        Ok((handle, probe))
    }

    /// The process that made the probe, if its memory can be read from here.
    pub(crate) fn try_reach(&self) -> Option<OtherProcess> {
        let process = libc::pid_t::try_from(self.process).ok()?;
        let other = OtherProcess { process };
        let mut found = [0; PROBE_BYTES];
        // SAFETY: the target is as long as the probe.
        unsafe { other.read(self.address, found.as_mut_ptr(), PROBE_BYTES) }.ok()?;
        (found == self.contents).then_some(other)
    }
}

/// See [`ShmTransport::pulls_by_default`](crate::ShmTransport::pulls_by_default).
pub(crate) fn is_faster_here() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        // The vendor's name, in the order of the registers.
        let leaf = std::arch::x86_64::__cpuid(0);
        let vendor = [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes);
        // Server processors from Skylake-SP on; client processors have shared, inclusive caches.
        vendor.as_flattened() == b"GenuineIntel" && std::is_x86_feature_detected!("avx512f")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// A process whose memory can be read.
pub(crate) struct OtherProcess {
    process: libc::pid_t,
}

impl fmt::Debug for OtherProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.process)
    }
}

// SAFETY: the kernel checks the address and writes to the target only.
unsafe impl PeerMemory for OtherProcess {
    unsafe fn read(&self, address: u64, target: *mut u8, bytes: usize) -> Result<()> {
        let mut done = 0;
        while done < bytes {
            let local = libc::iovec {
                iov_base: target.wrapping_add(done).cast(),
                iov_len: bytes - done,
            };
            let remote = libc::iovec {
                iov_base: std::ptr::without_provenance_mut(
                    usize::try_from(address).unwrap_or(0).wrapping_add(done),
                ),
                iov_len: bytes - done,
            };
            // SAFETY: the caller vouches for the target; the other address is not ours.
            let read = unsafe { libc::process_vm_readv(self.process, &local, 1, &remote, 1, 0) };
            match usize::try_from(read) {
                // A partial read ends where the peer's memory does; the next call tells why.
                Ok(read) if read > 0 => done += read,
                Ok(_) => return Err(no_such_memory()),
                Err(_) => return Err(failed(std::io::Error::last_os_error())),
            }
        }
        Ok(())
    }
}

#[cold]
fn failed(error: std::io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ESRCH) => Error::new(
            ErrorKind::PeerDied,
            "the process whose memory was to be read is gone",
        ),
        Some(libc::EFAULT) => no_such_memory(),
        _ => Error::system("reading a peer's memory", error),
    }
}

#[cold]
fn no_such_memory() -> Error {
    Error::new(
        ErrorKind::Protocol,
        "a peer offered memory that it does not have",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_only_if_its_random_bytes_are_where_it_said() {
        let own = Probe::of_this_process();
        assert_eq!(own, Probe::of_this_process());
        assert!(own.try_reach().is_some());
        let other = Probe {
            contents: [1; PROBE_BYTES],
            ..own
        };
        assert!(other.try_reach().is_none());
        for process in [0, u32::MAX] {
            assert!(Probe { process, ..own }.try_reach().is_none());
        }
    }

    #[test]
    fn a_probe_travels_behind_a_handle() {
        let probe = Probe {
            process: 7,
            address: 0x1234_5678_9abc,
            contents: [5; PROBE_BYTES],
        };
        let bytes = probe.append_to(b"handle");
        assert_eq!(Probe::split_from(&bytes).unwrap(), (&b"handle"[..], probe));
        let error = Probe::split_from(&bytes[..BYTES - 1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
    }

    #[test]
    fn memory_that_the_peer_does_not_have_is_an_error() {
        let own = Probe::of_this_process().try_reach().unwrap();
        let mut target = [0; 8];
        for address in [0, 8, u64::MAX - 100] {
            // SAFETY: the target is as long as said.
            let error = unsafe { own.read(address, target.as_mut_ptr(), 8) }.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol, "{address:#x}");
        }
    }

    #[test]
    fn a_process_that_is_gone_is_told_as_such() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = libc::pid_t::try_from(child.id()).unwrap();
        child.wait().unwrap();
        let mut target = [0; 8];
        // SAFETY: the target is as long as said.
        let read = unsafe { OtherProcess { process }.read(4096, target.as_mut_ptr(), 8) };
        assert_eq!(read.unwrap_err().kind(), ErrorKind::PeerDied);
    }
}
