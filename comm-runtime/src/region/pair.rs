//! What two processes have mapped of each other's memory.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use comm_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::mapping::ReadMapping;
use super::{RegionId, Route, Span};

/// How many regions of one process are mapped at a time.
pub(crate) const MAX_REGIONS: usize = 1024;

/// How many bytes of one process's regions are mapped at a time: address space, not memory.
pub(crate) const MAX_BYTES: u64 = 1 << 40;

/// Names the state in which a table of mapped regions was; a table that is emptied gets a new one, so
/// that what was confirmed before does not count any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Generation(u64);

impl Generation {
    /// One that this process has never named.
    fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// What this process and another one have mapped of each other; see the [module](super).
pub(crate) struct Pair {
    /// Regions of the other process that are mapped here.
    imports: Mutex<Imports>,
    /// Own regions that the other process has confirmed, by address.
    exports: RwLock<Vec<Export>>,
    /// Bytes that were read here from the peer's regions.
    read_bytes: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct Export {
    id: RegionId,
    span: Span,
    /// The table in which the other process has it.
    generation: Generation,
}

struct Imports {
    generation: Generation,
    /// By the address in the other process; no two overlap.
    sorted: Vec<Arc<Import>>,
    /// Over which communicators the other process is reached.
    routes: Vec<Route>,
}

/// One region of another process.
struct Import {
    id: RegionId,
    /// Where it lies there.
    span: Span,
    mapping: ReadMapping,
}

/// Memory of another process that can be read here, as long as this lives.
///
/// The other process may write there at any time, so it is read through raw pointers only.
pub(crate) struct PeerBytes {
    start: *const u8,
    /// Keeps the memory mapped.
    _import: Arc<Import>,
}

impl PeerBytes {
    /// The first byte.
    #[inline]
    pub(crate) const fn as_ptr(&self) -> *const u8 {
        self.start
    }
}

// SAFETY: an address in a mapping that its owner keeps, and that any thread may read.
unsafe impl Send for PeerBytes {}
// SAFETY: as above; it gives out its address only.
unsafe impl Sync for PeerBytes {}

impl fmt::Debug for PeerBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerBytes({:p})", self.start)
    }
}

impl Pair {
    pub(super) fn new() -> Self {
        Self {
            imports: Mutex::new(Imports {
                generation: Generation::next(),
                sorted: Vec::new(),
                routes: Vec::new(),
            }),
            exports: RwLock::default(),
            read_bytes: AtomicU64::new(0),
        }
    }

    /// A pair of this process with itself that has mapped all of `memories`, for tests of what works on
    /// it.
    #[cfg(all(test, target_os = "linux"))]
    pub(crate) fn with_itself<'a>(
        memories: impl IntoIterator<Item = &'a comm_core::memory::SealedMemory>,
    ) -> (Arc<Self>, Generation) {
        let pair = Self::new();
        for (id, memory) in (1..).map(RegionId).zip(memories) {
            let start = memory.as_ptr().addr().get() as u64;
            let span = Span::new(start, memory.len_bytes()).expect("memory has a length");
            let fd = memory.fd().try_clone_to_owned().expect("a descriptor");
            let generation = pair.import(id, span, fd).expect("room for a mapping");
            pair.export(id, span, generation);
        }
        let generation = pair.generation();
        (Arc::new(pair), generation)
    }

    fn imports(&self) -> MutexGuard<'_, Imports> {
        self.imports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of the table of what is mapped here.
    pub(crate) fn generation(&self) -> Generation {
        self.imports().generation
    }

    /// Maps a region of the other process that lies at `span` there; the generation of the table that
    /// has it.
    ///
    /// Mapped regions that overlap with it do not exist any more in the other process, and are
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ResourceExhausted`] beyond the limits, and if there is no address space left;
    /// [`ErrorKind::Protocol`] for a file that is not as announced or not sealed.
    pub(crate) fn import(&self, id: RegionId, span: Span, fd: OwnedFd) -> Result<Generation> {
        let gone = |import: &Import| import.id == id || import.span.overlaps(span);
        drop(self.imports().remove(gone));
        self.imports().check_limits(span)?;
        // To map and unmap takes a while, so it is not done under the lock.
        let mapping = ReadMapping::map(fd, span.bytes())?;
        let import = Arc::new(Import { id, span, mapping });
        let mut imports = self.imports();
        imports.check_limits(span)?;
        let meanwhile = imports.remove(gone);
        let place = imports
            .sorted
            .partition_point(|other| other.span.start() < span.start());
        imports.sorted.insert(place, import);
        let generation = imports.generation;
        drop(imports);
        drop(meanwhile);
        Ok(generation)
    }

    /// Forgets a region that the other process gives up; it is unmapped once nobody reads it.
    pub(crate) fn forget(&self, id: RegionId) {
        let removed = self.imports().remove(|import| import.id == id);
        drop(removed);
    }

    /// Where `bytes` bytes at `address` in the other process can be read here, if they all lie in one
    /// region that is mapped.
    pub(crate) fn find(&self, address: u64, bytes: usize) -> Option<PeerBytes> {
        let span = Span::new(address, bytes)?;
        let imports = self.imports();
        let behind = imports
            .sorted
            .partition_point(|import| import.span.start() <= address);
        let import = imports.sorted.get(behind.checked_sub(1)?)?;
        let offset = import.span.offset_of(span)?;
        Some(PeerBytes {
            start: import.mapping.as_ptr().wrapping_add(offset),
            _import: Arc::clone(import),
        })
    }

    /// Notes that this many bytes were read from the other process's regions.
    pub(crate) fn note_read(&self, bytes: usize) {
        self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The other process has mapped an own region.
    pub(super) fn export(&self, id: RegionId, span: Span, generation: Generation) {
        let mut exports = self.exports.write().unwrap_or_else(PoisonError::into_inner);
        exports.retain(|export| export.id != id);
        let place = exports.partition_point(|other| other.span.start() < span.start());
        exports.insert(
            place,
            Export {
                id,
                span,
                generation,
            },
        );
    }

    /// An own region is none any more.
    pub(super) fn withdraw(&self, id: RegionId) {
        let mut exports = self.exports.write().unwrap_or_else(PoisonError::into_inner);
        exports.retain(|export| export.id != id);
    }

    /// Whether the other process has all of the range, in own memory, in this state of its table.
    pub(crate) fn has_exported(&self, range: Span, generation: Generation) -> bool {
        let exports = self.exports.read().unwrap_or_else(PoisonError::into_inner);
        let behind = exports.partition_point(|export| export.span.start() <= range.start());
        let Some(export) = behind.checked_sub(1).and_then(|at| exports.get(at)) else {
            return false;
        };
        export.generation == generation && export.span.offset_of(range).is_some()
    }

    /// The communicator of this route reaches the other process.
    pub(super) fn begin_use(&self, route: Route) {
        self.imports().routes.push(route);
    }

    /// It does not any more. After the last one nobody offers anything, and everything is unmapped.
    pub(super) fn end_use(&self, route: &Route) {
        let mut imports = self.imports();
        imports.routes.retain(|other| !other.is(route));
        if imports.routes.is_empty() {
            imports.generation = Generation::next();
            let removed = imports.remove(|_| true);
            drop(imports);
            drop(removed);
        }
    }

    /// Over which communicators the other process is reached.
    pub(super) fn routes(&self) -> Vec<Route> {
        self.imports().routes.clone()
    }

    /// Regions and bytes that are mapped here, and bytes that were read from them.
    pub(super) fn usage(&self) -> (usize, u64, u64) {
        let imports = self.imports();
        let read_bytes = self.read_bytes.load(Ordering::Relaxed);
        (imports.sorted.len(), imports.bytes(), read_bytes)
    }
}

impl Imports {
    fn bytes(&self) -> u64 {
        let bytes = self.sorted.iter().map(|import| import.span.bytes() as u64);
        bytes.sum()
    }

    fn remove(&mut self, which: impl Fn(&Import) -> bool) -> Vec<Arc<Import>> {
        self.sorted.extract_if(.., |import| which(import)).collect()
    }

    fn check_limits(&self, span: Span) -> Result<()> {
        let refuse = |what: &'static str| Err(Error::new(ErrorKind::ResourceExhausted, what));
        if self.sorted.len() >= MAX_REGIONS {
            return refuse("a process maps at most 1024 allocations of another one");
        }
        if self.bytes().saturating_add(span.bytes() as u64) > MAX_BYTES {
            return refuse("a process maps at most 1 TiB of another one");
        }
        Ok(())
    }
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (regions, bytes, _) = self.usage();
        f.debug_struct("Pair")
            .field("mapped_regions", &regions)
            .field("mapped_bytes", &bytes)
            .finish_non_exhaustive()
    }
}
