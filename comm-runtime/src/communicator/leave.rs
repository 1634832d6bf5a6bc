//! Leaving: what happens when the last handle of a communicator is dropped.
//!
//! # Contract
//!
//! * What was submitted to peers goes its way first: its edges may have to be connected, for which this
//!   rank must not have left, and peers may read it from memory of this process.
//! * So does what completed sends left in this process's memory, since the process may end right
//!   afterwards. All that takes no time for a peer that receives; for one that does not, leaving waits
//!   for [`LAST_SENDS`] and warns that messages may be lost.
//! * Then the other ranks are told, after which they expect nothing more.
//! * A communicator that failed, or is dropped by a panic, has nothing left to send.

use std::sync::Arc;
use std::time::{Duration, Instant};

use comm_core::{Error, ErrorKind};

use super::Core;
use crate::control::FAILED_RANK;
use crate::lane::{Lane, LaneKey};

/// How long leaving waits for peers that do not receive what was sent to them.
const LAST_SENDS: Duration = Duration::from_secs(5);

/// How long it rests between two looks at what is under way.
const REST: Duration = Duration::from_millis(1);

/// Leaves the communicator when it is dropped.
#[derive(Debug)]
pub(super) struct LeaveOnDrop {
    core: Arc<Core>,
}

impl LeaveOnDrop {
    pub(super) const fn new(core: Arc<Core>) -> Self {
        Self { core }
    }
}

impl Drop for LeaveOnDrop {
    fn drop(&mut self) {
        if self.core.fork.in_child() {
            // Dropping the edges would close them in the memory that the parent still uses.
            std::mem::forget(Arc::clone(&self.core));
            return;
        }
        if std::thread::panicking() {
            let rank = self.core.rank;
            let text = format!("rank {rank} panicked and dropped its communicator");
            let error = Error::new(ErrorKind::PeerDied, text);
            self.core.fail(error.with(FAILED_RANK, rank));
        }
        // The control thread must not wait, for itself above all.
        if !self.core.abort.has_failed() && !self.core.process.core().on_control_thread() {
            let deadline = Instant::now() + LAST_SENDS;
            self.core.finish_submitted(deadline);
            self.core.send_the_last(deadline);
        }
        self.core.leave_plane();
    }
}

impl Core {
    /// Waits until nothing is under way that peers receive, until `deadline` at most. Operations that
    /// only receive concern nobody else.
    fn finish_submitted(&self, deadline: Instant) {
        if Lane::is_driven_here() {
            // In user's code: what is under way could need this very thread.
            return;
        }
        let sends = |lane: &Lane| match lane.key {
            LaneKey::Collective | LaneKey::Send(_) | LaneKey::FrameSend(_) => !lane.is_idle(),
            LaneKey::Recv(_) | LaneKey::FrameRecv(_) => false,
        };
        while self.lanes().any(sends) && !self.abort.has_failed() && Instant::now() < deadline {
            std::thread::sleep(REST);
        }
    }

    /// Waits until the network has what was sent, until `deadline` at most.
    fn send_the_last(&self, deadline: Instant) {
        for lane in self.lanes() {
            // One that is driven has operations under way, which keep the core and its edges.
            let Some(mut driving) = lane.try_acquire() else {
                continue;
            };
            for end in &mut driving.ends.send {
                if !end.quiesce(deadline) && !self.has_left(end.peer) && !self.abort.has_failed() {
                    tracing::warn!(
                        rank = self.rank,
                        peer = end.peer,
                        "the communicator is dropped and the peer has not received what was sent to \
                         it, which is lost if this process ends now; let all ranks meet in a barrier \
                         before they end"
                    );
                }
            }
            self.leave(lane, driving);
        }
    }
}
