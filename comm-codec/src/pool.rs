//! [`BufferPool`]: memory for compressed bytes, used again.
//!
//! # Contract
//!
//! * **Bounded.** What is leased and what is kept idle is together never more than the limit.
//! * **Never waits.** [`BufferPool::acquire`] answers `None` at once if there is no room; the sender
//!   then sends the bytes as they are.
//! * **Which buffer.** The smallest idle one that is large enough, if it is at most twice as large as
//!   asked for, or if a new one would exceed the limit. Otherwise a new one of exactly the length;
//!   idle ones make room, the largest first, and no more of them than are needed (none if that would
//!   not suffice).
//! * **Giving back.** A [`Lease`] gives its buffer back once, when it is dropped, from any thread; the
//!   pool keeps it. After [`Lease::discard`] and in a panic it goes back to the system instead.
//! * Memory outlives the pool's handles: a lease may be dropped after them.
//!
//! Why it pools: the first touch of fresh memory costs 3 to 5 microseconds a page, more than LZ4 needs
//! for the page's contents.
//!
//! ```
//! use comm_codec::BufferPool;
//!
//! let pool = BufferPool::new(1 << 20);
//! let lease = pool.acquire(1000).unwrap();
//! assert_eq!((pool.allocated_bytes(), pool.cached_bytes()), (1000, 0));
//! drop(lease);
//! assert_eq!((pool.allocated_bytes(), pool.cached_bytes()), (1000, 1000));
//! assert!(pool.acquire(2 << 20).is_none());
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// What a pool may hold unless told otherwise: 2 GiB.
pub const DEFAULT_POOL_BYTES: usize = 2 << 30;

/// Lends buffers; see the [module](self). Clones are handles of the same pool.
#[derive(Clone)]
pub struct BufferPool {
    shared: Arc<Shared>,
}

struct Shared {
    max_bytes: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    active_bytes: usize,
    cached_bytes: usize,
    /// Idle buffers by length; no list is empty.
    cached: BTreeMap<usize, Vec<Vec<u8>>>,
}

impl State {
    fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        let same = self.cached.get_mut(&len)?;
        let buffer = same.pop();
        if same.is_empty() {
            self.cached.remove(&len);
        }
        self.cached_bytes -= len;
        buffer
    }
}

impl BufferPool {
    /// A pool that holds at most `max_bytes`, and nothing yet.
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                max_bytes,
                state: Mutex::default(),
            }),
        }
    }

    /// A buffer of `bytes` bytes with unspecified contents, or `None` if there is no room for it.
    #[must_use]
    pub fn acquire(&self, bytes: usize) -> Option<Lease> {
        let max_bytes = self.shared.max_bytes;
        let mut evicted = Vec::new();
        let reused = {
            let mut state = self.shared.lock();
            let is_over = state
                .allocated()
                .checked_add(bytes)
                .is_none_or(|sum| sum > max_bytes);
            let fitting = state.cached.range(bytes..).next().map(|(len, _)| *len);
            let reusable = fitting.filter(|len| is_over || *len <= bytes.saturating_mul(2));
            match reusable.and_then(|len| state.take(len)) {
                Some(buffer) => {
                    state.active_bytes += buffer.len();
                    Some(buffer)
                }
                None => {
                    if bytes > max_bytes.saturating_sub(state.active_bytes) {
                        return None;
                    }
                    while state.allocated() + bytes > max_bytes {
                        let largest = state.cached.last_key_value().map(|(len, _)| *len)?;
                        evicted.extend(state.take(largest));
                    }
                    state.active_bytes += bytes;
                    None
                }
            }
        };
        // What made room goes before anything new comes, and without the lock.
        drop(evicted);
        let buffer = match reused {
            Some(buffer) => buffer,
            None => match zeroed(bytes) {
                Some(buffer) => buffer,
                None => {
                    self.shared.lock().active_bytes -= bytes;
                    return None;
                }
            },
        };
        Some(Lease {
            shared: Arc::clone(&self.shared),
            buffer,
            bytes,
            is_kept: true,
        })
    }

    /// The most bytes that the pool holds.
    #[must_use]
    pub fn max_bytes(&self) -> usize {
        self.shared.max_bytes
    }

    /// The bytes that are leased or idle.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        self.shared.lock().allocated()
    }

    /// The bytes that are idle.
    #[must_use]
    pub fn cached_bytes(&self) -> usize {
        self.shared.lock().cached_bytes
    }

    /// Gives everything idle back to the system.
    pub fn clear(&self) {
        let cached = {
            let mut state = self.shared.lock();
            state.cached_bytes = 0;
            std::mem::take(&mut state.cached)
        };
        drop(cached);
    }
}

impl State {
    const fn allocated(&self) -> usize {
        self.active_bytes + self.cached_bytes
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fresh memory, whose pages are not touched; `None` if there is none.
fn zeroed(bytes: usize) -> Option<Vec<u8>> {
    // `vec!` leaves the zeroing to the system but ends the process without memory, so ask first.
    let mut probe: Vec<u8> = Vec::new();
    probe.try_reserve_exact(bytes).ok()?;
    drop(probe);
    Some(vec![0; bytes])
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferPool")
            .field("max_bytes", &self.max_bytes())
            .field("allocated_bytes", &self.allocated_bytes())
            .field("cached_bytes", &self.cached_bytes())
            .finish()
    }
}

/// A buffer in use; dereferences to the bytes that were asked for.
pub struct Lease {
    shared: Arc<Shared>,
    /// At least `bytes` long.
    buffer: Vec<u8>,
    bytes: usize,
    is_kept: bool,
}

impl Lease {
    /// Shortens the lease to its first `bytes` bytes; without effect if it is not longer. All memory
    /// stays in use.
    pub fn truncate(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
    }

    /// Gives the memory back to the system instead of the pool: for buffers of a size that did not
    /// pay.
    pub fn discard(mut self) {
        self.is_kept = false;
    }
}

impl Deref for Lease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[..self.bytes]
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.bytes]
    }
}

impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        let mut state = self.shared.lock();
        state.active_bytes -= buffer.len();
        if self.is_kept && !thread::panicking() && !buffer.is_empty() {
            state.cached_bytes += buffer.len();
            state.cached.entry(buffer.len()).or_default().push(buffer);
        } else {
            drop(state);
            drop(buffer);
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("bytes", &self.bytes)
            .field("buffer_bytes", &self.buffer.len())
            .finish()
    }
}
