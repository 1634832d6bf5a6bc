//! How a rank leaves.
//!
//! # Contract
//!
//! * What was submitted or sent before still reaches the peers, if they take it within [`SENDING`]: edges
//!   may have to be connected for it, peers may read it from memory of this process, and what a network
//!   has not taken ends with the process.
//! * Then the goodbye is said. Whoever waits for this rank after that, or for what never comes, gets an
//!   error.
//! * A communicator that has failed is left at once, and so is one that is dropped in user's code that a
//!   driver calls: what is waited for could need this very thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use comm_core::{Error, ErrorKind};

use super::Core;
use crate::lane::{Lane, LaneKey};

/// How long a rank that leaves waits for peers to take what it has sent.
const SENDING: Duration = Duration::from_secs(10);

/// How long it waits for the network before it looks whether the communicator has failed.
const LOOK: Duration = Duration::from_millis(100);

/// How long it rests between two looks.
const REST: Duration = Duration::from_millis(1);

/// Leaves when the last handle of a communicator is dropped.
#[derive(Debug)]
pub(super) struct LeaveOnDrop {
    pub(super) core: Arc<Core>,
}

impl Drop for LeaveOnDrop {
    fn drop(&mut self) {
        if self.core.fork.in_child() {
            // Dropping the edges would close them in the memory that the parent still uses.
            std::mem::forget(Arc::clone(&self.core));
            return;
        }
        if std::thread::panicking() {
            self.core.fail(Error::new(
                ErrorKind::PeerDied,
                format!(
                    "rank {} panicked and dropped its communicator",
                    self.core.rank
                ),
            ));
        }
        if !Lane::is_driven_here() && !self.core.process.core().on_control_thread() {
            self.core.finish_sending();
        }
        self.core.leave_plane();
    }
}

impl Core {
    /// Waits until peers need this rank no longer for what it has sent.
    fn finish_sending(&self) {
        let deadline = Instant::now() + SENDING;
        for lane in self.lanes() {
            if !self.finish_lane(lane, deadline) && !self.abort.has_failed() {
                tracing::warn!(
                    rank = self.rank,
                    lane = %lane.key,
                    limit = ?SENDING,
                    "left before a peer has taken all that was sent; it may miss the rest"
                );
            }
        }
    }

    /// Whether a lane has sent everything by `deadline`.
    fn finish_lane(&self, lane: &Lane, deadline: Instant) -> bool {
        if let LaneKey::Recv(_) | LaneKey::FrameRecv(_) = lane.key {
            // Acknowledgements are on their way when the frame is its receiver's.
            return true;
        }
        while !self.abort.has_failed() {
            let now = Instant::now();
            if !lane.has_queued()
                && let Some(mut driving) = lane.try_acquire()
            {
                let by = deadline.min(now + LOOK);
                let mut ends = driving.ends.send.iter_mut();
                let all_sent = ends.all(|end| end.finish(by));
                self.leave(lane, driving);
                if all_sent {
                    return true;
                }
            }
            if now >= deadline {
                return false;
            }
            std::thread::sleep(REST);
        }
        true
    }
}
