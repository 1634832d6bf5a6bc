//! The one door to atomics and locks.
//!
//! Lock-free code imports its atomics from here and nowhere else. A build with
//! `RUSTFLAGS="--cfg comm_loom"` replaces them by loom's, so the models run the production code.
//!
//! [`Arc`] is always the standard library's: no algorithm here relies on the order of reference
//! counts, and loom's own type cannot be a `self` argument.

/// Atomic types and orderings.
pub mod atomic {
    #[cfg(comm_loom)]
    pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
    #[cfg(not(comm_loom))]
    pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
}

pub use std::sync::Arc;

#[cfg(comm_loom)]
pub use loom::thread::{ThreadId, current as current_thread, yield_now};
#[cfg(not(comm_loom))]
pub use std::thread::{ThreadId, current as current_thread, yield_now};

#[cfg(comm_loom)]
pub use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(comm_loom))]
pub use std::sync::{Condvar, Mutex, MutexGuard};
