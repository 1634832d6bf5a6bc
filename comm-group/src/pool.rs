//! [`ReceivePool`]: memory of received messages, used again.
//!
//! # Contract
//!
//! * A message that is received into memory of the pool keeps it as long as one of its tensors
//!   lives; then the next message can have it. So a stream of large messages takes memory from the
//!   system, page by page, only once.
//! * The pool never waits. What it holds, in use or idle, is at most its limit; beyond that, messages
//!   get memory of their own, which goes back to the system with them.
//! * Tensors smaller than 64 KiB are not worth it and get memory of their own.
//! * The pool keeps a handle of the storage, so `Tensor::try_into_mut` refuses tensors of the pool.
//!   Whoever wants to write to what was received receives into buffers of his own.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use comm_core::{Result, Storage, Tensor, TensorLayout, TensorMut};

/// Smaller tensors cost less to allocate than to look up.
const LEAST_BYTES: usize = 64 * 1024;

/// See the [module](self).
pub(crate) struct ReceivePool {
    limit_bytes: usize,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// By length, then by a number that makes the key unique.
    storages: BTreeMap<(usize, u64), Arc<dyn Storage>>,
    bytes: usize,
    next: u64,
}

impl ReceivePool {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self {
            limit_bytes,
            held: Mutex::default(),
        }
    }

    /// Memory for elements of this layout, which has neither gaps nor an offset.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ResourceExhausted`](comm_core::ErrorKind) without memory.
    pub(crate) fn provide(&self, layout: &TensorLayout) -> Result<TensorMut> {
        let bytes = layout.len_bytes();
        if self.keeps(bytes)
            && let Some(storage) = self.take_idle(bytes)
            && let Ok(tensor) = TensorMut::from_storage(storage, layout.clone())
        {
            return Ok(tensor);
        }
        TensorMut::zeros(layout.dtype(), layout.shape())
    }

    /// Lets the memory of a received tensor be used again when its handles are gone.
    pub(crate) fn adopt(&self, tensor: &Tensor) {
        let storage = tensor.storage();
        let bytes = storage.len_bytes();
        if !self.keeps(bytes) {
            return;
        }
        let mut held = self.lock();
        let mut evicted = Vec::new();
        while held.bytes + bytes > self.limit_bytes {
            // The largest idle one makes room fastest.
            let idle = held
                .storages
                .iter()
                .rev()
                .find(|(_, storage)| is_idle(storage));
            let Some(key) = idle.map(|(key, _)| *key) else {
                return;
            };
            evicted.extend(held.storages.remove(&key));
            held.bytes -= key.0;
        }
        let key = (bytes, held.next);
        held.next += 1;
        held.bytes += bytes;
        held.storages.insert(key, Arc::clone(storage));
        drop(held);
        // Giving large memory back takes time that others need not wait for.
        drop(evicted);
    }

    /// The bytes that the pool holds, in use or idle.
    pub(crate) fn held_bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Lets go of everything.
    pub(crate) fn clear(&self) {
        let held = std::mem::take(&mut *self.lock());
        drop(held);
    }

    const fn keeps(&self, bytes: usize) -> bool {
        bytes >= LEAST_BYTES && bytes <= self.limit_bytes
    }

    /// The smallest idle storage that is large enough and not more than twice as large.
    fn take_idle(&self, bytes: usize) -> Option<Arc<dyn Storage>> {
        let mut held = self.lock();
        let fitting = held
            .storages
            .range((bytes, 0)..=(bytes.saturating_mul(2), u64::MAX));
        let key = *fitting.into_iter().find(|(_, storage)| is_idle(storage))?.0;
        held.bytes -= key.0;
        held.storages.remove(&key)
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the pool's handle is the only one; nobody can make another one then.
fn is_idle(storage: &Arc<dyn Storage>) -> bool {
    Arc::strong_count(storage) == 1
}

impl fmt::Debug for ReceivePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceivePool")
            .field("limit_bytes", &self.limit_bytes)
            .field("held_bytes", &self.held_bytes())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use comm_core::DType;

    use super::*;

    fn layout(bytes: usize) -> TensorLayout {
        TensorLayout::contiguous(DType::U8, &[bytes]).unwrap()
    }

    fn received(pool: &ReceivePool, bytes: usize) -> Tensor {
        let tensor = pool.provide(&layout(bytes)).unwrap().freeze();
        pool.adopt(&tensor);
        tensor
    }

    #[test]
    fn memory_is_used_again_when_its_tensors_are_gone_and_not_before() {
        let pool = ReceivePool::new(1 << 20);
        let first = received(&pool, 100_000);
        let place = first.as_ptr();
        let view = first.slice(0..10).unwrap();
        drop(first);
        assert_ne!(received(&pool, 100_000).as_ptr(), place);
        drop(view);
        let words = TensorLayout::contiguous(DType::F64, &[100, 100]).unwrap();
        let places: Vec<_> = (0..2)
            .map(|_| pool.provide(&words).unwrap())
            .map(|tensor| (tensor.as_ptr(), tensor.shape().to_vec()))
            .collect();
        assert!(
            places.contains(&(place, vec![100, 100])),
            "any element type"
        );
    }

    #[test]
    fn what_is_held_stays_within_the_limit() {
        let pool = ReceivePool::new(250_000);
        let tensors: Vec<_> = (0..4).map(|_| received(&pool, 100_000)).collect();
        assert_eq!(pool.held_bytes(), 200_000);
        drop(tensors);
        let large = received(&pool, 240_000);
        assert_eq!(pool.held_bytes(), 240_000, "idle memory makes room");
        let own = received(&pool, 100_000);
        assert_eq!(pool.held_bytes(), 240_000, "memory in use does not");
        assert!(own.try_into_mut().is_ok() && large.try_into_mut().is_err());
        pool.clear();
        assert_eq!(pool.held_bytes(), 0);
    }

    #[test]
    fn small_tensors_and_too_different_sizes_get_memory_of_their_own() {
        let pool = ReceivePool::new(1 << 20);
        drop(received(&pool, 1000));
        assert_eq!(pool.held_bytes(), 0);
        let large = received(&pool, 200_000);
        let place = large.as_ptr();
        drop(large);
        assert_ne!(pool.provide(&layout(99_999)).unwrap().as_ptr(), place);
        assert_eq!(pool.provide(&layout(100_000)).unwrap().as_ptr(), place);
    }

    #[test]
    fn a_pool_of_nothing_keeps_nothing() {
        let pool = ReceivePool::new(0);
        assert!(received(&pool, 100_000).try_into_mut().is_ok());
    }
}
