//! Lanes: where the order of operations is kept.
//!
//! # Contract
//!
//! * A communicator has one lane for collectives, and one per peer and direction for messages and
//!   for frames.
//!   Operations of one lane run in the order in which they were submitted; lanes are independent.
//! * At most one thread *drives* a lane at a time: whoever got the driver's role. The role is not
//!   a lock: others can submit meanwhile. A sleeping worker gives it up, so a waiter can take over.
//! * A blocking call that finds its lane idle takes the role with one compare-and-swap and runs its
//!   operation at once. Otherwise, and for asynchronous calls, the operation is queued.
//! * Whoever leaves the role while operations are queued hands the lane to a worker.
//! * User's code that a driver calls (continuations, destinations of frames) gets an error when it
//!   waits for the same lane, which would be for ever.
//!
//! # Synchronisation
//!
//! See [`roster`], which has the role, the queue and the sleeping driver's doorbell.

mod driving;
pub(crate) mod frames;
mod held;
mod key;
pub(crate) mod poison;
mod roster;

use std::cell::{RefCell, UnsafeCell};
use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use comm_core::doorbell::{Doorbell, Doorbells};
use comm_core::{Error, ErrorKind, Rank, Result, Signature};

use crate::blocked::{Passed, Stall};
use crate::call::Active;
use crate::edge::ends::{RecvEnd, SendEnd};
use crate::history::History;
use crate::operation::Ends;
pub(crate) use driving::Driving;
use frames::{RecvLane, RecvRequest, SendLane, SendRequest};
use held::Held;
pub(crate) use key::LaneKey;
use poison::Poison;
use roster::Roster;

/// A submitted operation with what is to happen at its end.
pub(crate) struct Queued {
    pub(crate) active: Active,
    pub(crate) complete: Box<dyn FnOnce(Result<()>) + Send>,
}

impl Queued {
    /// Ends the operation with `result`.
    ///
    /// The state machine goes first: what it offered to peers must be its owner's again when the
    /// owner hears of the end.
    pub(crate) fn finish(self, result: Result<()>) {
        let Self { active, complete } = self;
        drop(active);
        complete(result);
    }
}

impl fmt::Debug for Queued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queued")
            .field("active", &self.active)
            .finish_non_exhaustive()
    }
}

/// What the queue of a lane holds: operations, or on lanes for frames their requests.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a box for operations would be one more allocation for each; queues are short"
)]
pub(crate) enum Submitted {
    Operation(Queued),
    Send(SendRequest),
    Recv(RecvRequest),
}

/// What only the driver touches.
#[derive(Debug, Default)]
pub(crate) struct LaneState {
    /// Sequence number of the next operation.
    pub(crate) next_sequence: u64,
    /// The connected edges.
    pub(crate) ends: Ends,
    /// Sending edges that were asked for and have not come yet.
    pub(crate) requested: HashSet<(Rank, u32)>,
    /// The queued operation that is under way.
    pub(crate) current: Option<Queued>,
    /// Frames that are sent.
    pub(crate) send: SendLane,
    /// Frames that are received.
    pub(crate) recv: RecvLane,
    /// Since when no frame has moved.
    pub(crate) stall: Stall,
}

/// A newly connected end, or the reason why there is none.
#[derive(Debug)]
pub(crate) enum Mail {
    Send {
        peer: Rank,
        channel: u32,
        end: Result<SendEnd>,
    },
    Recv {
        channel: u32,
        end: RecvEnd,
    },
}

/// What a blocked lane waits for; read by the control thread.
#[derive(Clone, Debug)]
pub(crate) struct BlockedState {
    pub(crate) signature: Signature,
    pub(crate) waits_for: Vec<Rank>,
    pub(crate) since: Instant,
    /// When its driver began to look at its edges for the last time, in vain.
    pub(crate) looked: Instant,
}

thread_local! {
    /// The lanes that this thread drives, the innermost last: user's code that is called meanwhile
    /// may drive others.
    static DRIVEN: RefCell<Vec<*const Lane>> = const { RefCell::new(Vec::new()) };
}

/// A thread is inside of a lane's driver; until this is dropped.
#[derive(Debug)]
pub(crate) struct Inside;

impl Drop for Inside {
    fn drop(&mut self) {
        DRIVEN.with_borrow_mut(|driven| driven.pop());
    }
}

/// One ordered sequence of operations.
pub(crate) struct Lane {
    pub(crate) key: LaneKey,
    pub(crate) history: History,
    blocked: Mutex<Option<BlockedState>>,
    /// The threads of the user that wait here.
    pub(crate) held: Held,
    /// How many functions of the user hang on operations of this lane.
    pub(crate) functions: AtomicUsize,
    passed: Mutex<Passed>,
    /// The failure of a lane for frames; others fail with their communicator.
    pub(crate) poison: Poison,
    roster: Roster<Submitted>,
    state: UnsafeCell<LaneState>,
    mailbox: Mutex<Vec<Mail>>,
    has_mail: AtomicBool,
}

// SAFETY: `state` is only accessed through `Driving`, of which at most one exists per lane (the
// driver's role); everything else is `Sync` by itself. The state's contents are `Send`.
unsafe impl Sync for Lane {}

impl Lane {
    pub(crate) fn new(key: LaneKey) -> Self {
        Self {
            key,
            history: History::new(),
            blocked: Mutex::new(None),
            held: Held::default(),
            functions: AtomicUsize::new(0),
            passed: Mutex::default(),
            poison: Poison::default(),
            roster: Roster::new(),
            state: UnsafeCell::new(LaneState::default()),
            mailbox: Mutex::new(Vec::new()),
            has_mail: AtomicBool::new(false),
        }
    }

    /// Takes the driver's role if nobody drives and nothing is queued.
    #[inline]
    pub(crate) fn try_acquire_idle(&self) -> Option<Driving<'_>> {
        // Lazily: a guard that is made and dropped would take the role from its holder.
        self.roster
            .try_acquire_idle()
            .then(|| Driving { lane: self })
    }

    /// Takes the driver's role if nobody drives.
    pub(crate) fn try_acquire(&self) -> Option<Driving<'_>> {
        // Lazily, as above.
        self.roster.try_acquire().then(|| Driving { lane: self })
    }

    /// Whether operations wait for a driver.
    #[inline]
    pub(crate) fn has_queued(&self) -> bool {
        self.roster.has_queued()
    }

    /// Whether nobody drives and nothing is queued or under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.roster.is_idle()
    }

    /// Whether something waits in the queue that nobody has begun.
    pub(crate) fn has_waiting(&self) -> bool {
        self.roster.has_waiting()
    }

    /// Queues an operation behind all others.
    pub(crate) fn submit(&self, submitted: Submitted) {
        self.roster.submit(submitted);
    }

    /// Notes that the calling thread drives the lane and may call user's code meanwhile.
    pub(crate) fn enter(&self) -> Inside {
        DRIVEN.with_borrow_mut(|driven| driven.push(self));
        Inside
    }

    /// Whether the calling thread is inside of some lane's driver.
    pub(crate) fn is_driven_here() -> bool {
        DRIVEN.with_borrow(|driven| !driven.is_empty())
    }

    /// Whether the calling thread may wait for an operation of the lane.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] in user's code that the lane's driver has called: nobody else
    /// can drive the lane before it returns.
    pub(crate) fn may_wait(&self) -> Result<()> {
        let is_inside =
            DRIVEN.with_borrow(|driven| driven.iter().any(|lane| std::ptr::eq(*lane, self)));
        if !is_inside {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InvalidArgument,
            "a continuation waits for an operation that comes after the one that calls it, and \
             cannot run before it returns; chain the asynchronous form instead of waiting",
        )
        .with("lane", self.key))
    }

    /// Brings newly connected ends and wakes a sleeping driver.
    pub(crate) fn deliver(&self, mail: Mail, doorbells: &Doorbells) {
        self.mailbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(mail);
        self.has_mail.store(true, Ordering::Release);
        self.wake(doorbells);
    }

    /// Wakes the driver if it sleeps.
    pub(crate) fn wake(&self, doorbells: &Doorbells) {
        if let Some(sleeper) = self.roster.wake() {
            doorbells.ring(sleeper);
        }
    }

    /// Asks for `doorbell` to be rung when mail comes; whether it has come already.
    pub(crate) fn arm(&self, doorbell: &Doorbell) -> bool {
        self.roster.arm(doorbell.number());
        self.has_mail.load(Ordering::Acquire)
    }

    /// Takes back what [`Lane::arm`] asked for.
    pub(crate) fn disarm(&self) {
        self.roster.disarm();
    }

    /// The mail that has come.
    pub(crate) fn take_mail(&self) -> Vec<Mail> {
        if !self.has_mail.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut mailbox = self.mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_mail.store(false, Ordering::Relaxed);
        std::mem::take(&mut mailbox)
    }

    /// What the lane waits for, if it has been blocked for a while.
    pub(crate) fn blocked(&self) -> Option<BlockedState> {
        self.blocked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The reports of blocked operations that it has passed on.
    pub(crate) fn passed(&self) -> MutexGuard<'_, Passed> {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_blocked(&self, blocked: Option<BlockedState>) {
        if blocked.is_none() {
            self.passed().forget();
        }
        *self.blocked.lock().unwrap_or_else(PoisonError::into_inner) = blocked;
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane")
            .field("key", &self.key)
            .field("roster", &self.roster)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comm_core::doorbell::Doorbells;

    #[test]
    fn only_one_thread_drives_a_lane() {
        let lane = Lane::new(LaneKey::Collective);
        let driving = lane.try_acquire_idle().unwrap();
        assert!(lane.try_acquire_idle().is_none());
        assert!(lane.try_acquire().is_none());
        // An attempt that fails leaves the role with its holder.
        assert!(lane.try_acquire().is_none());
        assert!(lane.try_acquire_idle().is_none());
        drop(driving);
        assert!(lane.try_acquire().is_some());
    }

    #[test]
    fn mail_wakes_a_sleeping_driver() {
        let doorbells = Doorbells::local();
        let lane = Lane::new(LaneKey::Send(1));
        let bell = doorbells.claim().unwrap();
        let ticket = bell.ticket();
        assert!(!lane.arm(&bell));
        let error = comm_core::Error::new(comm_core::ErrorKind::Unavailable, "no way");
        lane.deliver(
            Mail::Send {
                peer: 1,
                channel: 0,
                end: Err(error),
            },
            &doorbells,
        );
        assert!(bell.wait(ticket, Some(std::time::Duration::from_secs(60))));
        assert_eq!(lane.take_mail().len(), 1);
        assert!(lane.take_mail().is_empty());
    }
}
