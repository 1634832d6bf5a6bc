//! The one door to atomics and locks.
//!
//! Lock-free code imports its atomics from here and nowhere else. A build with
//! `RUSTFLAGS="--cfg comm_loom"` replaces them by loom's, so the models run the production code.

/// Atomic types and orderings.
pub mod atomic {
    #[cfg(comm_loom)]
    pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
    #[cfg(not(comm_loom))]
    pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
}

#[cfg(comm_loom)]
pub use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
#[cfg(not(comm_loom))]
pub use std::sync::{Arc, Condvar, Mutex, MutexGuard};
