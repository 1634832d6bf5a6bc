//! Leaving: what happens when the last handle of a communicator is dropped.
//!
//! # Contract
//!
//! * What was submitted to peers goes its way first: its edges may have to be connected, for which this
//!   rank must not have left, and peers may read it from memory of this process.
//! * So does what completed sends left in this process's memory, since the process may end right
//!   afterwards. All that takes no time for a peer that receives; for one that does not, leaving waits
//!   for [`LAST_SENDS`] and warns that messages may be lost. Time in which this process was stopped itself
//!   does not count: peers of the same host were stopped with it.
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

/// In how many parts it waits. Of the time in which this process did not run, one part counts.
const PARTS: u32 = 50;

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
            let mut patience = Patience::new(LAST_SENDS);
            self.core.finish_submitted(&mut patience);
            self.core.send_the_last(&mut patience);
        }
        self.core.leave_plane();
    }
}

/// Time to wait, of which only that counts in which this process runs.
#[derive(Debug)]
struct Patience {
    left: Duration,
    part: Duration,
}

impl Patience {
    fn new(limit: Duration) -> Self {
        Self {
            left: limit,
            part: limit / PARTS,
        }
    }

    /// Lets something wait until it is done, each time for a part; whether it is. What returns before its
    /// time will never be.
    fn wait(&mut self, mut is_done_by: impl FnMut(Instant) -> bool) -> bool {
        loop {
            let (start, part) = (Instant::now(), self.part.min(self.left));
            if is_done_by(start + part) {
                return true;
            }
            let waited = start.elapsed();
            self.spend(waited);
            if waited < part || self.left.is_zero() {
                return false;
            }
        }
    }

    /// Takes note of time that went by.
    fn spend(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(time.min(self.part));
    }
}

impl Core {
    /// Waits until nothing is under way that peers receive, or the patience is at its end. Operations
    /// that only receive concern nobody else.
    fn finish_submitted(&self, patience: &mut Patience) {
        if Lane::is_driven_here() {
            // In user's code: what is under way could need this very thread.
            return;
        }
        let sends = |lane: &Lane| match lane.key {
            LaneKey::Collective | LaneKey::Send(_) | LaneKey::FrameSend(_) => !lane.is_idle(),
            LaneKey::Recv(_) | LaneKey::FrameRecv(_) => false,
        };
        while self.lanes().any(sends) && !self.abort.has_failed() && !patience.left.is_zero() {
            let start = Instant::now();
            std::thread::sleep(REST);
            patience.spend(start.elapsed());
        }
    }

    /// Waits until the network has what was sent, or the patience is at its end.
    fn send_the_last(&self, patience: &mut Patience) {
        for lane in self.lanes() {
            // One that is driven has operations under way, which keep the core and its edges.
            let Some(mut driving) = lane.try_acquire() else {
                continue;
            };
            for end in &mut driving.ends.send {
                let is_sent = patience.wait(|deadline| end.quiesce(deadline));
                if !is_sent && !self.has_left(end.peer) && !self.abort.has_failed() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_the_process_was_stopped_counts_as_one_part() {
        let mut patience = Patience::new(Duration::from_secs(50));
        patience.spend(Duration::from_secs(3600));
        assert_eq!(patience.left, Duration::from_secs(49));
        patience.spend(Duration::from_millis(300));
        assert_eq!(patience.left, Duration::from_millis(48_700));
    }

    #[test]
    fn a_wait_goes_on_in_parts_until_it_is_done_or_the_time_is_over() {
        let until = |deadline: Instant| {
            std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
        };
        let mut tries = 0;
        let done = Patience::new(Duration::from_secs(1)).wait(|deadline| {
            until(deadline);
            tries += 1;
            tries == 3
        });
        assert!(done);
        let mut patience = Patience::new(Duration::from_millis(100));
        assert!(!patience.wait(|deadline| {
            until(deadline);
            false
        }));
        assert!(patience.left.is_zero());
    }

    #[test]
    fn what_returns_before_its_time_is_not_asked_again() {
        let mut tries = 0;
        assert!(!Patience::new(Duration::from_secs(3600)).wait(|_| {
            tries += 1;
            false
        }));
        assert_eq!(tries, 1);
    }
}
