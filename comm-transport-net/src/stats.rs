//! How much memory the transport holds.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory that a [`NetTransport`](crate::NetTransport) and its edges hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemStats {
    /// Registered slots of all edges, without quarantined ones.
    pub slot_bytes: usize,
    /// Ends that were dropped and are still being closed.
    pub lingering_connections: usize,
    /// Memory that is never handed back since the network may still touch it.
    pub quarantined_bytes: usize,
    /// Connections to which that memory belonged.
    pub quarantined_connections: usize,
}

/// Counters behind [`MemStats`]. Relaxed: they order nothing.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    slot_bytes: AtomicUsize,
    quarantined_bytes: AtomicUsize,
    quarantined_connections: AtomicUsize,
}

impl Counters {
    pub(crate) fn allocated(&self, bytes: usize) {
        self.slot_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn freed(&self, bytes: usize) {
        self.slot_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn quarantined(&self, bytes: usize) {
        self.freed(bytes);
        self.quarantined_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.quarantined_connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, lingering_connections: usize) -> MemStats {
        MemStats {
            slot_bytes: self.slot_bytes.load(Ordering::Relaxed),
            lingering_connections,
            quarantined_bytes: self.quarantined_bytes.load(Ordering::Relaxed),
            quarantined_connections: self.quarantined_connections.load(Ordering::Relaxed),
        }
    }
}
