//! [`MockDevice`]: an accelerator whose memory kills whoever touches it with the CPU.
//!
//! Device memory is a memory file mapped twice: where users see it, without any access, so that a
//! read or write through that address ends the process with a fault; and privately, where the
//! device's thread reaches it. Copies wait a random time in a queue, so that code which does not
//! wait for the event reads old bytes.

mod copier;
mod memory;

use std::collections::BTreeMap;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use comm_core::device::{Device, DeviceEvent, DeviceMemory, HostDevice, check_copy_lengths};
use comm_core::{Error, ErrorKind, MemoryKind, Result};

use self::copier::{Copier, Job};
use self::memory::Twofold;

/// A device with memory of its own; see the module's text above.
pub struct MockDevice {
    ordinal: u32,
    name: String,
    allocations: Arc<Mutex<Allocations>>,
    copier: Copier,
}

/// Allocations by address as users see it.
#[derive(Debug, Default)]
struct Allocations(BTreeMap<usize, Allocation>);

#[derive(Clone, Copy, Debug)]
struct Allocation {
    len_bytes: usize,
    /// Where the device reaches it; `None` for pinned host memory.
    alias: Option<usize>,
}

/// Owner of an allocation: gives it back and forgets it.
struct Owner<M> {
    address: usize,
    allocations: Arc<Mutex<Allocations>>,
    _memory: M,
}

impl<M> Drop for Owner<M> {
    fn drop(&mut self) {
        lock(&self.allocations).0.remove(&self.address);
    }
}

impl MockDevice {
    /// A device with this number, whose copies wait up to `max_delay`, depending on `seed`.
    ///
    /// # Errors
    ///
    /// If the device's thread cannot be started.
    pub fn new(ordinal: u32, seed: u64, max_delay: Duration) -> Result<Self> {
        Ok(Self {
            ordinal,
            name: format!("mock:{ordinal}"),
            allocations: Arc::default(),
            copier: Copier::start(seed, max_delay)?,
        })
    }

    /// Lets every copy that has not happened yet, and every later one, fail.
    pub fn fail(&self) {
        self.copier.fail();
    }

    /// Bytes that are allocated, pinned ones included.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        lock(&self.allocations)
            .0
            .values()
            .map(|allocation| allocation.len_bytes)
            .sum()
    }

    /// Registers an allocation and hands it out.
    fn own<M: Send + Sync + 'static>(
        &self,
        address: NonNull<u8>,
        allocation: Allocation,
        kind: MemoryKind,
        memory: M,
    ) -> DeviceMemory {
        let at = address.as_ptr() as usize;
        lock(&self.allocations).0.insert(at, allocation);
        let owner = Owner {
            address: at,
            allocations: Arc::clone(&self.allocations),
            _memory: memory,
        };
        // SAFETY: the memory lives in its owner, which does not access it by itself.
        unsafe {
            DeviceMemory::from_raw_parts(address, allocation.len_bytes, kind, Arc::new(owner))
        }
    }

    /// The address at which the device's thread reaches this memory.
    fn reach(&self, memory: &DeviceMemory) -> Result<usize> {
        let address = memory.as_ptr().as_ptr() as usize;
        if memory.kind().is_host() {
            return Ok(address);
        }
        let allocations = lock(&self.allocations);
        let before = allocations.0.range(..=address).next_back();
        before
            .and_then(|(start, allocation)| {
                let offset = address - start;
                let inside = offset + memory.len_bytes() <= allocation.len_bytes;
                allocation
                    .alias
                    .filter(|_| inside)
                    .map(|alias| alias + offset)
            })
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidArgument,
                    "the memory belongs to another device; copy with the device that owns it",
                )
                .with("device", &self.name)
                .with("memory", memory.kind())
            })
    }
}

impl Device for MockDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::Device {
            ordinal: self.ordinal,
        }
    }

    fn alloc(&self, len_bytes: usize) -> Result<DeviceMemory> {
        let memory = Twofold::new(len_bytes)?;
        let alias = Some(memory.alias().as_ptr() as usize);
        let allocation = Allocation { len_bytes, alias };
        Ok(self.own(memory.forbidden(), allocation, self.memory_kind(), memory))
    }

    fn alloc_pinned(&self, len_bytes: usize) -> Result<DeviceMemory> {
        let memory = HostDevice.alloc(len_bytes)?;
        let allocation = Allocation {
            len_bytes,
            alias: None,
        };
        Ok(self.own(memory.as_ptr(), allocation, MemoryKind::HostPinned, memory))
    }

    unsafe fn copy(
        &self,
        target: &DeviceMemory,
        source: &DeviceMemory,
    ) -> Result<Box<dyn DeviceEvent>> {
        check_copy_lengths(target, source)?;
        let (to, from) = (self.reach(target)?, self.reach(source)?);
        let keep = [target.clone(), source.clone()];
        Ok(Box::new(self.copier.submit(Job {
            to,
            from,
            bytes: source.len_bytes(),
            keep,
        })))
    }

    fn memory_kind_at(&self, address: NonNull<u8>) -> Result<MemoryKind> {
        let address = address.as_ptr() as usize;
        let allocations = lock(&self.allocations);
        let before = allocations.0.range(..=address).next_back();
        Ok(match before {
            Some((start, allocation)) if address < start + allocation.len_bytes => allocation
                .alias
                .map_or(MemoryKind::HostPinned, |_| self.memory_kind()),
            _ => MemoryKind::Host,
        })
    }
}

impl fmt::Debug for MockDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockDevice")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
