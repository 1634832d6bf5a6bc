//! Memory that the processes of one host read directly: regions.
//!
//! A *region* is what one call of [`mem_alloc`](crate::Communicator::mem_alloc) returned: a memory file
//! that only its owner can write. The owner announces it to the processes that its shared memory edges
//! lead to, they map it for reading, and from then on an operation can tell them addresses in it instead
//! of copying the contents.
//!
//! # Contract
//!
//! * What two processes have mapped of each other is one [`Pair`], whichever communicators connect
//!   them. It serves all of these, and ends with the last one.
//! * **The owner decides.** Only memory that the owner says lies in a region, and that the reader has
//!   confirmed in the state in which its table is ([`Generation`]), is looked up by the reader. So an
//!   address that means something else by now (the memory was freed, and something else is there) is
//!   never taken for a region that was there before: between a region's withdrawal and its unmapping
//!   by the reader nobody vouches for it.
//! * **Withdrawal** happens before the owner unmaps. Readers hear of it later, and unmap when nobody
//!   reads any more ([`PeerBytes`] keeps what is being read). What a reader still has mapped is its own
//!   mapping of a sealed file: it may read old contents, for an operation that has ended, but never
//!   memory that is not there.
//! * **Nobody is trusted.** Sizes and seals are checked, addresses are looked up and never used, and a
//!   process maps a bounded number of regions and bytes ([`MAX_REGIONS`], [`MAX_BYTES`]) of each other
//!   one. A no is an answer: that traffic goes through slots, as without regions.
//! * No lock is held while anybody waits for a peer.
//! * In a forked child regions are not mapped, and dropping their tensors does nothing.

mod mapping;
mod neighbours;
mod own;
mod pair;
mod span;
#[cfg(all(test, target_os = "linux"))]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use comm_core::{ProcessId, Rank};
use serde::{Deserialize, Serialize};

use crate::communicator::Core;

pub(crate) use neighbours::Neighbours;
pub(crate) use own::{Region, RegionStorage};
pub(crate) use pair::{Generation, Pair, PeerBytes};
#[cfg(doc)]
use pair::{MAX_BYTES, MAX_REGIONS};
pub(crate) use span::Span;

/// Names a region among those of its process; never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct RegionId(u64);

/// What the processes tell each other about regions.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum RegionMessage {
    /// The owner asks for the file that comes with it to be mapped; it lies at `span` there.
    Map { id: RegionId, span: Span },
    /// It is mapped, in this state of the table, or it is not, for this reason.
    Answer {
        id: RegionId,
        result: Result<Generation, String>,
    },
    /// The owner gives the region up.
    Withdraw { id: RegionId },
}

/// A rank of another process, as one communicator reaches it.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) core: Weak<Core>,
    pub(crate) rank: Rank,
}

impl Route {
    fn is(&self, other: &Self) -> bool {
        Weak::ptr_eq(&self.core, &other.core)
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Route(rank {})", self.rank)
    }
}

/// What a process has allocated and mapped for direct reading; see
/// [`Communicator::mem_stats`](crate::Communicator::mem_stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemStats {
    /// Allocations of `mem_alloc` that live.
    pub allocated_regions: usize,
    /// Their size.
    pub allocated_bytes: u64,
    /// Allocations of other processes that are mapped here.
    pub mapped_regions: usize,
    /// Their size: address space, since the memory is the other processes'.
    pub mapped_bytes: u64,
    /// How much was read directly from them so far, by the communicators that live.
    pub read_bytes: u64,
}

impl fmt::Display for MemStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes in {} allocations, {} bytes in {} allocations of peers mapped, {} bytes read \
             directly",
            self.allocated_bytes,
            self.allocated_regions,
            self.mapped_bytes,
            self.mapped_regions,
            self.read_bytes
        )
    }
}

/// The regions of this process and its pairs with others.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    last: AtomicU64,
    own: Mutex<HashMap<RegionId, Weak<Region>>>,
    pairs: Mutex<HashMap<ProcessId, Weak<Pair>>>,
}

impl Regions {
    fn own(&self) -> MutexGuard<'_, HashMap<RegionId, Weak<Region>>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pairs(&self) -> MutexGuard<'_, HashMap<ProcessId, Weak<Pair>>> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new region over own memory.
    pub(crate) fn add(self: &Arc<Self>, span: Span) -> Arc<Region> {
        let id = RegionId(self.last.fetch_add(1, Ordering::Relaxed) + 1);
        let region = Arc::new(Region::new(id, span, Arc::clone(self)));
        self.own().insert(id, Arc::downgrade(&region));
        region
    }

    /// An own region that lives.
    pub(crate) fn get(&self, id: RegionId) -> Option<Arc<Region>> {
        self.own().get(&id).and_then(Weak::upgrade)
    }

    fn remove(&self, id: RegionId) {
        self.own().remove(&id);
    }

    /// All own regions.
    pub(crate) fn all(&self) -> Vec<Arc<Region>> {
        self.own().values().filter_map(Weak::upgrade).collect()
    }

    /// The pair with another process, or with this one: ranks that are threads can be connected like
    /// processes.
    pub(crate) fn pair(&self, process: ProcessId) -> Arc<Pair> {
        let mut pairs = self.pairs();
        if let Some(pair) = pairs.get(&process).and_then(Weak::upgrade) {
            return pair;
        }
        let pair = Arc::new(Pair::new());
        pairs.retain(|_, pair| pair.strong_count() > 0);
        pairs.insert(process, Arc::downgrade(&pair));
        pair
    }

    /// What there is at the moment.
    pub(crate) fn stats(&self) -> MemStats {
        let mut stats = MemStats::default();
        for region in self.all() {
            stats.allocated_regions += 1;
            stats.allocated_bytes += region.span().bytes() as u64;
        }
        let pairs: Vec<_> = self.pairs().values().filter_map(Weak::upgrade).collect();
        for pair in pairs {
            let (regions, bytes, read_bytes) = pair.usage();
            stats.mapped_regions += regions;
            stats.mapped_bytes += bytes;
            stats.read_bytes += read_bytes;
        }
        stats
    }
}
