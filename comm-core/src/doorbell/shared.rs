//! Doorbell words in a sealed memory file, rung across processes.

use std::fmt;
use std::mem::size_of;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::slice;

use super::DOORBELLS_PER_SET;
use super::park::Bell;
use crate::Result;
use crate::memory::{SealedMemory, SharedMapping};

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
        bells(self.memory.mapping())
    }
}

/// The doorbells of another process of this host, mapped to be rung.
pub struct PeerDoorbells {
    memory: SharedMapping,
}

impl PeerDoorbells {
    /// Maps the set behind a file descriptor that a peer sent.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`](crate::ErrorKind) if the file has another size or is not sealed
    /// against resizing.
    pub fn map(fd: OwnedFd) -> Result<Self> {
        Ok(Self {
            memory: SealedMemory::map(fd, BYTES)?.into_mapping(),
        })
    }

    /// Rings the doorbell of this number; numbers outside the set are ignored.
    pub fn ring(&self, number: u32) {
        if let Some(bell) = bells(&self.memory).get(number as usize) {
            bell.ring();
        }
    }
}

impl fmt::Debug for PeerDoorbells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerDoorbells").finish_non_exhaustive()
    }
}

/// The words in a mapping of `BYTES`, which the callers made sure of.
fn bells(memory: &SharedMapping) -> &[Bell] {
    let first = memory.as_ptr().cast::<Bell>();
    // SAFETY: the mapping is page-aligned, `BYTES` long and lives as long as the borrow; it cannot
    // shrink (sealed). `Bell` consists of one atomic, for which every bit pattern is valid, so
    // writes by other processes are writes to atomics.
    unsafe { slice::from_raw_parts(first.as_ptr(), DOORBELLS_PER_SET) }
}
