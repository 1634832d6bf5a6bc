//! One end of a connection, in either direction: requests, waking, failure.
//!
//! What differs between sending and receiving is a [`Direction`]: how to make a step with the first
//! pending request.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use comm_core::net::{MrSlice, Quiesce, Request};
use comm_core::{Error, ErrorKind, Result};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use crate::memory;
use crate::poller::{Member, Poller, Watched, lock};
use crate::requests::{Requests, Standing};

/// Bytes after which a call returns although more could be moved.
const BUDGET_BYTES: usize = 4 << 20;

/// What a step came to.
#[derive(Debug)]
pub(crate) enum Step {
    /// The message is complete, with this many bytes of contents.
    Done(usize),
    /// This many bytes were moved.
    Moved(usize),
    /// The socket has nothing, or takes nothing, now.
    Blocked,
}

/// Sending or receiving.
pub(crate) trait Direction: Send + fmt::Debug + 'static {
    /// What to wait for when a step was blocked.
    const WANTED: EventFlags;

    /// Moves what one system call moves of the message whose memory this is.
    ///
    /// # Errors
    ///
    /// The failure of the connection.
    ///
    /// # Safety
    ///
    /// The memory is registered with this backend. Nobody writes to it during the call if it is
    /// sent, nobody accesses it if it is received into.
    unsafe fn step(&mut self, socket: BorrowedFd<'_>, memory: &MrSlice) -> Result<Step>;
}

/// An end of a connection as its owner has it.
#[derive(Debug)]
pub(crate) struct Endpoint<D> {
    poller: Arc<Poller>,
    shared: Arc<Shared<D>>,
}

/// What the owner shares with whoever calls `progress`.
#[derive(Debug)]
struct Shared<D> {
    state: Mutex<State<D>>,
}

#[derive(Debug)]
struct State<D> {
    /// Empty once the connection has failed.
    socket: Option<Watched>,
    direction: D,
    requests: Requests,
    failure: Option<Error>,
}

impl<D: Direction> Endpoint<D> {
    /// An end over a connected, non-blocking socket.
    pub(crate) fn new(poller: &Arc<Poller>, socket: OwnedFd, direction: D) -> Result<Self> {
        let shared = poller.watch(socket, D::WANTED, |socket| Shared {
            state: Mutex::new(State {
                socket: Some(socket),
                direction,
                requests: Requests::new(),
                failure: None,
            }),
        })?;
        Ok(Self {
            poller: Arc::clone(poller),
            shared,
        })
    }

    /// Posts a request and moves what can be moved of it.
    ///
    /// # Safety
    ///
    /// Until the request has tested done or was withdrawn, nobody writes to the memory if it is
    /// sent, nobody accesses it if it is received into.
    pub(crate) unsafe fn post(&mut self, memory: &MrSlice) -> Result<Option<Request>> {
        memory::check(&self.poller, memory)?;
        let mut state = lock(&self.shared.state);
        state.check()?;
        let request = state.requests.post(memory);
        if request.is_some() {
            state.advance()?;
        }
        Ok(request)
    }

    /// Whether the request is done, after moving what can be moved.
    pub(crate) fn outcome(&mut self, request: &Request) -> Result<Option<usize>> {
        let mut state = lock(&self.shared.state);
        match state.requests.test(request) {
            Standing::Done(len_bytes) => return Ok(Some(len_bytes)),
            Standing::Pending => {}
            Standing::Unknown => {
                // What was pending when the connection failed is no request any more.
                state.check()?;
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "the request is not outstanding here; it was tested done before, or belongs \
                     to another end",
                )
                .with("request", request.token()));
            }
        }
        let outcome = state.advance();
        // It may have been done before something behind it failed.
        match state.requests.test(request) {
            Standing::Done(len_bytes) => Ok(Some(len_bytes)),
            _ => outcome.map(|_| None),
        }
    }

    /// Withdraws everything (N11). Memory is touched under the lock only, so it is at rest now.
    pub(crate) fn withdraw(&mut self) -> Quiesce {
        let cancelled = Error::new(
            ErrorKind::Cancelled,
            "this end of the connection was quiesced",
        );
        lock(&self.shared.state).fail(cancelled);
        Quiesce::Quiesced
    }
}

impl<D: Direction> State<D> {
    /// Moves what can be moved; whether a request was completed.
    fn advance(&mut self) -> Result<bool> {
        let outcome = self.try_advance();
        outcome.map_err(|error| self.fail(error))
    }

    fn try_advance(&mut self) -> Result<bool> {
        let (mut completed, mut budget) = (false, BUDGET_BYTES);
        while let (Some(socket), Some(memory)) = (&mut self.socket, self.requests.first()) {
            // SAFETY: `post` checked the memory, and its caller promised to leave it alone while
            // the request is pending.
            match unsafe { self.direction.step(socket.fd(), memory) }? {
                Step::Done(len_bytes) => {
                    self.requests.complete_first(len_bytes);
                    completed = true;
                }
                Step::Moved(bytes) if bytes < budget => budget -= bytes,
                Step::Moved(_) | Step::Blocked => {
                    socket.ask()?;
                    break;
                }
            }
        }
        Ok(completed)
    }

    fn check(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Closes the connection; its failure, which is the first error (N13).
    fn fail(&mut self, error: Error) -> Error {
        self.socket = None;
        self.requests.withdraw();
        self.failure.get_or_insert(error).clone()
    }
}

impl<D: Direction> Member for Shared<D> {
    fn ready(&self) -> bool {
        let mut state = lock(&self.state);
        if let Some(socket) = &mut state.socket {
            socket.reported();
        }
        // A failure is kept for the owner, and something that moved.
        state.advance().unwrap_or(true)
    }
}

/// What a failed system call says about the connection.
pub(crate) fn failure(errno: Errno) -> Error {
    match errno {
        Errno::PIPE | Errno::CONNRESET => hung_up().with_source(std::io::Error::from(errno)),
        errno => Error::system("moving data over a Unix socket", errno),
    }
}

/// The failure of a connection that the peer has closed.
pub(crate) fn hung_up() -> Error {
    Error::new(
        ErrorKind::PeerDied,
        "the peer closed the connection or its process ended; see what it reported",
    )
}
