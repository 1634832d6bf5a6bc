//! What the communicator says and hears over the control plane.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use comm_core::{Error, ErrorKind, Rank, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Core;
use crate::blocked::{BlockedReport, MismatchQuery};
use crate::control::{ControlHandler, FAILED_RANK, Failure, Message, WireFailure};
use crate::edge::connect::ConnectMessage;
use crate::lane::{Lane, LaneKey};
use crate::region::RegionMessage;

/// Connecting an edge ([`ConnectMessage`]).
const CONNECT: u16 = 1;
/// A blocked operation tells whom it waits for ([`BlockedReport`]).
const BLOCKED: u16 = 2;
/// A step of an unknown operation arrived ([`MismatchQuery`]).
const MISMATCH: u16 = 3;

/// A lane for frames has failed ([`FramePoison`]).
const FRAME_POISON: u16 = 4;
/// Memory that peers map ([`RegionMessage`]).
const REGION: u16 = 5;

/// How long leaving waits for the goodbyes to be written.
const GOODBYE: Duration = Duration::from_secs(1);

/// A lane for frames has failed at one end; the other end hears of it.
#[derive(Debug, Serialize, Deserialize)]
struct FramePoison {
    /// The lane as its end at the sender of this message calls it.
    lane: LaneKey,
    failure: WireFailure,
}

/// What comes over the control plane.
#[derive(Debug)]
enum Event {
    Message(Rank, Message),
    Failure(Error),
    Leave(Rank),
}

/// Hands what comes over the control plane to the core, once there is one, in the order in which it comes.
#[derive(Debug, Default)]
pub(super) struct Handler {
    core: OnceLock<Weak<Core>>,
    /// What came before the core was there.
    early: Mutex<Vec<Event>>,
}

impl Handler {
    /// Hands over everything that came so far and from now on.
    pub(super) fn attach(&self, core: &Arc<Core>) {
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.core.set(Arc::downgrade(core));
        for event in early.drain(..) {
            core.on_event(event);
        }
    }

    fn hand_over(&self, event: Event) {
        // The lock orders this after or before `attach`.
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        match self.core.get() {
            None => early.push(event),
            Some(core) => {
                drop(early);
                if let Some(core) = core.upgrade() {
                    core.on_event(event);
                }
            }
        }
    }
}

impl ControlHandler for Handler {
    fn on_message(&self, from: Rank, message: Message) {
        self.hand_over(Event::Message(from, message));
    }

    fn on_failure(&self, failure: &Error) {
        self.hand_over(Event::Failure(failure.clone()));
    }

    fn on_leave(&self, rank: Rank) {
        self.hand_over(Event::Leave(rank));
    }
}

impl Core {
    fn on_event(&self, event: Event) {
        match event {
            Event::Message(from, message) => self.on_message(from, message),
            Event::Failure(failure) => self.on_failure(failure),
            Event::Leave(rank) => self.on_leave(rank),
        }
    }
}

impl Core {
    fn on_message(&self, from: Rank, message: Message) {
        let result = match message.kind {
            CONNECT => decode(&message.payload).map(|connect| {
                if let Some(error) = &message.fds_error {
                    // The attempt misses its descriptors and fails by itself.
                    tracing::warn!(from, %error, "file descriptors did not arrive");
                }
                self.on_connect_message(from, connect, message.fds);
            }),
            BLOCKED => decode(&message.payload).map(|report| self.on_blocked_report(from, report)),
            MISMATCH => decode(&message.payload).map(|query| self.on_mismatch_query(from, &query)),
            FRAME_POISON => {
                decode(&message.payload).map(|poison| self.on_frame_poison(from, poison))
            }
            REGION => decode(&message.payload).map(|region| {
                self.on_region_message(from, region, message.fds, message.fds_error);
            }),
            other => Err(
                Error::new(ErrorKind::Protocol, "unknown kind of control message")
                    .with("kind", other),
            ),
        };
        if let Err(error) = result {
            tracing::warn!(rank = self.rank, from, %error, "control message dropped");
        }
    }

    fn on_failure(&self, failure: Error) {
        if self.abort.fail(failure) {
            self.forget_all_regions();
            self.wake_lanes();
        }
    }

    fn on_frame_poison(&self, from: Rank, poison: FramePoison) {
        let key = poison.lane.other_end(from);
        if let (Some(lane), Some(_)) = (self.lane(key), key.frame_peer()) {
            lane.poison.set(Failure::from(poison.failure).to_error());
            lane.wake(self.process.doorbells());
        }
    }

    /// Ends a lane for frames at both ends; whatever is under way there ends by its drivers.
    pub(crate) fn poison_lane(&self, lane: &Lane, error: Error) {
        let (Some(peer), true) = (lane.key.frame_peer(), lane.poison.set(error.clone())) else {
            return;
        };
        tracing::warn!(rank = self.rank, lane = %lane.key, %error, "one direction to a peer failed");
        lane.wake(self.process.doorbells());
        let poison = FramePoison {
            lane: lane.key,
            failure: self.failure_of(&error).to_wire(),
        };
        let told = encode(&poison)
            .and_then(|payload| self.control.send(peer, Message::new(FRAME_POISON, payload)));
        if let Err(error) = told {
            tracing::debug!(rank = self.rank, peer, %error, "the peer is not told of it");
        }
    }

    fn on_leave(&self, rank: Rank) {
        self.left
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(rank);
        self.forget_regions_of(rank);
        self.wake_lanes();
    }

    fn wake_lanes(&self) {
        for lane in self.lanes() {
            lane.wake(self.process.doorbells());
        }
    }

    /// Whether this rank has said goodbye.
    pub(crate) fn has_left(&self, rank: Rank) -> bool {
        self.left
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&rank)
    }

    pub(crate) fn tell_connect(
        &self,
        peer: Rank,
        message: &ConnectMessage,
        fds: Vec<OwnedFd>,
    ) -> Result<()> {
        self.control
            .send(peer, Message::new(CONNECT, encode(message)?).with_fds(fds))
    }

    /// Tells a peer something about a region; `fd` is the region's file.
    pub(crate) fn tell_region(
        &self,
        peer: Rank,
        message: &RegionMessage,
        fd: Option<OwnedFd>,
    ) -> Result<()> {
        let fds = fd.into_iter().collect();
        self.control
            .send(peer, Message::new(REGION, encode(message)?).with_fds(fds))
    }

    pub(crate) fn tell_blocked(&self, peer: Rank, report: &BlockedReport) -> Result<()> {
        self.control
            .send(peer, Message::new(BLOCKED, encode(report)?))
    }

    pub(crate) fn ask_mismatch(&self, peer: Rank, query: &MismatchQuery) -> Result<()> {
        self.control
            .send(peer, Message::new(MISMATCH, encode(query)?))
    }

    pub(super) fn tell_failure(&self, error: &Error) {
        self.control.fail(self.failure_of(error));
    }

    /// The failure that other ranks are told.
    fn failure_of(&self, error: &Error) -> Failure {
        let failed = |(key, value): (_, &str)| (key == FAILED_RANK).then(|| value.parse().ok());
        let failed = error.context().find_map(failed).flatten();
        // The rest of the context is part of what the other ranks have to know.
        let context: Vec<_> = error
            .context()
            .filter(|(key, _)| failed.is_none() || *key != FAILED_RANK)
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let message = if context.is_empty() {
            error.message().to_owned()
        } else {
            format!("{} ({})", error.message(), context.join(", "))
        };
        Failure {
            origin: self.rank,
            failed,
            kind: error.kind(),
            message,
        }
    }

    pub(super) fn leave_plane(&self) {
        self.control.leave(GOODBYE);
    }
}

fn encode<T: Serialize>(value: &T) -> Result<Bytes> {
    postcard::to_allocvec(value)
        .map(Bytes::from)
        .map_err(|error| {
            Error::new(ErrorKind::Internal, "a control message cannot be encoded")
                .with_source(error)
        })
}

fn decode<T: DeserializeOwned>(payload: &[u8]) -> Result<T> {
    postcard::from_bytes(payload).map_err(|error| {
        Error::new(ErrorKind::Protocol, "a control message cannot be decoded").with_source(error)
    })
}
