//! A member: one rank's place in one communicator, with its links to the others.
//!
//! # Contract
//!
//! * The first failure that a member learns of stays its failure, and goes to all its links once.
//! * A handler is never called with the member's lock held.
//! * Everything that a task may wait for notifies `changed`: a round that came in, a link that
//!   opened or ended, the failure.

mod leaving;
mod routes;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use bytes::Bytes;
use comm_core::{Error, ErrorKind, PeerInfo, ProcessId, Rank, Result};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;

use super::allgather::{self, Round};
use super::core::{Core, lock};
use super::failure::Failure;
use super::frame::{self, FrameKind};
use super::hello::CommunicatorId;
use super::limits;
use super::link::Outgoing;
use super::liveness::Heartbeat;
use super::plane::ControlHandler;
use super::secret::Admission;

/// The members of this process, by communicator and rank.
#[derive(Debug, Default)]
pub(crate) struct Members {
    table: Mutex<HashMap<(CommunicatorId, Rank), Weak<Member>>>,
}

impl Members {
    pub(crate) fn get(&self, communicator: CommunicatorId, rank: Rank) -> Option<Arc<Member>> {
        lock(&self.table).get(&(communicator, rank))?.upgrade()
    }

    /// Adds a member; false if this process has that rank already.
    fn insert(&self, member: &Arc<Member>) -> bool {
        let mut table = lock(&self.table);
        let entry = table.entry((member.communicator, member.rank)).or_default();
        let free = entry.strong_count() == 0;
        if free {
            *entry = Arc::downgrade(member);
        }
        let members = table.values().filter_map(Weak::upgrade);
        limits::allow_descriptors(members.map(|member| member.descriptors()).sum());
        free
    }

    fn remove(&self, member: &Member) {
        lock(&self.table).remove(&(member.communicator, member.rank));
    }
}

/// What a member is made of.
pub(crate) struct MemberSpec {
    pub(crate) communicator: CommunicatorId,
    pub(crate) rank: Rank,
    pub(crate) world_size: u32,
    pub(crate) admission: Admission,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) handler: Arc<dyn ControlHandler>,
}

/// See the [module documentation](self).
pub(crate) struct Member {
    core: Arc<Core>,
    communicator: CommunicatorId,
    rank: Rank,
    world_size: u32,
    admission: Admission,
    heartbeat: Heartbeat,
    handler: Arc<dyn ControlHandler>,
    failure: OnceLock<(Failure, Error)>,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    peers: Vec<Peer>,
    links: BTreeMap<u64, Link>,
    next_link: u64,
    inbox: HashMap<Round, VecDeque<Vec<Bytes>>>,
    /// The join is over: from now on a peer that cannot be reached is a failure of all.
    joined: bool,
    leaving: bool,
}

#[derive(Default)]
struct Peer {
    info: Option<PeerInfo>,
    /// The process that connected under this rank, known before its facts are.
    process: Option<ProcessId>,
    route: Option<UnboundedSender<Outgoing>>,
    /// Why the peer could not be reached.
    unreachable: Option<Error>,
    /// It has said goodbye, at least over one link.
    goodbye: bool,
    /// Nothing more comes from it.
    left: bool,
}

struct Link {
    peer: Rank,
    outbox: UnboundedSender<Outgoing>,
    task: AbortHandle,
    open: bool,
    said_goodbye: bool,
}

impl Member {
    /// A member that takes connections from now on.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfiguration`] if this process has the same rank already.
    pub(crate) fn register(core: &Arc<Core>, spec: MemberSpec) -> Result<Arc<Self>> {
        let peers = (0..spec.world_size).map(|_| Peer::default()).collect();
        let member = Arc::new(Self {
            core: Arc::clone(core),
            communicator: spec.communicator,
            rank: spec.rank,
            world_size: spec.world_size,
            admission: spec.admission,
            heartbeat: spec.heartbeat,
            handler: spec.handler,
            failure: OnceLock::new(),
            state: Mutex::new(State {
                peers,
                ..State::default()
            }),
            changed: Notify::new(),
        });
        if core.members.insert(&member) {
            Ok(member)
        } else {
            Err(Error::new(
                ErrorKind::InvalidConfiguration,
                "two threads of this process claim the same rank; every rank may be started once",
            )
            .with("rank", member.rank))
        }
    }

    /// How many descriptors the member needs at most: two links for each distance and a client
    /// of the rendezvous, each with its other end or with a descriptor of the peer's process.
    fn descriptors(&self) -> u64 {
        2 * (2 * allgather::distances(self.world_size).count() as u64 + 1)
    }

    pub(crate) const fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) const fn communicator(&self) -> CommunicatorId {
        self.communicator
    }

    pub(crate) const fn rank(&self) -> Rank {
        self.rank
    }

    pub(crate) const fn world_size(&self) -> u32 {
        self.world_size
    }

    pub(crate) const fn admission(&self) -> &Admission {
        &self.admission
    }

    pub(crate) const fn heartbeat(&self) -> Heartbeat {
        self.heartbeat
    }

    pub(crate) fn handler(&self) -> &dyn ControlHandler {
        self.handler.as_ref()
    }

    pub(crate) const fn changed(&self) -> &Notify {
        &self.changed
    }

    /// The first failure that this member knows.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.get().map(|(_, error)| error.clone())
    }

    /// Stores what is known about a peer.
    pub(crate) fn learn(&self, info: PeerInfo) {
        if let Some(peer) = lock(&self.state).peers.get_mut(info.rank as usize) {
            peer.info = Some(info);
        }
    }

    /// What is known about a peer.
    pub(crate) fn info(&self, peer: Rank) -> Option<PeerInfo> {
        lock(&self.state).peers.get(peer as usize)?.info.clone()
    }

    /// The peer's rank, process and host as far as they are known, for messages.
    pub(crate) fn name_of(&self, peer: Rank) -> String {
        self.info(peer)
            .map_or_else(|| format!("rank {peer}"), |info| info.to_string())
    }

    /// From now on a peer that cannot be reached is a failure of the communicator.
    pub(crate) fn set_joined(&self) {
        lock(&self.state).joined = true;
    }

    /// Whether a link to the peer is open, or why it cannot be opened.
    pub(crate) fn is_connected(&self, peer: Rank) -> Result<bool> {
        let state = lock(&self.state);
        match state
            .peers
            .get(peer as usize)
            .and_then(|peer| peer.unreachable.clone())
        {
            Some(error) => Err(error),
            None => Ok(state
                .links
                .values()
                .any(|link| link.peer == peer && link.open)),
        }
    }

    /// Makes `failure` the communicator's, if it is the first, and tells all peers.
    pub(crate) fn fail(&self, failure: Failure) {
        let error = failure.to_error();
        if self.failure.set((failure.clone(), error.clone())).is_err() {
            tracing::debug!(rank = self.rank, %error, "a failure after the first one");
            return;
        }
        tracing::debug!(rank = self.rank, %error, "the communicator failed");
        match frame::encode(FrameKind::Failure, &failure.to_wire()) {
            Ok(frame) => {
                for link in lock(&self.state).links.values() {
                    // A closed queue belongs to a link that has just ended.
                    let _ = link.outbox.send(Outgoing::Frame(frame.clone()));
                }
            }
            Err(error) => tracing::error!(%error, "a failure cannot be told to the other ranks"),
        }
        self.changed.notify_waiters();
        if self.core.on_control_thread() {
            self.handler.on_failure(&error);
        } else {
            let handler = Arc::clone(&self.handler);
            self.core
                .runtime()
                .spawn(async move { handler.on_failure(&error) });
        }
    }

    /// Stores a round of an allgather that a peer sent.
    pub(crate) fn store_round(&self, round: Round, blocks: Vec<Bytes>) {
        lock(&self.state)
            .inbox
            .entry(round)
            .or_default()
            .push_back(blocks);
        self.changed.notify_waiters();
    }

    /// Takes the oldest stored round.
    pub(crate) fn take_round(&self, round: Round) -> Option<Vec<Bytes>> {
        let mut state = lock(&self.state);
        let queue = state.inbox.get_mut(&round)?;
        let blocks = queue.pop_front();
        if queue.is_empty() {
            state.inbox.remove(&round);
        }
        blocks
    }

    /// Whether the peer has left and everything that it sent was read.
    pub(crate) fn has_left(&self, peer: Rank) -> bool {
        lock(&self.state)
            .peers
            .get(peer as usize)
            .is_some_and(|peer| peer.left)
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member")
            .field("rank", &self.rank)
            .field("world_size", &self.world_size)
            .finish_non_exhaustive()
    }
}
