//! [`CollectiveGroup`]: workers that send each other messages in order.
//!
//! # Contract
//!
//! * **Members.** A group is a list of worker addresses in canonical order; a member's rank is its
//!   place there. All members must name the same members for the same group name; if they do not,
//!   the first use fails on all of them and names both lists.
//! * **Coming together.** Making a group connects nothing. The first operation makes this worker
//!   join the others, in the background; until all members have come, at most for the join
//!   timeout, operations wait in their order.
//! * **Order.** The k-th message sent from one member to another meets the k-th receive there,
//!   whichever calls, threads and message kinds are used. Each pair and direction has an order of
//!   its own, and does not wait for others.
//! * **Completion.** A send is done when the peer has received the message in its matching receive;
//!   with [`eager`](crate::SendOptions::eager) as soon as the library does not need it any more. Two
//!   members that both send first and wait are reported.
//! * **Kinds.** `send` is received by `recv`, `send_tensor` by `recv_tensor`. Mixing them up, another
//!   element type or shape, a message that makes no sense, a passed time-out: such a failure ends
//!   this direction between the two members, on both, with a cause that names group, workers, ranks,
//!   operation and sequence number. Nothing waits for ever, and other directions go on. A message
//!   that has arrived but does not decode as the type asked for is an error of that receive alone.
//! * **Compression** of what `send` takes is off unless the worker's builder switches it on, and has
//!   rules of its own: [`compression`](crate::compression).
//! * **Handles.** Asynchronous calls return at once. Dropping a handle detaches; the operation keeps
//!   its place in the order and the group alive until it has ended. A cancelled receive takes its
//!   message and drops it; in place of a cancelled send the peer's receive gets
//!   [`ErrorKind::CancelledByPeer`].

mod direct;
mod link;
mod recv;
mod send;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use comm_core::{Error, ErrorKind, Rank, Result, Work};
use comm_runtime::Communicator;

use crate::WorkerAddress;
use crate::compression::{Compression, CompressionStats};
use crate::connector::{Connector, Joining};
use crate::pool::ReceivePool;
use link::Link;

/// Marks frames of `send_tensor`; smaller numbers are kinds of messages.
const DIRECT: u8 = 16;

/// Workers that send each other messages in order; see the [module](self).
///
/// Clones are handles of the same group. Made by
/// [`Collective::create_collective_group`](crate::Collective::create_collective_group).
#[derive(Clone)]
pub struct CollectiveGroup {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    generation: u32,
    /// In canonical order.
    members: Vec<WorkerAddress>,
    rank: Rank,
    /// `None` if the group came with its communicator.
    connector: Option<Arc<Connector>>,
    pool: Arc<ReceivePool>,
    compression: Arc<Compression>,
    link: Arc<Link>,
    in_flight: AtomicUsize,
}

impl CollectiveGroup {
    pub(crate) fn new(
        name: String,
        generation: u32,
        members: Vec<WorkerAddress>,
        rank: Rank,
        connector: Arc<Connector>,
        pool: Arc<ReceivePool>,
        compression: Arc<Compression>,
    ) -> Self {
        let inner = Inner {
            name,
            generation,
            members,
            rank,
            connector: Some(connector),
            pool,
            compression,
            link: Arc::new(Link::new()),
            in_flight: AtomicUsize::new(0),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The ranks of a communicator as a group: rank `r` is the member `name:r`. Nothing has to be
    /// joined any more; messages travel beside the communicator's other operations.
    ///
    /// What it sends is not [compressed](crate::compression).
    ///
    /// Make one group of a communicator and clone it: groups of one communicator share its order.
    /// Received messages use up to `receive_pool_bytes` of memory again and again.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the name is none of a worker group.
    pub fn of_communicator(
        name: &str,
        communicator: Communicator,
        receive_pool_bytes: usize,
    ) -> Result<Self> {
        let members = (0..communicator.world_size())
            .map(|rank| WorkerAddress::new(name, rank))
            .collect::<Result<Vec<_>>>()?;
        let inner = Inner {
            name: name.to_owned(),
            generation: 0,
            members,
            rank: communicator.rank(),
            connector: None,
            pool: Arc::new(ReceivePool::new(receive_pool_bytes)),
            compression: Arc::new(Compression::receiving_only()),
            link: Arc::new(Link::connected(communicator)),
            in_flight: AtomicUsize::new(0),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// The name of the group.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The members in canonical order, that is by rank.
    #[must_use]
    pub fn members(&self) -> &[WorkerAddress] {
        &self.inner.members
    }

    /// The rank of this worker in the group.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.inner.rank
    }

    /// The rank of a member.
    #[must_use]
    pub fn rank_of(&self, address: &WorkerAddress) -> Option<Rank> {
        let place = self.inner.members.binary_search(address).ok()?;
        Rank::try_from(place).ok()
    }

    /// Whether this is another handle of the same group.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// The group's communicator, once all members have come together: for collectives among them
    /// and to look at the routes.
    #[must_use]
    pub fn communicator(&self) -> Option<Communicator> {
        self.inner.link.ready()
    }

    /// What has been compressed and decompressed, in all groups of this worker.
    #[must_use]
    pub fn compression_stats(&self) -> CompressionStats {
        self.inner.compression.stats()
    }

    /// Joins the other members now instead of with the first message; the handle is done when all
    /// have come.
    ///
    /// # Errors
    ///
    /// If the group is closed or failed to come together. What goes wrong later is the handle's
    /// result.
    pub fn join(&self) -> Result<Work<()>> {
        self.submit(|_| Ok(Work::ready(Ok(()))))
            .map_err(|error| self.inner.of_group(error))
    }

    /// Ends this worker's part in the group: operations that are under way end with
    /// [`ErrorKind::Aborted`], on the peers with the same cause; connections and memory are given
    /// back. Callable more than once, from any thread; blocks only to close connections.
    ///
    /// With nothing under way the worker just leaves; peers that need it later get an error.
    pub fn close(&self) {
        if let Some(communicator) = self.inner.link.close()
            && self.inner.in_flight.load(Ordering::SeqCst) > 0
        {
            communicator.abort();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.inner.link.is_closed()
    }

    pub(crate) fn generation(&self) -> u32 {
        self.inner.generation
    }

    /// Begins an operation, now or when the group has come together.
    fn submit<T: Send + 'static>(
        &self,
        begin: impl FnOnce(&Communicator) -> Result<Work<T>> + Send + 'static,
    ) -> Result<Work<T>> {
        let inner = Arc::clone(&self.inner);
        self.inner.link.submit(move || inner.join(), begin)
    }

    /// The member that an operation is meant for.
    fn peer(&self, chosen: Option<Rank>) -> Result<Rank> {
        let (own, members) = (self.inner.rank, self.inner.members.len());
        let wrong = |message: &'static str| {
            let error = Error::new(ErrorKind::InvalidArgument, message);
            Err(self.inner.of_group(error.with("members", members)))
        };
        match chosen {
            Some(rank) if rank == own => wrong("a worker cannot send to or receive from itself"),
            Some(rank) if (rank as usize) < members => Ok(rank),
            Some(_) => wrong("the group has no member of this rank"),
            None if members == 2 => Ok(1 - own),
            None => wrong(
                "the group has not exactly two members; name the peer with SendOptions::to or \
                 RecvOptions::from",
            ),
        }
    }

    /// Counts an operation until its token is dropped.
    fn token(&self, peer: Rank) -> Token {
        self.inner.in_flight.fetch_add(1, Ordering::SeqCst);
        Token {
            inner: Arc::clone(&self.inner),
            peer,
        }
    }
}

impl Inner {
    fn join(&self) -> Result<Communicator> {
        let members: Vec<_> = self.members.iter().map(ToString::to_string).collect();
        let members = members.join(", ");
        let connector = self.connector.as_ref().ok_or_else(|| {
            let message = "a group that came with its communicator cannot be joined";
            Error::new(ErrorKind::Internal, message)
        })?;
        connector
            .join(&Joining {
                name: &self.name,
                generation: self.generation,
                members: &members,
                rank: self.rank,
                size: u32::try_from(self.members.len()).unwrap_or(u32::MAX),
            })
            .map_err(|error| error.with("members", members))
    }

    /// Adds where an error happened.
    fn of_group(&self, error: Error) -> Error {
        let worker = self.members.get(self.rank as usize);
        let error = error.with("group", &self.name);
        match worker {
            Some(worker) => error.with("worker", worker),
            None => error,
        }
    }
}

/// An operation under way: keeps the group alive and knows with whom it is.
struct Token {
    inner: Arc<Inner>,
    peer: Rank,
}

impl Token {
    /// Adds where an error happened, and with whom.
    fn explain(&self, error: Error) -> Error {
        let error = self.inner.of_group(error);
        match self.inner.members.get(self.peer as usize) {
            Some(peer) => error.with("peer_worker", peer),
            None => error,
        }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.inner.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

impl fmt::Debug for CollectiveGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollectiveGroup")
            .field("name", &self.inner.name)
            .field("members", &self.inner.members)
            .field("rank", &self.inner.rank)
            .field("state", &self.inner.link)
            .finish_non_exhaustive()
    }
}

const _: () = {
    const fn assert_send_sync<T: Send + Sync>() {}
    assert_send_sync::<CollectiveGroup>();
};
