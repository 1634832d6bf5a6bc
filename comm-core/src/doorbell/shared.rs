//! Doorbell words in a sealed memory file, rung across processes.

use std::fmt;
use std::mem::size_of;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::slice;

use super::DOORBELLS_PER_SET;
use super::park::Bell;
use crate::Result;
use crate::memory::SealedMemory;

const BYTES: usize = DOORBELLS_PER_SET * size_of::<Bell>();

/// The words of this process's own set.
pub(super) struct SharedBells {
    memory: SealedMemory,
}

impl SharedBells {
    pub(super) fn create() -> Result<Self> {
        Ok(Self {
            memory: SealedMemory::create("comm-doorbells", BYTES)?,
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }

    pub(super) fn bells(&self) -> &[Bell] {
        let first = self.memory.as_ptr().cast::<Bell>();
        // SAFETY: the mapping is page-aligned, `BYTES` long and lives as long as `self`; it can't
        // shrink (sealed). `Bell` consists of one atomic, for which every bit pattern is valid,
        // so writes by other processes are writes to atomics.
        unsafe { slice::from_raw_parts(first.as_ptr(), DOORBELLS_PER_SET) }
    }
}

/// The doorbells of another process of this host, mapped to be rung.
pub struct PeerDoorbells {
    bells: SharedBells,
}

impl PeerDoorbells {
    /// Maps the set behind a file descriptor that a peer sent.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`](crate::ErrorKind) if the file has another size or is not sealed
    /// against shrinking.
    pub fn map(fd: OwnedFd) -> Result<Self> {
        Ok(Self {
            bells: SharedBells {
                memory: SealedMemory::map(fd, BYTES)?,
            },
        })
    }

    /// Rings the doorbell of this number; numbers outside the set are ignored.
    pub fn ring(&self, number: u32) {
        if let Some(bell) = self.bells.bells().get(number as usize) {
            bell.ring();
        }
    }
}

impl fmt::Debug for PeerDoorbells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerDoorbells").finish_non_exhaustive()
    }
}
