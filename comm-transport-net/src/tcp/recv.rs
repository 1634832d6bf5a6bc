//! The receiving end of a TCP connection.
//!
//! A small message comes with one read: head and contents go to a staging buffer and from there to
//! the posted memory. What the staging buffer does not hold of a larger message is read straight
//! into the posted memory, in the same call as the beginning of what follows.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use comm_core::net::{MrSlice, NetRecv, Quiesce, Request, Transfer};
use comm_core::{Error, ErrorKind, Result};

use super::memory;
use super::owner::{Owner, State, no_bytes};
use super::poller::{Event, Interest};
use super::requests::Requests;
use super::shared::Shared;
use super::socket::{Sock, failure};
use super::staging::{STAGING_BYTES, Staging};
use super::stripes::Parts;
use super::wire::{FRAME_BYTES, HANG_UP_LENGTH, HANG_UP_TRUNCATED, parse_frame};

/// Bytes after which a call returns although there may be more.
const BUDGET_BYTES: usize = 8 << 20;

/// The state of a receiving end, used by its owner and by whoever calls `progress`.
#[derive(Debug)]
pub(crate) struct RecvState {
    /// Empty once the connection has failed.
    sockets: Vec<Sock>,
    /// Whether a socket had less than was wanted, and has not been reported readable since.
    blocked: Vec<bool>,
    stripe_bytes: usize,
    requests: Requests,
    staging: Staging,
    /// The message or transfer of which the head has come.
    frame: Option<Frame>,
    parts: Parts,
    /// Set by a read that got less than it could take, so that the next one is not worth a call:
    /// whoever has just received a message looks for the next one at once, in vain.
    just_drained: bool,
    failure: Option<Error>,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    len_bytes: usize,
    direct: bool,
}

/// Why receiving stops.
#[derive(Debug)]
pub(crate) enum Stop {
    Socket(io::Error),
    /// The peer sent what it must not; it is told by this byte.
    Peer(Error, u8),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Socket(error)
    }
}

impl RecvState {
    pub(crate) fn new(sockets: Vec<Sock>, stripe_bytes: u32) -> Self {
        Self {
            blocked: vec![false; sockets.len()],
            sockets,
            stripe_bytes: stripe_bytes as usize,
            requests: Requests::new(),
            staging: Staging::new(),
            frame: None,
            parts: Parts::none(),
            just_drained: false,
            failure: None,
        }
    }

    /// Receives what has come for posted requests; whether any was completed.
    ///
    /// Stops once `enough` says so.
    fn advance(&mut self, enough: impl Fn(&Requests) -> bool) -> Result<bool, Stop> {
        let (mut moved, mut budget) = (false, BUDGET_BYTES);
        while !enough(&self.requests) && !self.requests.is_idle() {
            let Some(frame) = self.next_frame()?.filter(|frame| !frame.direct) else {
                break;
            };
            // Cloned, since the borrow would be in the way.
            let Some(target) = self.requests.front().cloned() else {
                break;
            };
            if frame.len_bytes > target.len_bytes() {
                let error = Error::new(
                    ErrorKind::Truncated,
                    "a message is longer than the buffer that was posted for it",
                )
                .with("message_bytes", frame.len_bytes)
                .with("buffer_bytes", target.len_bytes());
                return Err(Stop::Peer(error, HANG_UP_TRUNCATED));
            }
            // SAFETY: `irecv` checked the memory, and its caller promised that nobody else
            // accesses it while the request is outstanding.
            let room = unsafe { memory::room(&target) };
            if self.fill(room, &mut budget)? != Transfer::Done {
                break;
            }
            self.frame = None;
            self.requests.complete_front(frame.len_bytes);
            moved = true;
        }
        Ok(moved)
    }

    /// The frame under way, or the next one if its head has come.
    fn next_frame(&mut self) -> Result<Option<Frame>, Stop> {
        if self.frame.is_none() {
            while self.staging.len() < FRAME_BYTES {
                if std::mem::take(&mut self.just_drained) {
                    self.block(0)?;
                    return Ok(None);
                }
                let room = self.staging.room();
                let wanted = room.len();
                match self.sockets[0].read(room)? {
                    None => {
                        self.block(0)?;
                        return Ok(None);
                    }
                    Some(0) => return Err(Stop::Socket(io::ErrorKind::UnexpectedEof.into())),
                    Some(bytes) => {
                        self.blocked[0] = false;
                        self.staging.received(bytes);
                        self.just_drained = bytes < wanted;
                    }
                }
            }
            let (len_bytes, direct) = parse_frame(self.staging.take_head());
            self.parts
                .split(len_bytes, self.sockets.len(), self.stripe_bytes);
            self.frame = Some(Frame { len_bytes, direct });
        }
        Ok(self.frame)
    }

    /// Receives what has come of the frame under way.
    fn fill(&mut self, room: &mut [u8], budget: &mut usize) -> Result<Transfer, Stop> {
        let direct = self.frame.is_some_and(|frame| frame.direct);
        let mut moved = false;
        for number in 0..self.parts.count() {
            loop {
                let left = self.parts.left(number);
                if left.is_empty() {
                    break;
                }
                let target = &mut room[left];
                if number == 0 && self.staging.len() > 0 {
                    self.parts.advance(0, self.staging.take(target));
                    moved = true;
                    continue;
                }
                if *budget == 0 {
                    self.sockets[number].want(Interest::READ)?;
                    break;
                }
                let read = if number > 0 {
                    self.sockets[number].read(target)?
                } else if std::mem::take(&mut self.just_drained) {
                    None
                } else {
                    self.sockets[0].read_both(target, self.staging.room())?
                };
                let bytes = match read {
                    None => {
                        self.block(number)?;
                        break;
                    }
                    Some(0) => return Err(Stop::Socket(io::ErrorKind::UnexpectedEof.into())),
                    Some(bytes) => bytes,
                };
                self.blocked[number] = false;
                moved = true;
                let of_target = bytes.min(target.len());
                self.parts.advance(number, of_target);
                if number == 0 {
                    self.just_drained = bytes < target.len() + STAGING_BYTES;
                    self.staging.received(bytes - of_target);
                }
                *budget = budget.saturating_sub(bytes);
                if direct {
                    // Whoever receives directly comes back, and may have to send in between.
                    self.just_drained &= self.parts.is_done();
                    break;
                }
            }
        }
        Ok(if self.parts.is_done() {
            Transfer::Done
        } else if moved {
            Transfer::Moved
        } else {
            Transfer::Blocked
        })
    }

    /// Takes note that a socket has nothing, and asks to be told.
    fn block(&mut self, number: usize) -> io::Result<()> {
        self.blocked[number] = true;
        self.sockets[number].want(Interest::READ)
    }

    fn recv_direct(&mut self, data: &mut [u8]) -> Result<Transfer, Stop> {
        self.advance(|_| false)?;
        // A message that nobody has posted for is received first.
        let Some(frame) = self.next_frame()?.filter(|frame| frame.direct) else {
            return Ok(Transfer::Blocked);
        };
        if frame.len_bytes != data.len() {
            let error = Error::new(
                ErrorKind::Protocol,
                "a direct transfer has another length than expected",
            )
            .with("bytes", frame.len_bytes)
            .with("expected_bytes", data.len());
            return Err(Stop::Peer(error, HANG_UP_LENGTH));
        }
        let transfer = self.fill(data, &mut { BUDGET_BYTES })?;
        if transfer == Transfer::Done {
            self.frame = None;
        }
        Ok(transfer)
    }

    fn direct_ready(&self) -> bool {
        if self.failure.is_some() {
            return true;
        }
        match self.frame {
            None => self.staging.len() >= FRAME_BYTES || !self.blocked[0],
            Some(frame) if !frame.direct => false,
            Some(_) => (0..self.parts.count()).any(|number| {
                let staged = number == 0 && self.staging.len() > 0;
                !self.parts.left(number).is_empty() && (staged || !self.blocked[number])
            }),
        }
    }
}

impl State for RecvState {
    type Stop = Stop;

    fn requests(&mut self) -> &mut Requests {
        &mut self.requests
    }

    fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    fn advance_to(&mut self, request: u64) -> Result<bool, Stop> {
        self.advance(|requests| requests.is_done(request))
    }

    fn on_event(&mut self, number: usize, event: Event) -> Result<bool, Stop> {
        if !event.readable || number >= self.sockets.len() {
            return Ok(false);
        }
        // Something came for whoever receives directly, if nothing else wants it.
        let mut moved = std::mem::take(&mut self.blocked[number]);
        self.just_drained = false;
        moved |= self.advance(|_| false)?;
        let unfinished = !self.requests.is_idle()
            && self.frame.is_some_and(|frame| !frame.direct)
            && !self.parts.left(number).is_empty();
        let want = if self.blocked[number] || unfinished {
            Interest::READ
        } else {
            Interest::NONE
        };
        self.sockets[number].settle(want)?;
        Ok(moved)
    }

    fn settle<T>(&mut self, outcome: Result<T, Stop>) -> Result<T> {
        outcome.map_err(|stop| match stop {
            Stop::Socket(error) => self.fail(failure(error)),
            Stop::Peer(error, reason) => {
                // If the byte cannot be sent, the peer finds the connection closed.
                let _ = self.sockets.first().map(|socket| socket.write(&[reason]));
                self.fail(error)
            }
        })
    }

    fn fail(&mut self, error: Error) -> Error {
        self.sockets.clear();
        self.requests.withdraw();
        self.failure.get_or_insert(error).clone()
    }
}

/// A receiving end.
#[derive(Debug)]
pub(crate) struct TcpRecv {
    owner: Owner<RecvState>,
}

impl TcpRecv {
    /// Makes member `number` a receiving end.
    pub(crate) fn new(shared: &Arc<Shared>, number: u64, state: RecvState) -> Self {
        Self {
            owner: Owner::new(shared, number, state),
        }
    }
}

// SAFETY: memory is only accessed for requests in `requests`, which hold a clone of it, under the
// lock of the state, and synchronously: nothing but these calls writes to it. `quiesce` and `fail`
// empty the list.
unsafe impl NetRecv for TcpRecv {
    unsafe fn irecv(&mut self, target: &MrSlice) -> Result<Option<Request>> {
        self.owner.check_memory(target)?;
        let mut state = self.owner.standing()?;
        if !state.requests.has_room() {
            return Ok(None);
        }
        let first = state.requests.is_idle();
        let request = state.requests.post(target);
        // Behind others there is nothing to be read yet.
        if first {
            let outcome = state.advance_to(request.token());
            state.settle(outcome)?;
        }
        Ok(Some(request))
    }

    fn test(&mut self, request: &Request) -> Result<Option<usize>> {
        self.owner.test(request)
    }

    fn recv_direct(&mut self, data: &mut [u8]) -> Result<Transfer> {
        let mut state = self.owner.standing()?;
        if data.is_empty() {
            return Err(no_bytes());
        }
        let outcome = state.recv_direct(data);
        state.settle(outcome)
    }

    fn direct_ready(&mut self) -> bool {
        self.owner.lock().direct_ready()
    }

    fn quiesce(&mut self, _deadline: Instant) -> Quiesce {
        self.owner.quiesce()
    }
}
