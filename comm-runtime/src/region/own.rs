//! The owner's side of a region.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use comm_core::blocking::about_to_block;
use comm_core::{MemoryKind, ProcessId, Rank, Storage};

use super::mapping::SharedMapping;
use super::{Generation, Pair, RegionId, RegionMessage, Regions, Route, Span};
use crate::communicator::Core;
use crate::fork::ForkGuard;

/// An allocation of this process that others may have mapped.
pub(crate) struct Region {
    id: RegionId,
    span: Span,
    regions: Arc<Regions>,
    state: Mutex<State>,
    /// An answer came, or will not come.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The memory is about to go: no answer counts any more.
    withdrawn: bool,
    readers: Vec<Reader>,
}

/// A process to which the region was announced.
#[derive(Debug)]
struct Reader {
    process: ProcessId,
    /// Keeps nothing alive.
    pair: Weak<Pair>,
    route: Route,
    /// Whether it answered, or never will.
    settled: bool,
}

impl Region {
    pub(super) fn new(id: RegionId, span: Span, regions: Arc<Regions>) -> Self {
        Self {
            id,
            span,
            regions,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(crate) const fn id(&self) -> RegionId {
        self.id
    }

    pub(crate) const fn span(&self) -> Span {
        self.span
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The region is about to be announced to this process.
    pub(crate) fn expect(&self, process: ProcessId, pair: &Arc<Pair>, route: Route) {
        self.state().readers.push(Reader {
            process,
            pair: Arc::downgrade(pair),
            route,
            settled: false,
        });
    }

    /// Whether this process was asked.
    pub(crate) fn is_expected(&self, process: ProcessId) -> bool {
        let state = self.state();
        state.readers.iter().any(|reader| reader.process == process)
    }

    /// A process has mapped the region, in this state of its table, or can't; nothing happens if it was
    /// not asked.
    pub(crate) fn answer(&self, process: ProcessId, mapped: Option<Generation>) {
        let mut state = self.state();
        let withdrawn = state.withdrawn;
        let mut readers = state.readers.iter_mut();
        let Some(reader) = readers.find(|reader| reader.process == process) else {
            return;
        };
        reader.settled = true;
        // Under the lock, so that a withdrawal comes before or sees it.
        if let (false, Some(generation), Some(pair)) = (withdrawn, mapped, reader.pair.upgrade()) {
            pair.export(self.id, self.span, generation);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Nothing comes any more from these ranks of a communicator.
    pub(crate) fn give_up(&self, core: &Weak<Core>, ranks: impl Fn(Rank) -> bool) {
        let mut state = self.state();
        for reader in &mut state.readers {
            if Weak::ptr_eq(&reader.route.core, core) && ranks(reader.route.rank) {
                reader.settled = true;
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until all that were asked have answered or never will; those that did not by `deadline`.
    pub(crate) fn wait(&self, deadline: Instant) -> Vec<ProcessId> {
        about_to_block();
        let mut state = self.state();
        loop {
            let open = state.readers.iter().filter(|reader| !reader.settled);
            let open: Vec<_> = open.map(|reader| reader.process).collect();
            let left = deadline.saturating_duration_since(Instant::now());
            if open.is_empty() || left.is_zero() {
                return open;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Nobody may be told of the memory from now on; readers hear that they can unmap it.
    pub(crate) fn withdraw(&self) {
        self.regions.remove(self.id);
        let readers = {
            let mut state = self.state();
            state.withdrawn = true;
            std::mem::take(&mut state.readers)
        };
        for reader in readers {
            let Some(pair) = reader.pair.upgrade() else {
                continue;
            };
            pair.withdraw(self.id);
            // The same way as the announcement, behind which it comes then; else any.
            let message = RegionMessage::Withdraw { id: self.id };
            let told = std::iter::once(reader.route)
                .chain(pair.routes())
                .any(|route| {
                    let core = route.core.upgrade();
                    core.is_some_and(|core| core.tell_region(route.rank, &message, None).is_ok())
                });
            if !told {
                tracing::debug!(
                    region = ?self.id,
                    "a process is not told that memory is gone; it unmaps it with its communicators"
                );
            }
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("id", &self.id)
            .field("span", &self.span)
            .finish_non_exhaustive()
    }
}

/// The memory of a region, as a tensor owns it; withdrawn and given back when dropped.
pub(crate) struct RegionStorage {
    region: Arc<Region>,
    mapping: ManuallyDrop<SharedMapping>,
    fork: ForkGuard,
}

impl RegionStorage {
    /// The owner of `mapping`, at which the region lies.
    pub(crate) const fn new(region: Arc<Region>, mapping: SharedMapping, fork: ForkGuard) -> Self {
        Self {
            region,
            mapping: ManuallyDrop::new(mapping),
            fork,
        }
    }
}

impl Drop for RegionStorage {
    fn drop(&mut self) {
        // A forked child does not have the mapping, and something else may be there.
        if self.fork.in_child() {
            return;
        }
        self.region.withdraw();
        // SAFETY: dropped once, here, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.mapping) };
    }
}

// SAFETY: the mapping is zeroed and then initialised memory that stays in place until the drop. Its file
// is sealed against every other writer before anybody else gets it, or nobody gets it; this process has
// no other mapping of it that can be written.
unsafe impl Storage for RegionStorage {
    fn as_ptr(&self) -> NonNull<u8> {
        self.mapping.as_ptr()
    }

    fn len_bytes(&self) -> usize {
        self.mapping.len_bytes()
    }

    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn is_writable(&self) -> bool {
        true
    }
}

impl fmt::Debug for RegionStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegionStorage({} bytes)", self.mapping.len_bytes())
    }
}
