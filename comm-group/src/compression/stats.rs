//! [`CompressionStats`]: what compression has done, and why it did not.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a worker has compressed and decompressed since it was made, in all of its groups.
///
/// Tensors that are too small or excluded are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompressionStats {
    /// Tensors that were sent compressed.
    pub compressed_tensors: u64,
    /// Their bytes before that.
    pub compressed_from_bytes: u64,
    /// Their bytes after that.
    pub compressed_to_bytes: u64,
    /// Tensors that went as they are because they would not have become smaller.
    pub not_smaller: u64,
    /// Those because the pool had no buffer.
    pub no_buffer: u64,
    /// Those because the codec had no context free.
    pub no_context: u64,
    /// Those because the codec cannot do tensors that large, or failed.
    pub not_possible: u64,
    /// Tensors that were received compressed.
    pub decompressed_tensors: u64,
    /// Their bytes on the way.
    pub decompressed_from_bytes: u64,
    /// Their bytes afterwards.
    pub decompressed_to_bytes: u64,
    /// What the pool of buffers holds, lent or idle, in bytes.
    pub pool_allocated_bytes: usize,
    /// What of that is idle, in bytes.
    pub pool_cached_bytes: usize,
}

impl CompressionStats {
    /// How many times smaller the compressed tensors have become; 1 if there was none.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        match self.compressed_to_bytes {
            0 => 1.0,
            bytes => self.compressed_from_bytes as f64 / bytes as f64,
        }
    }
}

/// A counter; nothing is ordered by it.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, amount: usize) {
        self.0.fetch_add(amount as u64, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters behind [`CompressionStats`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) compressed_tensors: Counter,
    pub(super) compressed_from_bytes: Counter,
    pub(super) compressed_to_bytes: Counter,
    pub(super) not_smaller: Counter,
    pub(super) no_buffer: Counter,
    pub(super) no_context: Counter,
    pub(super) not_possible: Counter,
    pub(super) decompressed_tensors: Counter,
    pub(super) decompressed_from_bytes: Counter,
    pub(super) decompressed_to_bytes: Counter,
}

impl Counters {
    pub(super) fn snapshot(&self) -> CompressionStats {
        CompressionStats {
            compressed_tensors: self.compressed_tensors.get(),
            compressed_from_bytes: self.compressed_from_bytes.get(),
            compressed_to_bytes: self.compressed_to_bytes.get(),
            not_smaller: self.not_smaller.get(),
            no_buffer: self.no_buffer.get(),
            no_context: self.no_context.get(),
            not_possible: self.not_possible.get(),
            decompressed_tensors: self.decompressed_tensors.get(),
            decompressed_from_bytes: self.decompressed_from_bytes.get(),
            decompressed_to_bytes: self.decompressed_to_bytes.get(),
            pool_allocated_bytes: 0,
            pool_cached_bytes: 0,
        }
    }
}
