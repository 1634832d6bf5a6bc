//! Doorbell words in memory that processes share, rung across processes.

use std::any::Any;
use std::fmt;
use std::mem::size_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use super::DOORBELLS_PER_SET;
use super::park::Bell;
use crate::Result;
use crate::memory::{SealedMemory, SharedMapping};

/// Length of the memory of one set.
pub const DOORBELL_SET_BYTES: usize = DOORBELLS_PER_SET * size_of::<Bell>();

/// Where the words of a set are.
enum Words {
    /// In a sealed memory file.
    Sealed(SharedMapping),
    /// In memory that somebody else shares.
    Foreign {
        first: NonNull<Bell>,
        _owner: Arc<dyn Any + Send + Sync>,
    },
}

// SAFETY: the words are atomics, which any thread may use; the owner may go to any thread.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    fn bells(&self) -> &[Bell] {
        let first = match self {
            Self::Sealed(memory) => memory.as_ptr().cast::<Bell>(),
            Self::Foreign { first, .. } => *first,
        };
        // SAFETY: the memory is aligned, `DOORBELL_SET_BYTES` long and lives as long as the borrow:
        // a mapping of a file that cannot shrink (sealed), or what the maker of `Foreign` promised.
        // `Bell` consists of one atomic, for which every bit pattern is valid, so writes by other
        // processes are writes to atomics.
        unsafe { slice::from_raw_parts(first.as_ptr(), DOORBELLS_PER_SET) }
    }
}

/// The words of this process's own set.
pub(super) struct SharedBells {
    words: Words,
    /// The memory file, if it is one.
    fd: Option<OwnedFd>,
}

impl SharedBells {
    pub(super) fn create() -> Result<Self> {
        let (fd, memory) = SealedMemory::create("comm-doorbells", DOORBELL_SET_BYTES)?.into_parts();
        Ok(Self {
            words: Words::Sealed(memory),
            fd: Some(fd),
        })
    }

    /// # Safety
    ///
    /// As for [`PeerDoorbells::from_raw`].
    pub(super) unsafe fn from_raw(base: NonNull<u8>, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Self {
            words: Words::Foreign {
                first: base.cast(),
                _owner: owner,
            },
            fd: None,
        }
    }

    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn bells(&self) -> &[Bell] {
        self.words.bells()
    }
}

/// The doorbells of another process of this host, mapped to be rung.
pub struct PeerDoorbells {
    words: Words,
}

impl PeerDoorbells {
    /// Maps the set behind a file descriptor that a peer sent.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`](crate::ErrorKind) if the file has another size or is not sealed
    /// against resizing.
    pub fn map(fd: OwnedFd) -> Result<Self> {
        let memory = SealedMemory::map(fd, DOORBELL_SET_BYTES)?.into_mapping();
        Ok(Self {
            words: Words::Sealed(memory),
        })
    }

    /// The set in memory that is shared by other means than a memory file.
    ///
    /// # Safety
    ///
    /// `base` is aligned to 64 bytes and points to [`DOORBELL_SET_BYTES`] readable and writable bytes
    /// for as long as `owner` lives. Everybody accesses them as atomics of 32 bits only.
    #[must_use]
    pub unsafe fn from_raw(base: NonNull<u8>, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Self {
            words: Words::Foreign {
                first: base.cast(),
                _owner: owner,
            },
        }
    }

    /// Rings the doorbell of this number; numbers outside the set are ignored.
    pub fn ring(&self, number: u32) {
        if let Some(bell) = self.words.bells().get(number as usize) {
            bell.ring();
        }
    }
}

impl fmt::Debug for PeerDoorbells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerDoorbells").finish_non_exhaustive()
    }
}
