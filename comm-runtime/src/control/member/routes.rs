//! Routes of a member: how links come about and what their end means.
//!
//! # Contract
//!
//! * A member has at most one *route* to each peer: the link over which everything it sends to
//!   that peer goes, so it arrives in order. The route is the first link that there is when
//!   something is to be sent, or a new one. If both ends dial at the same time there are two
//!   links, and each end sends on its own.
//! * A link that ends without a goodbye means that the peer died. The member then fails with a
//!   cause that names the peer, and tells everybody.
//! * A peer has left when it has said goodbye and no link to it is left: what it sent over another one
//!   before may be read later than the first goodbye.
//! * A peer to which there never was a link says no goodbye. If nobody knows it any more, or listens where
//!   it was, it has left: had it died, its neighbours would tell.
//! * How a member leaves is the business of the module `leaving`.

use std::sync::Arc;

use comm_core::{Error, ErrorKind, PeerInfo, ProcessId, Rank, Result};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::AbortHandle;

use super::{Link, Member, State};
use crate::control::EARLIER_START;
use crate::control::core::lock;
use crate::control::dial;
use crate::control::failure::Failure;
use crate::control::frame::{self, FrameKind};
use crate::control::hello::{HandshakeFailure, Purpose, RejectReason};
use crate::control::link::{self, LinkEnd, Outgoing};
use crate::control::liveness::ProcessTag;
use crate::control::plane::Message;

impl Member {
    /// Queues a message.
    pub(crate) fn send(self: &Arc<Self>, peer: Rank, message: Message) -> Result<()> {
        let outgoing = if message.fds.is_empty() {
            Outgoing::Frame(link::message_frame(&message)?)
        } else {
            Outgoing::MessageWithFds(message)
        };
        self.queue(peer, outgoing)
    }

    /// Queues anything on the route to a peer, which is opened if there is none.
    pub(crate) fn queue(self: &Arc<Self>, peer: Rank, outgoing: Outgoing) -> Result<()> {
        let route = self.route(peer)?;
        // A closed queue means that the link just ended, which the link itself reports.
        let _ = route.send(outgoing);
        Ok(())
    }

    /// The route to a peer; dials if there is none.
    pub(crate) fn route(self: &Arc<Self>, peer: Rank) -> Result<UnboundedSender<Outgoing>> {
        let mut state = lock(&self.state);
        if state.leaving {
            return Err(Error::new(
                ErrorKind::Aborted,
                "this rank has left the communicator",
            ));
        }
        let entry = state.peers.get(peer as usize).ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidArgument,
                "the peer must be smaller than the world size",
            )
            .with("peer", peer)
            .with("world_size", self.world_size)
        })?;
        if entry.left {
            return Err(Error::new(
                ErrorKind::PeerFailed,
                "the peer has left the communicator already; let all ranks meet in a barrier \
                 before they end",
            )
            .with("peer", peer));
        }
        if let Some(error) = &entry.unreachable {
            return Err(error.clone());
        }
        if let Some(route) = &entry.route {
            return Ok(route.clone());
        }
        let info = entry.info.clone().ok_or_else(|| {
            Error::new(
                ErrorKind::Internal,
                "a rank is dialled before its address is known",
            )
            .with("peer", peer)
        })?;
        let (outbox, queue) = mpsc::unbounded_channel();
        let number = state.next_link;
        let task = self
            .core
            .runtime()
            .spawn(Arc::clone(self).dial(info, number, queue));
        self.add_link(&mut state, peer, outbox.clone(), task.abort_handle(), false);
        state.peers[peer as usize].route = Some(outbox.clone());
        Ok(outbox)
    }

    fn add_link(
        &self,
        state: &mut State,
        peer: Rank,
        outbox: UnboundedSender<Outgoing>,
        task: AbortHandle,
        open: bool,
    ) {
        if let Some((failure, _)) = self.failure.get()
            && let Ok(frame) = frame::encode(FrameKind::Failure, &failure.to_wire())
        {
            // The queue was made by the caller and is open.
            let _ = outbox.send(Outgoing::Frame(frame));
        }
        state.links.insert(
            state.next_link,
            Link {
                peer,
                outbox,
                task,
                open,
                said_goodbye: false,
            },
        );
        state.next_link += 1;
    }

    async fn dial(
        self: Arc<Self>,
        info: PeerInfo,
        number: u64,
        queue: UnboundedReceiver<Outgoing>,
    ) {
        let peer = info.rank;
        let purpose = Purpose::Link {
            communicator: self.communicator,
            from: self.rank,
            to: peer,
        };
        match dial::dial(&self.core, &info, &purpose, &self.admission).await {
            Ok((stream, process)) => {
                if let Some(link) = lock(&self.state).links.get_mut(&number) {
                    link.open = true;
                }
                self.changed.notify_waiters();
                let end = link::run(stream, queue, &self, peer, process).await;
                self.link_ended(number, peer, end);
            }
            Err(failure) => self.dial_failed(number, &info, failure),
        }
    }

    fn dial_failed(&self, number: u64, info: &PeerInfo, failure: HandshakeFailure) {
        let peer = info.rank;
        let error = Error::new(
            failure.error.kind(),
            format!("{info} cannot be reached: {}", failure.error),
        );
        let error = match failure.reason {
            Some(RejectReason::Unknown) => error.with(EARLIER_START, "possible"),
            _ => error,
        };
        let (joined, leaving, left) = {
            let mut state = lock(&self.state);
            state.links.remove(&number);
            let (joined, leaving) = (state.joined, state.leaving);
            let entry = &mut state.peers[peer as usize];
            entry.route = None;
            // Before the end of the join nobody leaves.
            let gone = failure.reason == Some(RejectReason::Unknown) || failure.is_refusal;
            let left = joined && (gone || entry.goodbye);
            if !left {
                entry.unreachable = Some(error.clone());
            }
            (joined, leaving, left)
        };
        self.changed.notify_waiters();
        if left {
            tracing::debug!(peer, "messages for a rank that has left were dropped");
            self.note_goodbye(peer);
        } else if joined && !leaving {
            self.fail(Failure {
                origin: self.rank,
                failed: Some(peer),
                kind: ErrorKind::PeerFailed,
                message: error.to_string(),
            });
        }
    }

    /// Takes note that the peer says nothing more over one link; it has left if there is no other.
    fn note_goodbye(&self, peer: Rank) {
        let has_left = {
            let mut state = lock(&self.state);
            let speaks = |link: &Link| link.peer == peer && link.open;
            let is_last = !state.links.values().any(speaks);
            let entry = &mut state.peers[peer as usize];
            entry.goodbye = true;
            is_last && !std::mem::replace(&mut entry.left, is_last)
        };
        if has_left {
            tracing::debug!(rank = self.rank, peer, "a rank has left");
            self.changed.notify_waiters();
            self.handler.on_leave(peer);
        }
    }

    /// Whether a connection from this rank may be taken.
    pub(crate) fn may_attach(&self, from: Rank, process: ProcessId) -> Result<(), RejectReason> {
        let state = lock(&self.state);
        let peer = state
            .peers
            .get(from as usize)
            .ok_or(RejectReason::Unknown)?;
        let known = peer.info.as_ref().map(|info| info.process).or(peer.process);
        match known {
            Some(known) if known != process => Err(RejectReason::Duplicate),
            _ if from == self.rank => Err(RejectReason::Duplicate),
            _ => Ok(()),
        }
    }

    /// Takes a connection that a peer opened.
    pub(crate) fn attach(self: &Arc<Self>, stream: TcpStream, from: Rank, process: ProcessTag) {
        let (outbox, queue) = mpsc::unbounded_channel();
        let mut state = lock(&self.state);
        let number = state.next_link;
        let task = self.core.runtime().spawn({
            let member = Arc::clone(self);
            async move {
                let end = link::run(stream, queue, &member, from, process).await;
                member.link_ended(number, from, end);
            }
        });
        self.add_link(&mut state, from, outbox.clone(), task.abort_handle(), true);
        if let Some(peer) = state.peers.get_mut(from as usize) {
            peer.process = Some(process.id);
            peer.route.get_or_insert(outbox);
        }
        if state.leaving {
            state.say_goodbyes();
        }
        drop(state);
        self.changed.notify_waiters();
    }

    fn link_ended(&self, number: u64, peer: Rank, end: LinkEnd) {
        let goodbye = matches!(end, LinkEnd::PeerLeft);
        let (is_over, ignore) = {
            let mut state = lock(&self.state);
            state.links.remove(&number);
            let leaving = state.leaving;
            let Some(entry) = state.peers.get(peer as usize) else {
                return;
            };
            let is_over = goodbye || entry.goodbye;
            (is_over, leaving || is_over)
        };
        self.changed.notify_waiters();
        if is_over {
            self.note_goodbye(peer);
        }
        let name = self.name_of(peer);
        let message = match end {
            _ if ignore => return,
            LinkEnd::PeerLeft | LinkEnd::LocalEnd => return,
            LinkEnd::Silent(limit) => format!(
                "{name} was silent for {} s: its host or network is down, or the process is \
                 stopped (COMM_HEARTBEAT_TIMEOUT_SECONDS sets the limit)",
                limit.as_secs_f64()
            ),
            LinkEnd::Broken(error) if error.kind() == ErrorKind::Protocol => {
                format!("the control connection to {name} carried nonsense: {error}")
            }
            LinkEnd::Broken(error) => {
                tracing::debug!(peer, %error, "a control link broke");
                format!(
                    "{name} ended without leaving the communicator: the process was killed or \
                     crashed, or it dropped the communicator without ending it"
                )
            }
        };
        self.fail(Failure {
            origin: self.rank,
            failed: Some(peer),
            kind: ErrorKind::PeerDied,
            message,
        });
    }
}

#[cfg(test)]
mod tests;
