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
//!   The sender goes through them; each attempt is set up, connected and [proved](super::prove).
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

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use comm_core::doorbell::RingTarget;
use comm_core::fifo::{FifoLayout, FifoMemory};
use comm_core::{
    ConnInfo, ConnectHandle, ConnectionIndex, Edge, Error, ErrorKind, Rank, Result, Transport,
    Verdict,
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::ends::{RecvEnd, SendEnd};
use super::prove;
use crate::call::{Call, Message};
use crate::communicator::Core;
use crate::lane::{Lane, LaneKey, LaneState, Mail};
use crate::plan::{Flow, Resolved};

/// Name of the edge of a rank to itself in `explain()`.
const SELF: &str = "self";

/// What the ends of an edge tell each other while they connect.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ConnectMessage {
    /// The sender asks for an edge.
    Request(ConnectRequest),
    /// The receiver is ready and tells how to reach it.
    Accept { id: u64, handle: Vec<u8> },
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
    /// Collective or point-to-point.
    pub index: ConnectionIndex,
    /// The transport that carries it.
    pub transport: String,
    /// Why transports before it in the order were not taken; known to the sending end.
    pub passed_over: Vec<(String, String)>,
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
    fn spawn_connect(&self, key: LaneKey, peer: Rank, channel: u32) {
        let Some(core) = self.this() else { return };
        if peer == self.rank {
            core.connect_to_self(key, channel);
            return;
        }
        self.process.spawn(async move {
            let end = core.connect_sending(key, peer, channel).await;
            if let Some(lane) = core.lane(key) {
                lane.deliver(Mail::Send { peer, channel, end }, core.process.doorbells());
            }
        });
    }

    /// An edge to oneself is a FIFO on the heap; it concerns no transport.
    fn connect_to_self(&self, key: LaneKey, channel: u32) {
        let index = connection_index(key);
        let made = self.self_edge();
        let receiving = match key {
            LaneKey::Collective => LaneKey::Collective,
            _ => LaneKey::Recv(self.rank),
        };
        let end = made.map(|(send, recv)| {
            if let Some(lane) = self.lane(receiving) {
                lane.deliver(Mail::Recv { channel, end: recv }, self.process.doorbells());
            }
            let edge = ConnectedEdge {
                peer: self.rank,
                sends: true,
                channel,
                index,
                transport: SELF.to_owned(),
                passed_over: Vec::new(),
            };
            self.connector.note(edge);
            send
        });
        if let Some(lane) = self.lane(key) {
            let mail = Mail::Send {
                peer: self.rank,
                channel,
                end,
            };
            lane.deliver(mail, self.process.doorbells());
        }
    }

    fn self_edge(&self) -> Result<(SendEnd, RecvEnd)> {
        let layout = FifoLayout::new(self.planner.config().step_bytes)?;
        let bells = RingTarget::Local(Arc::clone(self.process.doorbells()));
        let (sender, receiver) = FifoMemory::heap(layout).into_ends(bells.clone(), bells);
        Ok((
            SendEnd::new(self.rank, SELF, ConnInfo::MemorySend(sender))?,
            RecvEnd::new(self.rank, self.rank, SELF, ConnInfo::MemoryRecv(receiver))?,
        ))
    }

    async fn connect_sending(&self, key: LaneKey, peer: Rank, channel: u32) -> Result<SendEnd> {
        let index = connection_index(key);
        let edge = self.edge(self.rank, peer, index)?.on_channel(channel);
        let mut passed_over: Vec<(String, String)> = Vec::new();
        for transport in &self.transports {
            let name = transport.name().to_owned();
            if let Some(reason) = candidate(transport.as_ref(), &edge) {
                passed_over.push((name, reason));
                continue;
            }
            let deadline = Instant::now() + self.connect_timeout;
            let id = {
                let mut state = self.connector.lock();
                state.next_id += 1;
                state.next_id
            };
            let attempt = self.attempt(transport.as_ref(), &edge, id, deadline).await;
            self.connector.lock().asked.remove(&id);
            match attempt {
                Ok(end) => {
                    for (name, reason) in &passed_over {
                        tracing::debug!(%edge, transport = %name, %reason, "transport not taken");
                    }
                    tracing::debug!(%edge, transport = %name, "edge connected");
                    self.connector.note(ConnectedEdge {
                        peer,
                        sends: true,
                        channel,
                        index,
                        transport: name,
                        passed_over,
                    });
                    return Ok(end);
                }
                Err(error) => {
                    tracing::info!(%edge, transport = %name, %error, "transport failed to connect");
                    let reason = error.to_string();
                    let withdraw = ConnectMessage::Withdraw {
                        id,
                        reason: reason.clone(),
                    };
                    // A peer that is gone needs no withdrawal.
                    let _ = self.tell_connect(peer, &withdraw, Vec::new());
                    passed_over.push((name, reason));
                }
            }
        }
        let reasons: Vec<_> = passed_over
            .iter()
            .map(|(name, reason)| format!("{name}: {reason}"))
            .collect();
        Err(Error::new(
            ErrorKind::Unavailable,
            format!(
                "no transport connects {} to {}; {}",
                edge.sender,
                edge.receiver,
                if reasons.is_empty() {
                    "none is compiled in or registered".to_owned()
                } else {
                    reasons.join("; ")
                }
            ),
        ))
    }

    async fn attempt(
        &self,
        transport: &dyn Transport,
        edge: &Edge<'_>,
        id: u64,
        deadline: Instant,
    ) -> Result<SendEnd> {
        let peer = edge.receiver.rank;
        let mut setup = transport.setup_send(edge, deadline).await?;
        let handle = setup.handle()?;
        let (sender, mut replies) = mpsc::unbounded_channel();
        self.connector.lock().asked.insert(id, sender);
        let request = ConnectMessage::Request(ConnectRequest {
            id,
            transport: transport.name().to_owned(),
            channel: edge.channel,
            index: edge.index,
            step_bytes: edge.step_bytes as u64,
            handle: handle.bytes.to_vec(),
        });
        self.tell_connect(peer, &request, handle.fds)?;
        let remote = match next(&mut replies, deadline).await? {
            (ConnectMessage::Accept { handle, .. }, fds) => ConnectHandle {
                bytes: Bytes::from(handle),
                fds,
            },
            (ConnectMessage::Refuse { reason, .. }, _) => {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    format!("rank {peer} refused: {reason}"),
                ));
            }
            (other, _) => return Err(unexpected(&other)),
        };
        let conn = setup.connect(remote, deadline).await?;
        let mut end = SendEnd::new(peer, transport.name(), conn)?;
        prove::send_proof(&mut end, id, edge.step_bytes, deadline).await?;
        let verdict = loop {
            // A message edge may need to be moved until the page has left.
            end.progress()?;
            match tokio::time::timeout(Duration::from_millis(1), replies.recv()).await {
                Ok(Some(reply)) => break reply,
                Ok(None) => return Err(Error::new(ErrorKind::Internal, "the attempt was dropped")),
                Err(_) if Instant::now() < deadline => {}
                Err(_) => return Err(no_answer()),
            }
        };
        match verdict {
            (ConnectMessage::Result { result: Ok(()), .. }, _) => Ok(end),
            (
                ConnectMessage::Result {
                    result: Err(reason),
                    ..
                },
                _,
            ) => Err(Error::new(
                ErrorKind::Unavailable,
                format!("rank {peer} could not prove the edge: {reason}"),
            )),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// A message of a connecting peer; called on the control thread.
    pub(crate) fn on_connect_message(
        &self,
        from: Rank,
        message: ConnectMessage,
        fds: Vec<OwnedFd>,
    ) {
        match message {
            ConnectMessage::Request(request) => {
                let Some(core) = self.this() else { return };
                let (sender, news) = mpsc::unbounded_channel();
                self.connector
                    .lock()
                    .answered
                    .insert((from, request.id), sender);
                self.process.spawn(async move {
                    let id = request.id;
                    core.answer(from, request, fds, news).await;
                    core.connector.lock().answered.remove(&(from, id));
                });
            }
            ConnectMessage::Accept { id, .. }
            | ConnectMessage::Refuse { id, .. }
            | ConnectMessage::Result { id, .. } => {
                if let Some(asked) = self.connector.lock().asked.get(&id) {
                    // Nobody listens to an attempt that was given up.
                    let _ = asked.send((message, fds));
                }
            }
            ConnectMessage::Withdraw { id, .. } => {
                if let Some(answered) = self.connector.lock().answered.get(&(from, id)) {
                    let _ = answered.send((message, fds));
                }
            }
        }
    }

    /// Serves one request of a sender.
    async fn answer(
        &self,
        from: Rank,
        request: ConnectRequest,
        fds: Vec<OwnedFd>,
        mut news: mpsc::UnboundedReceiver<Reply>,
    ) {
        let id = request.id;
        let deadline = Instant::now() + self.connect_timeout;
        let mut accepted = false;
        let serve = self.serve(from, &request, fds, deadline, &mut accepted);
        let served = tokio::select! {
            served = serve => served,
            _ = news.recv() => return,
        };
        let (key, channel) = (self.receiving_lane(from, request.index), request.channel);
        let result = match served {
            Ok(end) => {
                self.connector.note(ConnectedEdge {
                    peer: from,
                    sends: false,
                    channel,
                    index: request.index,
                    transport: request.transport,
                    passed_over: Vec::new(),
                });
                if let Some(lane) = self.lane(key) {
                    lane.deliver(Mail::Recv { channel, end }, self.process.doorbells());
                }
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        };
        let message = match result {
            Err(reason) if !accepted => ConnectMessage::Refuse { id, reason },
            result => ConnectMessage::Result { id, result },
        };
        // A sender that is gone learns nothing; its death is told by the control plane.
        let _ = self.tell_connect(from, &message, Vec::new());
    }

    async fn serve(
        &self,
        from: Rank,
        request: &ConnectRequest,
        fds: Vec<OwnedFd>,
        deadline: Instant,
        accepted: &mut bool,
    ) -> Result<RecvEnd> {
        let edge = self
            .edge(from, self.rank, request.index)?
            .on_channel(request.channel);
        if request.step_bytes != edge.step_bytes as u64 {
            return Err(Error::new(
                ErrorKind::InvalidConfiguration,
                format!(
                    "rank {from} uses steps of {} bytes, rank {} of {}; set COMM_STEP_BYTES alike",
                    request.step_bytes, self.rank, edge.step_bytes
                ),
            ));
        }
        let transport = self
            .transports
            .iter()
            .find(|transport| transport.name() == request.transport)
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::Unavailable,
                    "the transport is not registered here",
                )
                .with("transport", &request.transport)
            })?;
        if let Some(reason) = candidate(transport.as_ref(), &edge) {
            return Err(Error::new(ErrorKind::Unavailable, reason));
        }
        let mut setup = transport.setup_recv(&edge, deadline).await?;
        let handle = setup.handle()?;
        let accept = ConnectMessage::Accept {
            id: request.id,
            handle: handle.bytes.to_vec(),
        };
        self.tell_connect(from, &accept, handle.fds)?;
        *accepted = true;
        let remote = ConnectHandle {
            bytes: Bytes::from(request.handle.clone()),
            fds,
        };
        let conn = setup.connect(remote, deadline).await?;
        let mut end = RecvEnd::new(self.rank, from, transport.name(), conn)?;
        prove::receive_proof(&mut end, request.id, edge.step_bytes, deadline).await?;
        Ok(end)
    }

    fn edge(&self, sender: Rank, receiver: Rank, index: ConnectionIndex) -> Result<Edge<'_>> {
        let peer = |rank: Rank| {
            self.peers.get(rank as usize).ok_or_else(|| {
                Error::new(ErrorKind::Protocol, "a rank outside the world takes part")
                    .with("rank", rank)
            })
        };
        Ok(Edge::new(
            peer(sender)?,
            peer(receiver)?,
            index,
            self.planner.config().step_bytes,
        ))
    }

    const fn receiving_lane(&self, from: Rank, index: ConnectionIndex) -> LaneKey {
        match index {
            ConnectionIndex::Collective => LaneKey::Collective,
            _ => LaneKey::Recv(from),
        }
    }
}

/// Why a transport cannot serve an edge; `None` if it can.
fn candidate(transport: &dyn Transport, edge: &Edge<'_>) -> Option<String> {
    for end in [edge.sender, edge.receiver] {
        if end.transport_facts(transport.name()).is_none() {
            return Some(format!("rank {} does not have it", end.rank));
        }
    }
    match transport.can_connect(edge) {
        Verdict::Yes => None,
        Verdict::No(reason) => Some(reason),
    }
}

const fn connection_index(key: LaneKey) -> ConnectionIndex {
    match key {
        LaneKey::Collective => ConnectionIndex::Collective,
        LaneKey::Send(_) | LaneKey::Recv(_) => ConnectionIndex::PointToPoint,
    }
}

async fn next(replies: &mut mpsc::UnboundedReceiver<Reply>, deadline: Instant) -> Result<Reply> {
    match tokio::time::timeout_at(deadline.into(), replies.recv()).await {
        Ok(Some(reply)) => Ok(reply),
        Ok(None) => Err(Error::new(ErrorKind::Internal, "the attempt was dropped")),
        Err(_) => Err(no_answer()),
    }
}

fn no_answer() -> Error {
    Error::new(
        ErrorKind::Timeout,
        "the receiving rank did not answer before the deadline",
    )
}

fn unexpected(message: &ConnectMessage) -> Error {
    Error::new(
        ErrorKind::Protocol,
        format!("unexpected answer to a connection request: {message:?}"),
    )
}
