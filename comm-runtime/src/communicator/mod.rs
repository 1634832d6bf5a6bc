//! The communicator: a set of ranks that move and reduce data together.
//!
//! # Contract
//!
//! * `&self` everywhere and thread-safe. Collectives run in submission order; messages have one
//!   queue per peer and direction, independent of collectives and of each other. Calling the same
//!   collectives in the same order on all ranks is the caller's duty; a breach is reported.
//! * Blocking calls borrow slices and return when the buffers are the caller's again. Asynchronous
//!   calls own their tensors and give them back through [`Work`](comm_core::Work).
//! * `send` completes when its buffer is reusable, which does not mean that the message was
//!   received.
//! * The first failure, wherever it happens, ends the communicator on all ranks: operations in
//!   flight, and the first one after it, return its cause, later ones [`ErrorKind::Poisoned`] with
//!   the cause. Nothing hangs.
//! * Dropping the last handle leaves in order: what was sent still arrives, and peers that
//!   wait for more get an error. Dropped during a panic, it counts as the death of the rank.
//! * After a fork the child's copy of a communicator returns an error.

mod blocks;
mod collectives;
mod control;
mod explain;
mod family;
pub mod frames;
mod init;
mod leave;
mod memory;
mod messages;
mod regions;
mod tensors;
mod users;

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use comm_core::{Error, ErrorKind, PeerInfo, PendingFunction, Rank, Result, Transport};

pub use explain::{Explanation, TransportTable};
use family::Origin;
pub use init::{CommunicatorBuilder, TransportContext, TransportFactory};
use leave::LeaveOnDrop;
pub use users::Caller;
use users::Users;

use crate::abort::AbortState;
use crate::blocked::Acted;
use crate::call::{Active, Call};
use crate::control::{ControlPlane, Process};
use crate::drive::{LaneDriver, Queue};
use crate::edge::connect::Connector;
use crate::fork::ForkGuard;
use crate::lane::{Lane, LaneKey, Queued, Submitted};
use crate::plan::Planner;
use crate::region::Neighbours;
use crate::wait::WaitPolicy;
use crate::worker::WorkerPool;

/// A set of ranks that move and reduce data together; see the [module documentation](self).
///
/// Clones are handles of the same communicator.
#[derive(Clone)]
pub struct Communicator {
    core: Arc<Core>,
    /// Leaves when the last handle is dropped; the core itself may live on in workers.
    _leave: Arc<LeaveOnDrop>,
}

/// What all handles, the control thread and the workers share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) rank: Rank,
    pub(crate) peers: Vec<PeerInfo>,
    pub(crate) abort: AbortState,
    pub(crate) policy: WaitPolicy,
    pub(crate) planner: Planner,
    pub(crate) process: Arc<Process>,
    pub(crate) control: Arc<ControlPlane>,
    pub(crate) transports: Vec<Arc<dyn Transport>>,
    pub(crate) connector: Connector,
    pub(crate) neighbours: Neighbours,
    pub(crate) connect_timeout: Duration,
    pub(crate) operation_timeout: Option<Duration>,
    workers: Arc<WorkerPool>,
    collective: Lane,
    send: Box<[OnceLock<Lane>]>,
    recv: Box<[OnceLock<Lane>]>,
    frame_send: Box<[OnceLock<Lane>]>,
    frame_recv: Box<[OnceLock<Lane>]>,
    /// Bytes of frames to one peer that may be on their way without acknowledgement.
    pub(crate) frame_window_bytes: u64,
    users: Users,
    pub(crate) acted: Acted,
    /// Circles that were warned of already.
    warned: Mutex<HashSet<String>>,
    /// Ranks that have said goodbye.
    left: Mutex<HashSet<Rank>>,
    transport_table: TransportTable,
    origin: Origin,
    /// Where the ranks met, in words.
    meeting: String,
    fork: ForkGuard,
    this: OnceLock<Weak<Self>>,
}

impl Core {
    pub(crate) fn world_size(&self) -> u32 {
        u32::try_from(self.peers.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn this(&self) -> Option<Arc<Self>> {
        self.this.get().and_then(Weak::upgrade)
    }

    /// The lane of this key; lanes of messages come to life when they are first asked for.
    #[inline]
    pub(crate) fn lane(&self, key: LaneKey) -> Option<&Lane> {
        let (lanes, peer) = match key {
            LaneKey::Collective => return Some(&self.collective),
            LaneKey::Send(peer) => (&self.send, peer),
            LaneKey::Recv(peer) => (&self.recv, peer),
            LaneKey::FrameSend(peer) => (&self.frame_send, peer),
            LaneKey::FrameRecv(peer) => (&self.frame_recv, peer),
        };
        Some(lanes.get(peer as usize)?.get_or_init(|| Lane::new(key)))
    }

    #[inline]
    pub(crate) const fn collective_lane(&self) -> &Lane {
        &self.collective
    }

    /// All lanes that have come to life.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &Lane> {
        let messages = self.send.iter().chain(&self.recv);
        let frames = self.frame_send.iter().chain(&self.frame_recv);
        let messages = messages.chain(frames).filter_map(OnceLock::get);
        std::iter::once(&self.collective).chain(messages)
    }

    /// Has a worker drive what is queued on a lane.
    pub(crate) fn kick_worker(&self, key: LaneKey) {
        let Some(core) = self.this() else { return };
        if let Err(error) = self.workers.kick(core, key) {
            self.fail(error);
            // Nobody else will complete what is queued; each step now ends with the failure.
            if let Some(lane) = self.lane(key)
                && let Some(mut driving) = lane.try_acquire()
            {
                while self.drive_queue(lane, &mut driving) != Queue::Empty {}
            }
        }
    }

    /// Runs a call on the calling thread: at once on an idle lane, else behind what is queued.
    #[inline]
    pub(crate) fn run_blocking(&self, key: LaneKey, call: Call) -> Result<()> {
        self.users.note();
        let lane = self
            .lane(key)
            .ok_or_else(|| no_such_rank(key, self.world_size()))?;
        let active = Active::new(call, self.operation_timeout);
        match lane.try_acquire_idle() {
            Some(driving) => match self.check_usable() {
                Ok(()) => self.run(lane, driving, active),
                Err(error) => {
                    self.leave(lane, driving);
                    Err(error)
                }
            },
            None => self.run_queued(lane, active),
        }
    }

    #[cold]
    fn run_queued(&self, lane: &Lane, active: Active) -> Result<()> {
        lane.may_wait()?;
        // The borrowed buffers stay valid: `wait` returns when the operation is complete.
        let (work, completer) = comm_core::Work::channel();
        self.submit(lane, active, move |result| completer.complete(result))?;
        let driver = self.this().map(|core| LaneDriver {
            core,
            key: lane.key,
        });
        let _hold = lane.held.hold();
        while !work.is_done() {
            let mut drove = false;
            if let Some(driver) = &driver {
                drove = comm_core::Drive::drive(driver, &|| work.is_done(), None);
            }
            if !drove {
                // Whoever drives completes it; this thread only looks again.
                let _ = work.wait_timeout(Duration::from_millis(10))?;
            }
        }
        work.wait()
    }

    /// Queues a call; `complete` is called exactly once, by whoever drives it to its end.
    pub(crate) fn submit(
        &self,
        lane: &Lane,
        active: Active,
        complete: impl FnOnce(Result<()>) + Send + 'static,
    ) -> Result<()> {
        self.users.note();
        self.check_usable()?;
        lane.submit(Submitted::Operation(Queued {
            active,
            complete: Box::new(complete),
        }));
        self.kick_worker(lane.key);
        Ok(())
    }

    /// Whether the inlined paths may be taken.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        !self.abort.has_failed() && !self.fork.in_child()
    }

    /// Whether new operations may start.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Poisoned`] after the first failure; [`ErrorKind::InvalidArgument`] in a forked
    /// child, which shares the parent's memory but none of its threads.
    #[inline]
    pub(crate) fn check_usable(&self) -> Result<()> {
        if self.fork.in_child() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the communicator belongs to the parent of this forked process; make a new one",
            ));
        }
        if self.abort.has_failed() {
            return Err(self.abort.poisoned());
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn note_user(&self) {
        self.users.note();
    }

    /// Records the first failure, wakes everybody, tells all ranks.
    pub(crate) fn fail(&self, error: Error) {
        if self.abort.fail(error.clone()) {
            tracing::error!(rank = self.rank, %error, "communicator failed");
            self.forget_all_regions();
            for lane in self.lanes() {
                lane.wake(self.process.doorbells());
                if let Some(last) = lane.history.last() {
                    tracing::info!(rank = self.rank, lane = %lane.key, %last, "last operation");
                }
            }
            self.tell_failure(&error);
        }
    }

    /// The registered transports that this rank cannot use, each with the reason.
    pub(crate) fn unavailable_transports(&self) -> Vec<(String, String)> {
        let named = self.transport_table.iter();
        named
            .filter_map(|(name, reason)| Some((name.clone(), reason.clone()?)))
            .collect()
    }

    /// Whether nobody of this rank can act but a thread that waits in `lane`: only one was ever seen here,
    /// and no function of the user waits for anything that may end before.
    pub(crate) fn is_alone_in(&self, lane: &Lane) -> bool {
        let is_idle = |other: &Lane| other.functions.load(Ordering::SeqCst) == 0;
        !self.users.are_several()
            && PendingFunction::count_elsewhere() == 0
            && self
                .lanes()
                .all(|other| other.key == lane.key || is_idle(other))
    }

    pub(crate) fn warn_of_circle(&self, text: String) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.insert(text.clone()) {
            tracing::warn!(
                rank = self.rank,
                "{text}; it may resolve if another thread or a continuation helps"
            );
        }
    }
}

#[cold]
fn no_such_rank(key: LaneKey, world_size: u32) -> Error {
    if key == LaneKey::Collective {
        return Error::new(ErrorKind::Internal, "the collective lane is missing");
    }
    Error::new(
        ErrorKind::InvalidArgument,
        "there is no such rank; ranks go from 0 to the world size (exclusive)",
    )
    .with("operation", key)
    .with("world_size", world_size)
}

impl fmt::Debug for Communicator {
    /// Which rank of how many, and whether it can go on; [`explain`](Self::explain) tells the rest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Communicator")
            .field("rank", &self.rank())
            .field("world_size", &self.world_size())
            .field("failure", &self.failure())
            .finish_non_exhaustive()
    }
}

impl Communicator {
    /// This process's or thread's number in the communicator.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.core.rank
    }

    /// The number of ranks.
    #[must_use]
    pub fn world_size(&self) -> u32 {
        self.core.world_size()
    }

    /// What is known about every rank, in rank order.
    #[must_use]
    pub fn peers(&self) -> &[PeerInfo] {
        &self.core.peers
    }

    /// The failure that ended the communicator, if there was one.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.core.abort.cause().cloned()
    }

    /// Ends the communicator on all ranks: operations in flight return [`ErrorKind::Aborted`].
    ///
    /// Callable from any thread, at any time, more than once; returns at once.
    pub fn abort(&self) {
        let text = format!("rank {} called abort()", self.core.rank);
        self.core.fail(Error::new(ErrorKind::Aborted, text));
        self.core.abort.note_reported();
    }
}

const _: () = {
    const fn assert_send_sync<T: Send + Sync>() {}
    assert_send_sync::<Communicator>();
};
