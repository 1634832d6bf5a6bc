//! Registered memory, and how it becomes slices.

use std::sync::Arc;

use comm_core::net::{MemoryRegion, MrSlice, Region};
use comm_core::{Error, ErrorKind, Result};

use crate::poller::Poller;

/// What the backend knows its own regions by; of a private type, so nobody else makes one.
#[derive(Debug)]
struct Key(Arc<Poller>);

/// Registers memory. There is nothing to do: the kernel copies from and to any memory.
pub(crate) fn register(backend: &Arc<Poller>, region: Region) -> Result<MemoryRegion> {
    match &region {
        Region::Host(memory) if memory.kind().is_host() => {
            Ok(MemoryRegion::new(region, Key(Arc::clone(backend))))
        }
        other => Err(Error::new(
            ErrorKind::Unsupported,
            "sockets reach host memory only; copy the data to pinned host memory first",
        )
        .with("memory", format_args!("{:?}", other.memory().kind()))),
    }
}

/// Refuses memory that this backend has not registered (N9).
pub(crate) fn check(backend: &Arc<Poller>, memory: &MrSlice) -> Result<()> {
    match memory.region().key() {
        Some(Key(owner)) if Arc::ptr_eq(owner, backend) => Ok(()),
        _ => Err(Error::new(
            ErrorKind::InvalidArgument,
            "the memory is not registered with this network; register it with the backend of the \
             connection",
        )),
    }
}

/// The contents of memory that is being sent.
///
/// # Safety
///
/// The memory was [checked](check), and nobody writes to it while the slice lives.
pub(crate) unsafe fn contents(memory: &MrSlice) -> &[u8] {
    // SAFETY: only host memory is registered, the slice is inside of it and keeps it alive, and by
    // the caller's promise nobody writes to it.
    unsafe { std::slice::from_raw_parts(memory.as_ptr().as_ptr(), memory.len_bytes()) }
}

/// The room of memory that is being received into.
///
/// # Safety
///
/// The memory was [checked](check), and nobody else accesses it while the slice lives.
#[expect(clippy::mut_from_ref, reason = "the memory is not part of the handle")]
pub(crate) unsafe fn room(memory: &MrSlice) -> &mut [u8] {
    // SAFETY: as above, and by the caller's promise nobody else accesses the memory. Registered
    // memory is valid for reads, so it is initialised.
    unsafe { std::slice::from_raw_parts_mut(memory.as_ptr().as_ptr(), memory.len_bytes()) }
}
