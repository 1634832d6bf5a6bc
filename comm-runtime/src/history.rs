//! What a lane has done lately: the flight recorder of one lane.
//!
//! # Contract
//!
//! * [`History::record`] is called by the lane's driver only and costs a few nanoseconds: plain
//!   stores, no clock, no lock.
//! * Any thread may read; an entry that is being overwritten reads as absent.
//!
//! # Synchronisation
//!
//! Each entry is a sequence lock of its own: `version` is 0 while the words change. The writer
//! stores 0, then the words, then the version, the latter two with Release; a reader loads the
//! version and the words with Acquire and then the version again.

use std::sync::atomic::{AtomicU64, Ordering};

use comm_core::Signature;

/// Operations that are remembered.
const ENTRIES: usize = 64;

#[derive(Debug)]
pub(crate) struct History {
    entries: Box<[Entry; ENTRIES]>,
    /// Operations begun so far.
    begun: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    /// The sequence number plus 1, or 0 while the words are not valid.
    version: AtomicU64,
    shape: AtomicU64,
    count: AtomicU64,
}

impl History {
    pub(crate) fn new() -> Self {
        let entries = Box::new(std::array::from_fn(|_| Entry {
            version: AtomicU64::new(0),
            shape: AtomicU64::new(0),
            count: AtomicU64::new(0),
        }));
        Self {
            entries,
            begun: AtomicU64::new(0),
        }
    }

    /// Remembers that an operation begins.
    #[inline]
    pub(crate) fn record(&self, signature: &Signature) {
        let [sequence, shape, count] = signature.pack();
        let entry = &self.entries[(sequence % ENTRIES as u64) as usize];
        entry.version.store(0, Ordering::Relaxed);
        // Release: a reader that sees a new word also sees the version 0 before it.
        entry.shape.store(shape, Ordering::Release);
        entry.count.store(count, Ordering::Release);
        // Release: pairs with the Acquire in `find`.
        entry.version.store(sequence + 1, Ordering::Release);
        self.begun.store(sequence + 1, Ordering::Relaxed);
    }

    /// The operation with this sequence number, if it began and is still remembered.
    pub(crate) fn find(&self, sequence: u64) -> Option<Signature> {
        let entry = &self.entries[(sequence % ENTRIES as u64) as usize];
        // Acquire: pairs with the Release in `record`.
        let before = entry.version.load(Ordering::Acquire);
        let shape = entry.shape.load(Ordering::Acquire);
        let count = entry.count.load(Ordering::Acquire);
        let after = entry.version.load(Ordering::Relaxed);
        if before != sequence + 1 || after != before {
            return None;
        }
        Signature::unpack([sequence, shape, count]).ok()
    }

    /// The latest remembered operation whose steps carry this hash.
    pub(crate) fn find_hash(&self, hash: u32) -> Option<Signature> {
        let begun = self.begun();
        let oldest = begun.saturating_sub(ENTRIES as u64);
        (oldest..begun)
            .rev()
            .filter_map(|sequence| self.find(sequence))
            .find(|signature| signature.hash() == hash)
    }

    /// Operations begun so far.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// The operation that began last.
    pub(crate) fn last(&self) -> Option<Signature> {
        self.find(self.begun().checked_sub(1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comm_core::{Algorithm, OperationKind};

    fn signature(sequence: u64) -> Signature {
        Signature {
            sequence,
            kind: OperationKind::Barrier,
            algorithm: Algorithm::OneShot,
            dtype: None,
            op: None,
            root: 0,
            count: sequence * 3,
        }
    }

    #[test]
    fn recent_operations_are_found_and_old_ones_forgotten() {
        let history = History::new();
        assert_eq!(history.last(), None);
        for sequence in 0..200 {
            history.record(&signature(sequence));
            assert_eq!(history.last(), Some(signature(sequence)));
        }
        assert_eq!(history.find(199 - ENTRIES as u64), None);
        assert_eq!(history.find(150), Some(signature(150)));
        assert_eq!(history.find(200), None);
        assert_eq!(history.begun(), 200);
        assert_eq!(
            history.find_hash(signature(150).hash()),
            Some(signature(150))
        );
        assert_eq!(history.find_hash(signature(10).hash()), None);
    }

    #[test]
    fn a_reader_never_sees_a_mixed_entry() {
        let history = History::new();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..200_000).for_each(|sequence| history.record(&signature(sequence))));
            for _ in 0..200_000 {
                if let Some(found) = history.last() {
                    assert_eq!(found.count, found.sequence * 3);
                }
            }
        });
    }
}
