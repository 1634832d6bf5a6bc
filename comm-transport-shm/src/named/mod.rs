//! Shared memory with a name, for processes that cannot hand each other descriptors.
//!
//! # Contract
//!
//! * Opt-in (`COMM_SHM_NAMED=1`), and a weaker promise than sealed memory files:
//!   - A named segment cannot be sealed. A peer that shrinks one that is in use ends this process
//!     with `SIGBUS`; only processes of the same user can, and ours do not.
//!   - Segments count towards the size of `/dev/shm`, whole and at once: all pages are allocated
//!     before the first access, so a full `/dev/shm` is an error with advice and no signal.
//!   - A connected edge keeps one descriptor open.
//!   - A process that is killed leaves names behind, at least that of its doorbells.
//! * Names are `comm-`, a hash of the job, and 122 random bits. Files have mode 0600. A name that
//!   comes from a peer is checked for this form, and its file for owner, mode and size, before it
//!   is mapped; the mapping's length is compared again afterwards.
//! * The name of an edge's segment exists only while the edge connects: the sending end removes it
//!   when it has the memory. Doorbells keep theirs as long as the process has a communicator.
//! * Whoever creates a segment holds a lock (`flock`) on it until the name is gone. [`sweep`] removes
//!   names of the same user that nobody has locked: their owner is dead, in whatever PID namespace
//!   it was.

mod doorbells;
mod edge;
mod names;
mod segment;

pub use doorbells::NamedDoorbells;
pub use names::sweep;

use doorbells::ring_target;
pub(crate) use edge::{NamedRecvSetup, NamedSendSetup};
use names::NAME_BYTES;
pub(crate) use names::device;
use segment::NamedSegment;
