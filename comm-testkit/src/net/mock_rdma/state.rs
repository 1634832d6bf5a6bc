//! What a fabric remembers: ports, listeners, links, and what is on its way between them.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use comm_core::net::MrSlice;
use comm_core::{Error, ErrorKind, Result};

use crate::net::Rng;

/// The ends of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Send = 0,
    Recv = 1,
}

impl Side {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Send => Self::Recv,
            Self::Recv => Self::Send,
        }
    }
}

/// Everything behind the fabric's lock.
pub(super) struct State {
    pub(super) rng: Rng,
    pub(super) ports: Vec<Port>,
    pub(super) listeners: BTreeMap<u64, Listener>,
    pub(super) connects: BTreeMap<u64, Connect>,
    pub(super) links: BTreeMap<u64, Link>,
    /// What the hardware has still to notice.
    pub(super) signals: VecDeque<Signal>,
    /// Memory of connections that were dropped before they had quiesced.
    pub(super) undead: Vec<Undead>,
    pub(super) next_id: u64,
    pub(super) stop: bool,
}

/// One card.
pub(super) struct Port {
    pub(super) event: Arc<OwnedFd>,
    pub(super) armed: bool,
    pub(super) queue: VecDeque<Completion>,
    pub(super) failure: Option<Error>,
    pub(super) calls: u64,
    pub(super) fail_call: Option<u64>,
}

/// An entry of a card's completion queue.
pub(super) enum Completion {
    Done {
        link: u64,
        side: Side,
        token: u64,
        bytes: usize,
    },
    Failed {
        link: u64,
        side: Side,
        error: Error,
    },
    Accepted {
        listener: u64,
        link: u64,
    },
    Connected {
        connect: u64,
        outcome: Result<u64>,
    },
    /// A request that was refused would be accepted now.
    Room,
}

pub(super) struct Listener {
    pub(super) port: usize,
    pub(super) ready: VecDeque<u64>,
}

pub(super) struct Connect {
    pub(super) port: usize,
    pub(super) outcome: Option<Result<u64>>,
}

/// What happened at one place and is noticed at another one later.
pub(super) enum Signal {
    Connecting { connect: u64, listener: u64 },
    Closed { link: u64, side: Side },
    Broken { link: u64, error: Error },
    Room { port: usize },
}

pub(super) struct Link {
    pub(super) ends: [End; 2],
}

pub(super) struct End {
    pub(super) port: usize,
    pub(super) posted: VecDeque<Posted>,
    /// Requests that completed and were fetched from the queue, but not tested.
    pub(super) done: BTreeMap<u64, usize>,
    /// Requests that were accepted and not tested until done.
    pub(super) outstanding: Vec<u64>,
    pub(super) failure: Option<Error>,
    pub(super) closed: bool,
    /// Whether the hardware has stopped to serve this end.
    pub(super) stopped: bool,
    /// When the withdrawn requests come to rest.
    pub(super) rests_at: Option<Rest>,
}

#[derive(Clone, Copy)]
pub(super) enum Rest {
    At(Instant),
    Never,
}

pub(super) struct Posted {
    pub(super) token: u64,
    pub(super) slice: MrSlice,
    pub(super) put: Option<Target>,
}

/// Where a put goes.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) window: u64,
    pub(super) offset_bytes: u64,
}

pub(super) struct Undead {
    pub(super) port: usize,
    pub(super) side: Side,
    pub(super) rest: Rest,
    pub(super) posted: Vec<Posted>,
}

impl Port {
    pub(super) const fn new(event: Arc<OwnedFd>) -> Self {
        Self {
            event,
            armed: false,
            queue: VecDeque::new(),
            failure: None,
            calls: 0,
            fail_call: None,
        }
    }

    /// Queues a completion; the first one after `arm` makes the descriptor readable.
    pub(super) fn complete(&mut self, completion: Completion) {
        self.queue.push_back(completion);
        self.ring();
    }

    pub(super) fn ring(&mut self) {
        if std::mem::take(&mut self.armed) {
            // The counter is far from overflow, the only way in which this fails.
            let _ = rustix::io::write(&*self.event, &1_u64.to_ne_bytes());
        }
    }
}

impl End {
    pub(super) const fn new(port: usize) -> Self {
        Self {
            port,
            posted: VecDeque::new(),
            done: BTreeMap::new(),
            outstanding: Vec::new(),
            failure: None,
            closed: false,
            stopped: false,
            rests_at: None,
        }
    }
}

impl State {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            ports: Vec::new(),
            listeners: BTreeMap::new(),
            connects: BTreeMap::new(),
            links: BTreeMap::new(),
            signals: VecDeque::new(),
            undead: Vec::new(),
            next_id: 1,
            stop: false,
        }
    }

    pub(super) const fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Counts a call that can fail; fails if the card has failed or this call was chosen to.
    pub(super) fn enter(&mut self, port: usize) -> Result<()> {
        let port = &mut self.ports[port];
        if let Some(error) = &port.failure {
            return Err(error.clone());
        }
        port.calls += 1;
        if port.fail_call == Some(port.calls) {
            port.fail_call = None;
            return Err(Error::new(ErrorKind::System, "injected fault").with("call", port.calls));
        }
        Ok(())
    }

    /// The end of a link that was handed out and is not dropped, hence exists.
    pub(super) fn end(&mut self, link: u64, side: Side) -> Result<&mut End> {
        self.links
            .get_mut(&link)
            .map(|link| &mut link.ends[side as usize])
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::Internal,
                    "the mock forgot a connection that is in use",
                )
            })
    }

    /// Like [`State::enter`], for a call of one end: a fault is final for the connection.
    pub(super) fn enter_end(&mut self, link: u64, side: Side) -> Result<()> {
        let port = self.end(link, side)?.port;
        if let Err(error) = self.enter(port) {
            self.fail_end(link, side, &error);
            return Err(error);
        }
        Ok(())
    }

    /// Fails an end at once; the other end notices later.
    pub(super) fn fail_end(&mut self, link: u64, side: Side, error: &Error) {
        let Ok(end) = self.end(link, side) else {
            return;
        };
        end.stopped = true;
        if end.failure.is_none() {
            end.failure = Some(error.clone());
            self.signals.push_back(Signal::Closed { link, side });
        }
    }
}
