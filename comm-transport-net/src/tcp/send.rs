//! The sending end of a TCP connection.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use comm_core::net::{MrSlice, NetSend, Quiesce, Request, Transfer};
use comm_core::{Error, ErrorKind, Result};

use super::memory;
use super::owner::{Owner, State, no_bytes};
use super::poller::{Event, Interest};
use super::requests::Requests;
use super::shared::Shared;
use super::socket::{Sock, closed, failure};
use super::stripes::Parts;
use super::wire::{FRAME_BYTES, HANG_UP_LENGTH, HANG_UP_TRUNCATED, MAX_MESSAGE_BYTES, frame};

/// Bytes after which a call returns although the network would take more.
const BUDGET_BYTES: usize = 8 << 20;

/// Messages up to this length are copied behind their head before they are written.
const SMALL_BYTES: usize = 1016;

/// The state of a sending end, used by its owner and by whoever calls `progress`.
#[derive(Debug)]
pub(crate) struct SendState {
    /// Empty once the connection has failed.
    sockets: Vec<Sock>,
    /// Whether a socket took less than there was, and has not been reported writable since.
    blocked: Vec<bool>,
    stripe_bytes: usize,
    requests: Requests,
    writing: Option<Writing>,
    parts: Parts,
    failure: Option<Error>,
}

/// What is being written.
#[derive(Debug)]
struct Writing {
    head: [u8; FRAME_BYTES],
    head_sent: usize,
    len_bytes: usize,
    direct: bool,
}

impl SendState {
    pub(crate) fn new(sockets: Vec<Sock>, stripe_bytes: u32) -> Self {
        Self {
            blocked: vec![false; sockets.len()],
            sockets,
            stripe_bytes: stripe_bytes as usize,
            requests: Requests::new(),
            writing: None,
            parts: Parts::none(),
            failure: None,
        }
    }

    fn begin(&mut self, len_bytes: usize, direct: bool) {
        self.parts
            .split(len_bytes, self.sockets.len(), self.stripe_bytes);
        self.writing = Some(Writing {
            head: frame(len_bytes, direct),
            head_sent: 0,
            len_bytes,
            direct,
        });
    }

    /// Writes what the sockets take of the message under way.
    fn write(&mut self, contents: &[u8]) -> io::Result<Transfer> {
        let Some(writing) = &mut self.writing else {
            return Ok(Transfer::Done);
        };
        let mut moved = false;
        for number in 0..self.parts.count() {
            let mut budget = BUDGET_BYTES;
            loop {
                let left = self.parts.left(number);
                let head = if number == 0 {
                    &writing.head[writing.head_sent..]
                } else {
                    &[]
                };
                if head.is_empty() && left.is_empty() {
                    break;
                }
                if budget == 0 {
                    self.sockets[number].want(Interest::WRITE)?;
                    break;
                }
                let body = &contents[left.start..left.end.min(left.start + budget)];
                let socket = &mut self.sockets[number];
                let written = if head.is_empty() {
                    socket.write(body)?
                } else if body.len() <= SMALL_BYTES {
                    // One piece costs the kernel less than two, and these bytes cost nothing.
                    let mut whole = [0; FRAME_BYTES + SMALL_BYTES];
                    let len = head.len() + body.len();
                    whole[..head.len()].copy_from_slice(head);
                    whole[head.len()..len].copy_from_slice(body);
                    socket.write(&whole[..len])?
                } else {
                    socket.write_both(head, body)?
                };
                let Some(written) = written else {
                    self.blocked[number] = true;
                    socket.want(Interest::WRITE)?;
                    break;
                };
                self.blocked[number] = false;
                moved = true;
                let of_head = written.min(head.len());
                writing.head_sent += of_head;
                self.parts.advance(number, written - of_head);
                if writing.direct {
                    // Whoever sends directly comes back, and may have to receive in between.
                    break;
                }
                budget = budget.saturating_sub(written);
            }
        }
        if writing.head_sent == FRAME_BYTES && self.parts.is_done() {
            self.writing = None;
            return Ok(Transfer::Done);
        }
        Ok(if moved {
            Transfer::Moved
        } else {
            Transfer::Blocked
        })
    }

    /// Writes what the sockets take of the posted messages; whether anything was completed.
    fn advance(&mut self) -> io::Result<bool> {
        let mut moved = false;
        // Cloned, since the borrow would be in the way.
        while let Some(message) = self.requests.front().cloned() {
            if self.writing.as_ref().is_some_and(|writing| writing.direct) {
                break;
            }
            let len_bytes = message.len_bytes();
            if self.writing.is_none() {
                self.begin(len_bytes, false);
            }
            // SAFETY: `isend` checked the memory, and its caller promised that nobody writes to it
            // while the request is outstanding.
            let contents = unsafe { memory::contents(&message) };
            if self.write(contents)? != Transfer::Done {
                break;
            }
            self.requests.complete_front(len_bytes);
            moved = true;
        }
        Ok(moved)
    }

    /// What the peer's last byte says, if there is one.
    fn hang_up(&self) -> Option<Error> {
        let mut reason = [0];
        match self.sockets.first()?.read(&mut reason) {
            Ok(Some(1)) => Some(match reason[0] {
                HANG_UP_TRUNCATED => Error::new(
                    ErrorKind::Truncated,
                    "a message is longer than the buffer that the peer posted for it",
                ),
                HANG_UP_LENGTH => Error::new(
                    ErrorKind::Protocol,
                    "a direct transfer has another length than the peer expects",
                ),
                other => Error::new(
                    ErrorKind::Protocol,
                    "the receiver of a connection sent something",
                )
                .with("byte", other),
            }),
            _ => None,
        }
    }

    /// What became of a socket from which nothing should come.
    fn look_for_end(&mut self, number: usize) -> Option<Error> {
        if number == 0
            && let Some(error) = self.hang_up()
        {
            return Some(error);
        }
        match self.sockets.get(number)?.read(&mut [0]) {
            Ok(None) => None,
            Ok(Some(0)) => Some(closed()),
            Ok(Some(_)) => Some(Error::new(
                ErrorKind::Protocol,
                "the receiver of a connection sent something",
            )),
            Err(error) => Some(failure(error)),
        }
    }
}

impl State for SendState {
    type Stop = io::Error;

    fn requests(&mut self) -> &mut Requests {
        &mut self.requests
    }

    fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    fn advance_to(&mut self, _request: u64) -> io::Result<bool> {
        self.advance()
    }

    fn on_event(&mut self, number: usize, event: Event) -> io::Result<bool> {
        if event.readable
            && let Some(error) = self.look_for_end(number)
        {
            self.fail(error);
            return Ok(true);
        }
        let mut moved = false;
        if event.writable && number < self.blocked.len() {
            moved = std::mem::take(&mut self.blocked[number]);
            moved |= self.advance()?;
            // Who sends directly is told once, and tries by himself.
            let unfinished = self.writing.as_ref().is_some_and(|writing| !writing.direct)
                && !self.parts.left(number).is_empty();
            let want = if self.blocked[number] || unfinished {
                Interest::WRITE
            } else {
                Interest::NONE
            };
            self.sockets[number].settle(Interest::READ.or(want))?;
        }
        Ok(moved)
    }

    fn settle<T>(&mut self, outcome: io::Result<T>) -> Result<T> {
        outcome.map_err(|error| {
            // The peer may have said why it hung up.
            let failure = self.hang_up().unwrap_or_else(|| failure(error));
            self.fail(failure)
        })
    }

    /// The kernel goes on sending what it has.
    fn fail(&mut self, error: Error) -> Error {
        self.sockets.clear();
        self.requests.withdraw();
        self.writing = None;
        self.failure.get_or_insert(error).clone()
    }
}

/// A sending end.
#[derive(Debug)]
pub(crate) struct TcpSend {
    owner: Owner<SendState>,
}

impl TcpSend {
    /// Makes member `number` a sending end.
    pub(crate) fn new(shared: &Arc<Shared>, number: u64, state: SendState) -> Self {
        Self {
            owner: Owner::new(shared, number, state),
        }
    }
}

// SAFETY: memory is only accessed for requests in `requests`, which hold a clone of it, under the
// lock of the state, and synchronously: nothing but these calls reads it. `quiesce` and `fail`
// empty the list.
unsafe impl NetSend for TcpSend {
    unsafe fn isend(&mut self, message: &MrSlice) -> Result<Option<Request>> {
        self.owner.check_memory(message)?;
        let len_bytes = message.len_bytes();
        if len_bytes > MAX_MESSAGE_BYTES {
            return Err(
                Error::new(ErrorKind::InvalidArgument, "the message is too long")
                    .with("bytes", len_bytes),
            );
        }
        let mut state = self.owner.standing()?;
        let direct = state.writing.as_ref().is_some_and(|writing| writing.direct);
        if direct || !state.requests.has_room() {
            return Ok(None);
        }
        if !state.requests.is_idle() {
            return Ok(Some(state.requests.post(message)));
        }
        state.begin(len_bytes, false);
        // SAFETY: checked above, and the caller promises that nobody writes to it.
        let contents = unsafe { memory::contents(message) };
        let outcome = state.write(contents);
        Ok(Some(if state.settle(outcome)? == Transfer::Done {
            state.requests.post_done(len_bytes)
        } else {
            state.requests.post(message)
        }))
    }

    fn test(&mut self, request: &Request) -> Result<Option<usize>> {
        self.owner.test(request)
    }

    fn send_direct(&mut self, data: &[u8]) -> Result<Transfer> {
        let mut state = self.owner.standing()?;
        if let Some(writing) = &state.writing
            && writing.direct
        {
            if writing.len_bytes != data.len() {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "another direct transfer is under way",
                )
                .with("bytes", data.len())
                .with("bytes_under_way", writing.len_bytes));
            }
        } else {
            if data.is_empty() {
                return Err(no_bytes());
            }
            let outcome = state.advance();
            state.settle(outcome)?;
            if !state.requests.is_idle() {
                return Ok(Transfer::Blocked);
            }
            state.begin(data.len(), true);
        }
        let outcome = state.write(data);
        state.settle(outcome)
    }

    fn direct_ready(&mut self) -> bool {
        let state = self.owner.lock();
        if state.failure.is_some() {
            return true;
        }
        match &state.writing {
            Some(writing) if writing.direct => (0..state.parts.count()).any(|number| {
                let unfinished = !state.parts.left(number).is_empty()
                    || number == 0 && writing.head_sent < FRAME_BYTES;
                unfinished && !state.blocked[number]
            }),
            Some(_) => false,
            None => state.requests.is_idle(),
        }
    }

    fn quiesce(&mut self, _deadline: Instant) -> Quiesce {
        self.owner.quiesce()
    }
}
