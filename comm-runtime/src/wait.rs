//! How a thread waits for its peers: spin, then yield, then sleep.
//!
//! # Contract
//!
//! * Spinning is bounded, and does not happen at all when the host runs more ranks than it has
//!   CPUs: then the CPU is given to the rank that is waited for.
//! * After the yield phase the thread sleeps on its doorbell and costs no CPU.
//! * A yield that took long ends that phase: whoever runs instead, it is better to be woken than to be
//!   the next in turn. The clock is not read before the first yield.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use comm_core::blocking::about_to_block;
use comm_core::doorbell::{Doorbell, Doorbells};
use comm_core::{PeerInfo, Result};
use std::sync::Arc;

/// A yield this long went to somebody who computes: longer than a rank that only passes data on needs.
const LONG_YIELD: Duration = Duration::from_micros(500);

/// How long each phase of a wait lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitPolicy {
    /// Looks at the edges with a pause instruction in between.
    pub spins: u32,
    /// Looks at the edges with the CPU offered to other threads in between.
    pub yields: u32,
}

impl WaitPolicy {
    /// The policy for ranks of which each has a CPU of its own.
    ///
    /// It spins for about the price of ten wake-ups from sleep and never yields: a yield would lend
    /// the CPU to a stranger for a whole time slice, which is a thousand times the price of a wake-up.
    pub const ALONE: Self = Self {
        spins: 2000,
        yields: 0,
    };

    /// The policy for a host that runs `ranks` ranks on `cpus` CPUs.
    ///
    /// A spin takes some 50 ns, a yield with nobody else to run some 300 ns, a wake-up from sleep
    /// several microseconds. Spinning pays for answers that come within a few microseconds, and
    /// costs its whole length when the kernel has put both ranks on one CPU; so it is short, and
    /// yields bridge the rest up to the price of a wake-up. A rank that shares its CPU yields at
    /// once, and for longer, since each yield lets a peer run.
    #[must_use]
    pub const fn for_load(ranks: u32, cpus: u32) -> Self {
        if ranks > cpus {
            Self {
                spins: 0,
                yields: 400,
            }
        } else {
            Self {
                spins: 60,
                yields: 100,
            }
        }
    }

    /// The policy for `own`, from the facts of all ranks.
    ///
    /// Ranks that are bound to one CPU each count as having a CPU of their own, if the host has as
    /// many CPUs as ranks (`online_cpus`, 0 if that is not known).
    #[must_use]
    pub fn from_facts(own: &PeerInfo, peers: &[PeerInfo], online_cpus: u32) -> Self {
        let local = || peers.iter().filter(|peer| peer.host == own.host);
        let ranks = u32::try_from(local().count()).unwrap_or(u32::MAX);
        let bound = local().all(|peer| peer.cpus == 1);
        if bound && ranks <= online_cpus {
            return Self::ALONE;
        }
        Self::for_load(ranks, own.cpus)
    }
}

/// One wait, from the first unsuccessful look until something moved.
#[derive(Debug)]
pub(crate) struct Wait {
    policy: WaitPolicy,
    looks: u32,
}

/// What the waiting thread does before it looks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// It has spun or yielded already.
    LookAgain,
    /// It should arm its edges and sleep.
    Sleep,
}

impl Wait {
    pub(crate) const fn new(policy: WaitPolicy) -> Self {
        Self { policy, looks: 0 }
    }

    /// Starts over, since something moved.
    #[inline]
    pub(crate) const fn moved(&mut self) {
        self.looks = 0;
    }

    /// Lets a little time pass after an unsuccessful look.
    #[inline]
    pub(crate) fn pause(&mut self) -> Pause {
        if self.looks < self.policy.spins {
            self.looks += 1;
            std::hint::spin_loop();
            return Pause::LookAgain;
        }
        if self.looks < self.policy.spins + self.policy.yields {
            self.looks += 1;
            let before = Instant::now();
            std::thread::yield_now();
            if before.elapsed() >= LONG_YIELD {
                // Somebody else has work for a while; a sleeper gets the CPU back when it is wanted.
                self.looks = self.policy.spins + self.policy.yields;
            }
            return Pause::LookAgain;
        }
        Pause::Sleep
    }
}

thread_local! {
    /// The doorbell of this thread; claimed at its first sleep.
    static DOORBELL: RefCell<Option<Doorbell>> = const { RefCell::new(None) };
}

/// Calls `sleep` with the calling thread's doorbell in `doorbells`. Not for threads that sleep because
/// they have nothing to do.
///
/// # Errors
///
/// If all doorbells are taken, and whatever `sleep` returns.
pub(crate) fn with_doorbell<T>(
    doorbells: &Arc<Doorbells>,
    sleep: impl FnOnce(&Doorbell) -> Result<T>,
) -> Result<T> {
    about_to_block();
    DOORBELL.with_borrow_mut(|cached| {
        let doorbell = match cached.take() {
            Some(doorbell) if Arc::ptr_eq(doorbell.set(), doorbells) => doorbell,
            _ => doorbells.claim()?,
        };
        let result = sleep(&doorbell);
        *cached = Some(doorbell);
        result
    })
}

/// The time until `deadline`, at most `limit`; `None` if the deadline has passed.
pub(crate) fn until(deadline: Option<Instant>, limit: Duration) -> Option<Duration> {
    let Some(deadline) = deadline else {
        return Some(limit);
    };
    let left = deadline.checked_duration_since(Instant::now())?;
    (!left.is_zero()).then(|| left.min(limit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use comm_core::{HostId, ProcessId};

    #[test]
    fn more_ranks_than_cpus_never_spin() {
        assert_eq!(WaitPolicy::for_load(4, 2).spins, 0);
        assert!(WaitPolicy::for_load(2, 2).spins > 0);
    }

    #[test]
    fn only_ranks_that_are_bound_to_cpus_of_their_own_never_yield() {
        let bound = |rank| {
            let mut info = PeerInfo::new(rank, HostId([0; 16]), ProcessId([0; 16]));
            info.cpus = 1;
            info
        };
        let peers = [bound(0), bound(1), bound(2)];
        let policy = |online| WaitPolicy::from_facts(&peers[0], &peers, online);
        assert_eq!(policy(3), WaitPolicy::ALONE);
        for online in [0, 2] {
            assert_eq!(policy(online), WaitPolicy::for_load(3, 1));
        }
    }

    #[test]
    fn a_wait_ends_in_sleep_and_starts_over_when_something_moved() {
        let mut wait = Wait::new(WaitPolicy {
            spins: 2,
            yields: 1,
        });
        for _ in 0..3 {
            assert_eq!(wait.pause(), Pause::LookAgain);
        }
        assert_eq!(wait.pause(), Pause::Sleep);
        wait.moved();
        assert_eq!(wait.pause(), Pause::LookAgain);
    }

    #[test]
    fn a_passed_deadline_leaves_no_time() {
        assert_eq!(
            until(Some(Instant::now() - Duration::from_secs(1)), Duration::MAX),
            None
        );
        assert_eq!(
            until(None, Duration::from_secs(1)),
            Some(Duration::from_secs(1))
        );
    }
}
