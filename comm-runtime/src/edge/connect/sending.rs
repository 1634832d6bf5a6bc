//! The sending end's part: going through the candidates until one edge is proved.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use comm_core::doorbell::RingTarget;
use comm_core::fifo::{FifoLayout, FifoMemory};
use comm_core::{
    ConnInfo, ConnectHandle, Edge, Error, ErrorKind, PeerInfo, Rank, Result, Transport,
};
use tokio::sync::mpsc;

use super::{
    ConnectMessage, ConnectRequest, ConnectedEdge, Reply, connection_index, receiving_lane,
};
use crate::communicator::Core;
use crate::control::FAILED_RANK;
use crate::edge::candidates::candidate;
use crate::edge::ends::{RecvEnd, SendEnd};
use crate::edge::prove;
use crate::lane::{LaneKey, Mail};

/// Name of the edge of a rank to itself in `explain()`.
const SELF: &str = "self";

impl Core {
    /// An edge to oneself is a FIFO on the heap; it concerns no transport.
    pub(super) fn connect_to_self(&self, key: LaneKey, channel: u32) {
        let index = connection_index(key);
        let made = self.self_edge(self.step_bytes(index));
        let receiving = receiving_lane(self.rank, index);
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

    fn self_edge(&self, step_bytes: usize) -> Result<(SendEnd, RecvEnd)> {
        let layout = FifoLayout::new(step_bytes)?;
        let bells = RingTarget::Local(Arc::clone(self.process.doorbells()));
        let (sender, receiver) = FifoMemory::heap(layout).into_ends(bells.clone(), bells);
        Ok((
            SendEnd::new(self.rank, SELF, ConnInfo::MemorySend(sender))?,
            RecvEnd::new(self.rank, self.rank, SELF, ConnInfo::MemoryRecv(receiver))?,
        ))
    }

    pub(super) async fn connect_sending(
        &self,
        key: LaneKey,
        peer: Rank,
        channel: u32,
    ) -> Result<SendEnd> {
        let index = connection_index(key);
        let edge = self.edge(self.rank, peer, index)?.on_channel(channel);
        let mut passed_over = self.unavailable_transports();
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
        if self.has_left(peer) {
            let text = format!(
                "{} has left the communicator, and nothing had connected it to {} by then; let all \
                 ranks meet in a barrier before they end",
                edge.receiver, edge.sender
            );
            return Err(Error::new(ErrorKind::PeerDied, text).with(FAILED_RANK, peer));
        }
        let reasons: Vec<_> = passed_over
            .iter()
            .map(|(name, reason)| format!("{name}: {reason}"))
            .collect();
        let (why, advice) = if reasons.is_empty() {
            (
                "none is compiled in or registered".to_owned(),
                "Enable a Cargo feature of comm-api, such as `shm` or `tcp`",
            )
        } else {
            (
                reasons.join("; "),
                "Build all ranks with the same Cargo features, or allow more by COMM_TRANSPORTS",
            )
        };
        Err(Error::new(
            ErrorKind::Unavailable,
            format!(
                "no transport connects {} to {}; {why}. {advice}",
                edge.sender, edge.receiver,
            ),
        )
        .with("sender_has", transports_of(edge.sender))
        .with("receiver_has", transports_of(edge.receiver)))
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
        let (remote, regions) = match next(&mut replies, deadline).await? {
            (
                ConnectMessage::Accept {
                    handle, regions, ..
                },
                fds,
            ) => {
                let bytes = Bytes::from(handle);
                (ConnectHandle { bytes, fds }, regions)
            }
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
        if let (Some(pair), Some(generation)) = (self.neighbours.pair(peer), regions) {
            end = end.with_regions(Arc::clone(pair), generation);
        }
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
}

/// The transports that a rank can use, by its own facts.
fn transports_of(peer: &PeerInfo) -> String {
    if peer.transports.is_empty() {
        return "none".to_owned();
    }
    let names: Vec<_> = peer.transports.keys().map(String::as_str).collect();
    names.join(",")
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
