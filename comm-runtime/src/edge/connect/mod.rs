//! Connecting edges at run time, over the control plane.
//!
//! # Contract
//!
//! * **Mark.** A lane marks the edges that its next operation wants
//!   (`connect_send[peer] |= 1 << channel`); marking touches no resource. All marked edges are then
//!   set up at the same time.
//! * **The sender asks**, the receiver's control thread answers without any call of its user. Keys
//!   (communicator, peer, channel, connection index) are served concurrently; nobody waits for
//!   another edge or communicator. That holds for collectives and messages alike, which is why no
//!   order of rounds is needed to avoid deadlock: nobody blocks while it sets up.
//! * **Candidates** are the transports that both ends have and that say yes to the edge, in the
//!   order of registration, which is the same canonical order on all ranks (P2P, SHM, custom, NET).
//!   The sender goes through them; each attempt is set up, connected and [proved](crate::edge::prove).
//! * **Failure.** An attempt that fails on either end is withdrawn on both and its reason kept; if
//!   no candidate is left, the operation that wanted the edge fails with all reasons. Every attempt
//!   has a deadline.
//!
//! ```text
//! sender                                   receiver
//!   setup_send, handle
//!   Request {transport, handle} ---------->  can_connect, setup_recv, handle
//!                                <----------  Accept {handle}
//!   connect                                  connect
//!   page over the edge ===================>  compare
//!                                <----------  Verdict
//! ```

mod receiving;
mod sending;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use comm_core::{ConnectionIndex, Edge, Error, ErrorKind, Rank, Result};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::call::{Call, Message};
use crate::communicator::Core;
use crate::edge::ends::SendEnd;
use crate::lane::{Lane, LaneKey, LaneState, Mail};
use crate::plan::{Flow, Resolved};
use crate::region::Generation;

/// What the ends of an edge tell each other while they connect.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ConnectMessage {
    /// The sender asks for an edge.
    Request(ConnectRequest),
    /// The receiver is ready and tells how to reach it, and the state of its table of the sender's
    /// [regions](crate::region), if it has one.
    Accept {
        id: u64,
        handle: Vec<u8>,
        regions: Option<Generation>,
    },
    /// The receiver cannot serve the attempt.
    Refuse { id: u64, reason: String },
    /// What the receiver found when it compared the page.
    Result { id: u64, result: Result<(), String> },
    /// The sender gives the attempt up.
    Withdraw { id: u64, reason: String },
}

/// One attempt to connect one edge.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ConnectRequest {
    id: u64,
    transport: String,
    channel: u32,
    index: ConnectionIndex,
    step_bytes: u64,
    handle: Vec<u8>,
}

/// Slots of the edges for acknowledgements, which all fit into a line or a small message.
const ACK_STEP_BYTES: usize = 256;

type Reply = (ConnectMessage, Vec<OwnedFd>);

/// Attempts under way, and what became of earlier ones.
#[derive(Debug, Default)]
pub(crate) struct Connector {
    state: Mutex<ConnectorState>,
}

#[derive(Debug, Default)]
struct ConnectorState {
    next_id: u64,
    /// Replies to the own requests, by id.
    asked: HashMap<u64, mpsc::UnboundedSender<Reply>>,
    /// News about the peers' requests, by sender and id.
    answered: HashMap<(Rank, u64), mpsc::UnboundedSender<Reply>>,
    /// Connected edges, for `explain()`.
    connected: Vec<ConnectedEdge>,
}

/// A connected edge and how it came to its transport.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectedEdge {
    /// The rank at the other end.
    pub peer: Rank,
    /// Whether this rank sends.
    pub sends: bool,
    /// The channel.
    pub channel: u32,
    /// The set of connections to which it belongs.
    pub index: ConnectionIndex,
    /// The transport that carries it.
    pub transport: String,
    /// Why transports before it in the order were not taken; known to the sending end.
    pub passed_over: Vec<(String, String)>,
}

/// A sending end that a lane waits for, delivered when this is dropped: also by a panic of a transport,
/// or by the end of the control plane.
struct Awaited {
    core: Arc<Core>,
    key: LaneKey,
    peer: Rank,
    channel: u32,
    end: Option<Result<SendEnd>>,
}

impl Awaited {
    fn deliver(mut self, end: Result<SendEnd>) {
        self.end = Some(end);
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        let (peer, channel) = (self.peer, self.channel);
        let end = self.end.take().unwrap_or_else(|| {
            let text = format!(
                "connecting rank {} to rank {peer} was given up in the middle: a transport panicked (see \
                 its message on stderr), or the control plane of this process has ended",
                self.core.rank
            );
            Err(Error::new(ErrorKind::Internal, text))
        });
        if let Some(lane) = self.core.lane(self.key) {
            let doorbells = self.core.process.doorbells();
            lane.deliver(Mail::Send { peer, channel, end }, doorbells);
        }
    }
}

impl Connector {
    fn lock(&self) -> std::sync::MutexGuard<'_, ConnectorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The edges connected so far.
    pub(crate) fn connected(&self) -> Vec<ConnectedEdge> {
        self.lock().connected.clone()
    }

    fn note(&self, edge: ConnectedEdge) {
        self.lock().connected.push(edge);
    }
}

impl Core {
    /// Connects what a call needs; whether all of it is connected.
    ///
    /// # Errors
    ///
    /// If an edge cannot be connected by any transport.
    #[inline]
    pub(crate) fn ensure_edges(
        &self,
        lane: &Lane,
        state: &mut LaneState,
        call: &Call,
    ) -> Result<bool> {
        match call {
            Call::Collective { plan, .. } if plan.is_resolved() => Ok(true),
            Call::Message(message) if message.sends && !state.ends.send.is_empty() => Ok(true),
            Call::Message(message) if !message.sends && !state.ends.recv.is_empty() => Ok(true),
            _ => self.connect_edges(lane, state, call),
        }
    }

    fn connect_edges(&self, lane: &Lane, state: &mut LaneState, call: &Call) -> Result<bool> {
        for mail in lane.take_mail() {
            match mail {
                Mail::Send { peer, channel, end } => {
                    state.requested.remove(&(peer, channel));
                    state.ends.add_send(channel, end?);
                }
                Mail::Recv { channel, end } => state.ends.add_recv(channel, end),
            }
        }
        let message;
        let flows = match call {
            Call::Collective { plan, .. } => plan.flows(),
            Call::Message(Message { peer, sends, .. }) => {
                message = [Flow::of_message(*peer, *sends)];
                &message
            }
        };
        // Mark.
        let mut connect_send: HashMap<Rank, u64> = HashMap::new();
        let mut complete = true;
        for flow in flows {
            let channel = flow.channel;
            for peer in &flow.sends_to {
                if state.ends.send_to(*peer, channel).is_none() {
                    complete = false;
                    if state.requested.insert((*peer, channel)) {
                        *connect_send.entry(*peer).or_default() |= 1 << channel;
                    }
                }
            }
            complete &= flow
                .receives_from
                .iter()
                .all(|peer| state.ends.recv_from(*peer, channel).is_some());
        }
        // Set up all that is marked.
        for (peer, mark) in connect_send {
            for channel in (0..u64::BITS).filter(|channel| mark & (1 << channel) != 0) {
                self.spawn_connect(lane.key, peer, channel);
            }
        }
        if let (true, Call::Collective { plan, .. }) = (complete, call) {
            let resolve = |flow: &Flow| {
                let sends = flow.sends_to.iter();
                let receives = flow.receives_from.iter();
                Resolved {
                    send: sends
                        .filter_map(|peer| state.ends.send_to(*peer, flow.channel))
                        .collect(),
                    recv: receives
                        .filter_map(|peer| state.ends.recv_from(*peer, flow.channel))
                        .collect(),
                }
            };
            plan.resolve(flows.iter().map(resolve).collect());
        }
        Ok(complete)
    }

    /// Connects a sending edge in the background; the lane gets it by mail.
    pub(crate) fn spawn_connect(&self, key: LaneKey, peer: Rank, channel: u32) {
        let Some(core) = self.this() else { return };
        if peer == self.rank {
            core.connect_to_self(key, channel);
            return;
        }
        let awaited = Awaited {
            core,
            key,
            peer,
            channel,
            end: None,
        };
        self.process.spawn(async move {
            let end = awaited.core.connect_sending(key, peer, channel).await;
            awaited.deliver(end);
        });
    }

    fn edge(&self, sender: Rank, receiver: Rank, index: ConnectionIndex) -> Result<Edge<'_>> {
        let peer = |rank: Rank| {
            self.peers.get(rank as usize).ok_or_else(|| {
                Error::new(ErrorKind::Protocol, "a rank outside the world takes part")
                    .with("rank", rank)
            })
        };
        let step_bytes = self.step_bytes(index);
        Ok(Edge::new(peer(sender)?, peer(receiver)?, index, step_bytes))
    }

    /// Capacity of a slot of an edge.
    const fn step_bytes(&self, index: ConnectionIndex) -> usize {
        match index {
            ConnectionIndex::FrameAck => ACK_STEP_BYTES,
            _ => self.planner.config().step_bytes,
        }
    }
}

/// The lane that reads from the edges of this index.
const fn receiving_lane(from: Rank, index: ConnectionIndex) -> LaneKey {
    match index {
        ConnectionIndex::Collective => LaneKey::Collective,
        ConnectionIndex::Frame => LaneKey::FrameRecv(from),
        // The sender of frames hears what became of them.
        ConnectionIndex::FrameAck => LaneKey::FrameSend(from),
        _ => LaneKey::Recv(from),
    }
}

/// The index of the edges to which this lane writes.
const fn connection_index(key: LaneKey) -> ConnectionIndex {
    match key {
        LaneKey::Collective => ConnectionIndex::Collective,
        LaneKey::FrameSend(_) => ConnectionIndex::Frame,
        LaneKey::FrameRecv(_) => ConnectionIndex::FrameAck,
        LaneKey::Send(_) | LaneKey::Recv(_) => ConnectionIndex::PointToPoint,
    }
}
