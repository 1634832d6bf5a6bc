//! [`ControlPlane`]: one rank's membership, as the rest of the runtime sees it.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use comm_core::{Error, ErrorKind, PeerInfo, Rank, Rendezvous, Result};
use tokio::sync::mpsc;

use super::allgather::Use;
use super::failure::Failure;
use super::fd_socket::MAX_FDS;
use super::join::{self, JoinOptions};
use super::member::Member;
use super::process::Process;
use super::rendezvous::{self, Kin};
use super::settings::ControlSettings;

/// A message of one rank's control plane to another one's.
#[derive(Debug, Default)]
pub struct Message {
    /// What the message is about; the control plane does not look at it.
    pub kind: u16,
    /// The content.
    pub payload: Bytes,
    /// File descriptors, at most [`MAX_FDS`]. They arrive as new descriptors of the same files,
    /// in the same order.
    pub fds: Vec<OwnedFd>,
    /// On a received message: why the descriptors that belong to it did not come; `fds` is empty
    /// then. Sending ignores it.
    pub fds_error: Option<Error>,
}

impl Message {
    /// A message without file descriptors.
    #[must_use]
    pub const fn new(kind: u16, payload: Bytes) -> Self {
        Self {
            kind,
            payload,
            fds: Vec::new(),
            fds_error: None,
        }
    }

    /// Adds file descriptors.
    #[must_use]
    pub fn with_fds(mut self, fds: Vec<OwnedFd>) -> Self {
        self.fds = fds;
        self
    }
}

/// What the owner of a [`ControlPlane`] does with what comes in.
///
/// All methods are called on the control thread, which serves all ranks of the process: they must
/// not block and not call blocking forms of [`ControlPlane`]. They can be called before
/// [`ControlPlane::join`] has returned, since other ranks may be through first. The handler lives
/// as long as the control plane does, so it should refer to the owner weakly.
pub trait ControlHandler: Send + Sync {
    /// A message came from another rank (or from this one). Messages of one rank come in the
    /// order in which it sent them.
    fn on_message(&self, from: Rank, message: Message);

    /// The communicator failed. Called once.
    fn on_failure(&self, failure: &Error);

    /// Another rank left in good order; nothing more comes from it. Called for ranks to which
    /// this one is connected.
    fn on_leave(&self, rank: Rank) {
        let _ = rank;
    }
}

/// One rank's membership in a communicator's control plane.
///
/// Dropping it without [`ControlPlane::leave`] is a death: all other ranks fail with an error
/// that names this rank.
pub struct ControlPlane {
    member: Arc<Member>,
    /// Messages of the rank to itself.
    to_self: mpsc::UnboundedSender<Message>,
    left: AtomicBool,
    /// Keeps the control thread alive.
    process: Arc<Process>,
}

impl ControlPlane {
    /// Joins the communicator: finds the other ranks, connects, and exchanges facts.
    ///
    /// `facts` is what this rank tells the others; rank, host, process, addresses, descriptor
    /// socket, NUMA nodes and CPUs are filled in here. Returns the facts of all ranks in rank
    /// order, the same on all ranks.
    ///
    /// Blocks, up to the deadline of `options`.
    ///
    /// # Errors
    ///
    /// What keeps one rank from joining ends the join of every rank that can be reached, with the
    /// same cause: a rank outside of the world, world sizes that differ, a rank that is claimed
    /// twice, a wrong secret, the death of a rank, or at the deadline a list of all missing ranks.
    pub fn join(
        process: Arc<Process>,
        options: JoinOptions,
        facts: PeerInfo,
        handler: Arc<dyn ControlHandler>,
    ) -> Result<(Arc<Self>, Vec<PeerInfo>)> {
        let core = Arc::clone(process.core());
        let (member, facts) = process
            .core()
            .block_on(join::join(core, options, facts, handler))?;
        let (to_self, mut own) = mpsc::unbounded_channel();
        process.core().runtime().spawn({
            let member = Arc::clone(&member);
            async move {
                while let Some(message) = own.recv().await {
                    member.handler().on_message(member.rank(), message);
                }
            }
        });
        Ok((
            Arc::new(Self {
                member,
                to_self,
                left: AtomicBool::new(false),
                process,
            }),
            facts,
        ))
    }

    /// The rank of this member.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.member.rank()
    }

    /// The number of ranks.
    #[must_use]
    pub fn world_size(&self) -> u32 {
        self.member.world_size()
    }

    /// The process to which this rank belongs.
    #[must_use]
    pub const fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// Queues a message for a rank, which may be this one.
    ///
    /// Never blocks. Messages to one rank arrive in the order of the calls. A message that cannot
    /// be delivered because its receiver died is a failure of the communicator; one to a rank
    /// that has just left is dropped.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if there is no such rank, for more than [`MAX_FDS`]
    /// descriptors, and for a payload that is too long for a control message;
    /// [`ErrorKind::PeerFailed`] if the peer has left; what kept the peer from being reached.
    pub fn send(&self, peer: Rank, message: Message) -> Result<()> {
        self.process.core().check_fork()?;
        if message.fds.len() > MAX_FDS {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "too many file descriptors for one message",
            )
            .with("descriptors", message.fds.len())
            .with("limit", MAX_FDS));
        }
        if peer == self.rank() {
            // The task at the other end lives as long as this sender.
            let _ = self.to_self.send(message);
            return Ok(());
        }
        self.member.send(peer, message)
    }

    /// Gathers one value of every rank, in rank order.
    ///
    /// Collective: every rank calls it with the same `tag`. Calls with different tags may be
    /// under way at the same time; calls with one tag pair up in their order.
    ///
    /// Blocks, up to `deadline`.
    ///
    /// # Errors
    ///
    /// The communicator's failure, or [`ErrorKind::Timeout`]. After an error the tag must not be
    /// used again.
    pub fn allgather(&self, tag: u64, value: Bytes, deadline: Instant) -> Result<Vec<Bytes>> {
        let member = Arc::clone(&self.member);
        self.process
            .core()
            .block_on(member.allgather(Use::Allgather, tag, value, deadline.into()))
    }

    /// [`ControlPlane::allgather`] for asynchronous callers, on any executor.
    ///
    /// A dropped future leaves the exchange, as an error does.
    ///
    /// # Errors
    ///
    /// As for [`ControlPlane::allgather`].
    pub async fn allgather_async(
        &self,
        tag: u64,
        value: Bytes,
        deadline: Instant,
    ) -> Result<Vec<Bytes>> {
        let member = Arc::clone(&self.member);
        let gather = member.allgather(Use::Allgather, tag, value, deadline.into());
        self.process.core().run(gather).await
    }

    /// Waits until every rank has called it with the same `tag`.
    ///
    /// Blocks, up to `deadline`.
    ///
    /// # Errors
    ///
    /// As for [`ControlPlane::allgather`].
    pub fn barrier(&self, tag: u64, deadline: Instant) -> Result<()> {
        let member = Arc::clone(&self.member);
        let barrier = member.allgather(Use::Barrier, tag, Bytes::new(), deadline.into());
        self.process.core().block_on(barrier).map(drop)
    }

    /// [`ControlPlane::barrier`] for asynchronous callers, on any executor.
    ///
    /// # Errors
    ///
    /// As for [`ControlPlane::allgather`].
    pub async fn barrier_async(&self, tag: u64, deadline: Instant) -> Result<()> {
        let member = Arc::clone(&self.member);
        let barrier = member.allgather(Use::Barrier, tag, Bytes::new(), deadline.into());
        self.process.core().run(barrier).await.map(drop)
    }

    /// Where some of the ranks meet for another communicator.
    ///
    /// # Errors
    ///
    /// As for [`rendezvous::meet_kin`].
    pub(crate) fn meet_kin(
        &self,
        kin: &Kin<'_>,
        control: &ControlSettings,
    ) -> Result<Arc<dyn Rendezvous>> {
        self.process.core().check_fork()?;
        rendezvous::meet_kin(&self.member, kin, control.secret.clone(), control.insecure)
    }

    /// Tells all ranks that the communicator has failed. The first failure wins: if there was one
    /// already, nothing happens. Never blocks.
    pub fn fail(&self, failure: Failure) {
        if self.process.core().check_fork().is_ok() {
            self.member.fail(failure);
        }
    }

    /// The communicator's failure, if this rank knows of one.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.member.failure()
    }

    /// Whether this rank has left.
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    /// Leaves in good order: sends what is queued, says goodbye to all connected ranks, and waits
    /// up to `limit` until they have read it. The other ranks do not take this for a death.
    ///
    /// Blocks, except in a handler, where it goes on in the background. Further calls do nothing.
    pub fn leave(&self, limit: Duration) {
        if self.process.core().check_fork().is_err() || self.left.swap(true, Ordering::AcqRel) {
            return;
        }
        let leave = Arc::clone(&self.member).leave(tokio::time::Instant::now() + limit);
        if self.process.core().on_control_thread() {
            self.process.core().runtime().spawn(leave);
            return;
        }
        let result = self.process.core().block_on(async move {
            leave.await;
            Ok(())
        });
        if let Err(error) = result {
            tracing::debug!(%error, "leaving a communicator");
        }
    }
}

impl fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlPlane")
            .field("rank", &self.rank())
            .field("world_size", &self.world_size())
            .finish_non_exhaustive()
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if !*self.left.get_mut() && self.process.core().check_fork().is_ok() {
            self.member.abandon();
        }
    }
}
