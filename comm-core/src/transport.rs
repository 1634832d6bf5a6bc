//! How one directed edge between two ranks comes to life: [`Transport`].
//!
//! # Contract
//!
//! A transport connects **edges**: one direction, from a sending rank to a receiving rank, on one
//! channel. The life of an edge has five steps, all driven by the runtime:
//!
//! 1. [`Transport::facts`] once per process; the answer travels to all ranks.
//! 2. [`Transport::can_connect`] on both ends, *without* talking to the peer. It is a pure
//!    function of the two [`PeerInfo`]s, so both ends come to the same answer.
//! 3. [`Transport::setup_recv`] on the receiving and [`Transport::setup_send`] on the sending
//!    end acquire local resources. Each yields a [`ConnectHandle`] for the other end.
//! 4. After the handles were exchanged, `connect` on each end turns the peer's handle into a
//!    [`ConnInfo`]. The receiving end's handle is always made before the sending end connects.
//! 5. The runtime *proves* the edge: one page really crosses it and is compared. Only then is it
//!    used. A failure, with its reason, moves both ends to their next common transport.
//!
//! Rules:
//!
//! * **Set-up only.** Nothing here is called while data moves; the data path works on
//!   [`ConnInfo`]. That is why these methods may be `async` and boxed.
//! * **Several communicators.** One instance may serve several communicators of its process, in which the
//!   rank has different numbers. Edges between the same two rank numbers can therefore exist at a time;
//!   what tells them apart is in the handles, not in the numbers.
//! * **Ownership.** Dropping a [`SendSetup`], [`RecvSetup`] or [`ConnInfo`] releases everything
//!   that it holds. Nothing outlives the process, also if it is killed.
//! * **Failure.** Every method ends by the given deadline. An error leaves no resource behind
//!   and does not harm other edges.
//! * **Blocking.** The futures run on the process's control thread and must not block it longer
//!   than a memory mapping takes.
//! * **Cancellation.** Dropping a future is the same as an error.
//! * **Hostile peers.** The bytes and file descriptors of a handle come from another process:
//!   sizes, seals and offsets are checked before use.

use std::fmt;
use std::os::fd::OwnedFd;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;

use crate::{ConnInfo, PeerInfo, Result};

/// Which of the independent sets of connections an edge belongs to.
///
/// Collectives and point-to-point messages never share a connection, so that a message that
/// nobody receives cannot hold up a collective.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[repr(u8)]
#[non_exhaustive]
pub enum ConnectionIndex {
    /// Steps of collectives.
    Collective = 0,
    /// Messages of `send` and `recv`.
    PointToPoint = 1,
    /// Frames of ordered exchange between two ranks.
    Frame = 2,
    /// Acknowledgements of frames, from the frames' receiver to their sender.
    FrameAck = 3,
}

/// One directed connection between two ranks, as both ends see it before it exists.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Edge<'a> {
    /// The rank that will write.
    pub sender: &'a PeerInfo,
    /// The rank that will read.
    pub receiver: &'a PeerInfo,
    /// The channel, from 0.
    pub channel: u32,
    /// The set of connections to which the edge belongs.
    pub index: ConnectionIndex,
    /// Capacity of one slot of the edge. Both ends use the same value.
    pub step_bytes: usize,
}

impl<'a> Edge<'a> {
    /// An edge from `sender` to `receiver` on channel 0.
    #[must_use]
    pub const fn new(
        sender: &'a PeerInfo,
        receiver: &'a PeerInfo,
        index: ConnectionIndex,
        step_bytes: usize,
    ) -> Self {
        Self {
            sender,
            receiver,
            channel: 0,
            index,
            step_bytes,
        }
    }

    /// The same edge on another channel.
    #[must_use]
    pub const fn on_channel(mut self, channel: u32) -> Self {
        self.channel = channel;
        self
    }
}

impl fmt::Display for Edge<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} -> {} ({:?}, channel {})",
            self.sender.rank, self.receiver.rank, self.index, self.channel
        )
    }
}

/// A transport's answer to the question whether it can serve an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It can.
    Yes,
    /// It cannot, for this reason; shown by `explain()`.
    No(String),
}

impl Verdict {
    /// Whether the answer is yes.
    #[must_use]
    pub const fn is_yes(&self) -> bool {
        matches!(self, Self::Yes)
    }
}

/// What a transport can do; selection and conformance tests read it.
///
/// Every field is `false` unless the transport sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Serves edges between ranks that are threads of one process.
    pub same_process: bool,
    /// Serves edges between processes of one host.
    pub same_host: bool,
    /// Serves edges between hosts.
    pub across_hosts: bool,
    /// Passes file descriptors in its handles, so both ends must be able to reach each other's
    /// descriptor socket.
    pub passes_fds: bool,
    /// Its edges carry [offers](crate::fifo::Offers): both ends use the same addresses.
    pub shares_address_space: bool,
    /// Its receiving ends take offers of memory that they [have
    /// mapped](crate::fifo::FifoMemory::mapping), so that processes at its ends map each other's
    /// allocations.
    pub maps_memory: bool,
    /// Moves device memory without staging it in host memory.
    pub device_memory: bool,
}

/// What one end of an edge tells the other one.
///
/// `bytes` is opaque to the runtime; file descriptors arrive in the same order as they were sent
/// and are owned by whoever holds the handle.
#[derive(Debug, Default)]
pub struct ConnectHandle {
    /// The transport's own message.
    pub bytes: Bytes,
    /// File descriptors for the other process.
    pub fds: Vec<OwnedFd>,
}

impl ConnectHandle {
    /// A handle without file descriptors.
    #[must_use]
    pub const fn from_bytes(bytes: Bytes) -> Self {
        Self {
            bytes,
            fds: Vec::new(),
        }
    }
}

/// A way to move bytes from one rank to another; see the [module documentation](self) for the
/// contract.
#[async_trait]
pub trait Transport: Send + Sync + fmt::Debug {
    /// The name under which users select the transport and both ends recognise it, in lower case.
    fn name(&self) -> &str;

    /// What the transport can do.
    fn capabilities(&self) -> Capabilities;

    /// What the other ranks' instances must know to answer [`Transport::can_connect`].
    ///
    /// # Errors
    ///
    /// An error disables the transport on this rank; its text becomes the reason that
    /// `explain()` shows on all ranks.
    fn facts(&self) -> Result<Bytes>;

    /// Whether this transport can serve the edge, from the exchanged facts alone.
    ///
    /// Pure and symmetric: both ends get the same answer for the same edge.
    fn can_connect(&self, edge: &Edge<'_>) -> Verdict;

    /// Acquires what the sending end of the edge needs.
    ///
    /// # Errors
    ///
    /// Whatever keeps the resources from being acquired; the runtime then tries the next
    /// transport.
    async fn setup_send(&self, edge: &Edge<'_>, deadline: Instant) -> Result<Box<dyn SendSetup>>;

    /// Acquires what the receiving end of the edge needs.
    ///
    /// # Errors
    ///
    /// As for [`Transport::setup_send`].
    async fn setup_recv(&self, edge: &Edge<'_>, deadline: Instant) -> Result<Box<dyn RecvSetup>>;
}

/// The sending end of an edge between set-up and connection.
#[async_trait]
pub trait SendSetup: Send + fmt::Debug {
    /// What the receiving end has to know. Called once, before [`SendSetup::connect`].
    ///
    /// # Errors
    ///
    /// If a descriptor cannot be duplicated.
    fn handle(&mut self) -> Result<ConnectHandle>;

    /// Completes the edge with the receiving end's handle.
    ///
    /// # Errors
    ///
    /// A handle that does not fit, a peer that cannot be reached, a deadline that passed.
    async fn connect(self: Box<Self>, remote: ConnectHandle, deadline: Instant)
    -> Result<ConnInfo>;
}

/// The receiving end of an edge between set-up and connection.
#[async_trait]
pub trait RecvSetup: Send + fmt::Debug {
    /// What the sending end has to know. Called once, before [`RecvSetup::connect`].
    ///
    /// # Errors
    ///
    /// If a descriptor cannot be duplicated.
    fn handle(&mut self) -> Result<ConnectHandle>;

    /// Completes the edge with the sending end's handle.
    ///
    /// # Errors
    ///
    /// A handle that does not fit, a peer that cannot be reached, a deadline that passed.
    async fn connect(self: Box<Self>, remote: ConnectHandle, deadline: Instant)
    -> Result<ConnInfo>;
}
