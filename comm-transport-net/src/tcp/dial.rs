//! Connecting.
//!
//! # Contract
//!
//! * The receiver's addresses are tried in order. The next one starts when the one before failed or has
//!   not answered for [`STAGGER`] (RFC 8305, "happy eyeballs"), beside those that still may: an address
//!   that leads nowhere costs a quarter of a second. The first that answers as the receiver wins.
//! * A refusal, a wrong answer or silence for `connect_timeout` ends an attempt. What came while this
//!   process did not run counts, although the time is over.
//! * The other sockets of the connection follow to the address that won. If one of them fails, the
//!   connection is made anew with the addresses that have not failed yet.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use comm_core::net::{NetConnect, NetSend};
use comm_core::{Error, ErrorKind, Result};

use super::greeting::Greeting;
use super::poller::Event;
use super::send::{SendState, TcpSend};
use super::shared::{Member, Shared, lock};
use super::wire::{Handle, Hello, Token};

/// Head start of one address over the next.
const STAGGER: Duration = Duration::from_millis(250);

/// A connection of which the sending end is being made.
#[derive(Debug)]
pub(crate) struct TcpConnect {
    shared: Arc<Shared>,
    number: u64,
    dial: Arc<Dial>,
}

#[derive(Debug)]
struct Dial {
    number: u64,
    handle: Handle,
    state: Mutex<DialState>,
}

#[derive(Debug)]
struct DialState {
    /// Addresses that were not tried yet.
    left: VecDeque<SocketAddr>,
    /// When the next of them starts, if those before are silent until then.
    next_at: Option<Instant>,
    /// The address that has answered.
    found: Option<SocketAddr>,
    connection: Token,
    /// One for each address that is being tried until one has answered, then one for each socket of the
    /// connection. Their places are their numbers in the poller's keys.
    sockets: Vec<Option<Greeting>>,
    /// What is set in the backend: the first of `next_at` and the sockets' own.
    deadline: Option<Instant>,
    tried: Vec<String>,
    /// Whether something else than "nobody listens there" went wrong.
    unreachable: Option<io::Error>,
    /// The end or the failure; taken by the owner.
    outcome: Option<Result<TcpSend>>,
}

impl TcpConnect {
    pub(crate) fn new(shared: &Arc<Shared>, handle: &[u8]) -> Result<Self> {
        shared.check()?;
        let handle = Handle::decode(handle)?;
        let number = shared.new_member();
        let dial = Arc::new(Dial {
            number,
            state: Mutex::new(DialState {
                left: handle.addresses.iter().copied().collect(),
                next_at: None,
                found: None,
                connection: Token::random()?,
                sockets: Vec::new(),
                deadline: None,
                tried: Vec::new(),
                unreachable: None,
                outcome: None,
            }),
            handle,
        });
        shared.insert(number, Arc::clone(&dial) as _);
        let mut state = lock(&dial.state);
        dial.try_next(&mut state, shared);
        dial.schedule(&mut state, shared);
        drop(state);
        Ok(Self {
            shared: Arc::clone(shared),
            number,
            dial,
        })
    }
}

impl Dial {
    /// Begins with the next address, or fails if there is none and nothing under way.
    fn try_next(&self, state: &mut DialState, shared: &Shared) {
        state.next_at = None;
        while let Some(address) = state.left.pop_front() {
            match self.open(state, shared, address) {
                Ok(()) => {
                    let is_last = state.left.is_empty();
                    state.next_at = (!is_last).then(|| Instant::now() + STAGGER);
                    return;
                }
                Err(error) => note(state, address, error),
            }
        }
        if state.sockets.iter().any(Option::is_some) {
            return;
        }
        let tried = state.tried.join("; ");
        let error = match state.unreachable.take() {
            None => Error::new(
                ErrorKind::PeerDied,
                "nobody listens there any more: the peer's process ended or gave up",
            ),
            Some(error) => Error::system(
                "connecting to the peer; check routes and firewalls, or choose interfaces with \
                 COMM_SOCKET_IFNAME",
                error,
            ),
        };
        state.outcome = Some(Err(error.with("tried", tried)));
    }

    /// Begins to connect one more socket.
    fn open(&self, state: &mut DialState, shared: &Shared, address: SocketAddr) -> io::Result<()> {
        let key = Shared::key(self.number, state.sockets.len());
        state
            .sockets
            .push(Some(Greeting::begin(address, shared, key)?));
        Ok(())
    }

    /// Moves one socket on, and the connection with it.
    fn advance(&self, state: &mut DialState, shared: &Arc<Shared>, place: usize) {
        let hello = Hello {
            knock: self.handle.knock,
            connection: *state.connection.bytes(),
            sockets: shared.options.sockets,
            index: if state.found.is_some() { place } else { 0 },
            stripe_bytes: shared.options.stripe_bytes,
        };
        let Some(Some(greeting)) = state.sockets.get_mut(place) else {
            return;
        };
        if greeting.is_done() {
            return;
        }
        let address = greeting.address;
        let moved = match greeting.step(&hello, &self.handle.answer, shared) {
            Ok(false) => return,
            Ok(true) if state.found.is_none() => self.follow(state, shared, place),
            Ok(true) => Ok(()),
            Err(error) => Err(error),
        };
        match moved {
            Ok(()) => self.finish_if_complete(state, shared),
            Err(error) => self.give_up(state, shared, place, address, error),
        }
    }

    /// Gives one socket up if it was silent for too long.
    fn expire(&self, state: &mut DialState, shared: &Arc<Shared>, place: usize, now: Instant) {
        let is_late = |state: &DialState| match state.sockets.get(place) {
            Some(Some(greeting)) if !greeting.is_done() && greeting.deadline <= now => {
                Some(greeting.address)
            }
            _ => None,
        };
        if is_late(state).is_none() {
            return;
        }
        // What has come counts: this process may have been stopped.
        self.advance(state, shared, place);
        if state.outcome.is_none()
            && let Some(address) = is_late(state)
        {
            let error = io::ErrorKind::TimedOut.into();
            self.give_up(state, shared, place, address, error);
        }
    }

    /// An attempt has failed, or a socket that followed one that had not.
    fn give_up(
        &self,
        state: &mut DialState,
        shared: &Shared,
        place: usize,
        address: SocketAddr,
        error: io::Error,
    ) {
        note(state, address, error);
        if state.found.take().is_some() {
            state.sockets.clear();
            // The receiver may have some of the sockets of this one.
            match Token::random() {
                Ok(token) => state.connection = token,
                Err(error) => {
                    state.outcome = Some(Err(error));
                    return;
                }
            }
        } else if let Some(place) = state.sockets.get_mut(place) {
            *place = None;
        }
        self.try_next(state, shared);
    }

    /// Ends the search, and lets the other sockets follow the one that was answered.
    fn follow(&self, state: &mut DialState, shared: &Shared, place: usize) -> io::Result<()> {
        let Some(mut first) = state.sockets.get_mut(place).and_then(Option::take) else {
            return Ok(());
        };
        // Those that were silent until now may yet be needed.
        for silent in state.sockets.drain(..).flatten().rev() {
            state.left.push_front(silent.address);
        }
        let address = first.address;
        (state.found, state.next_at) = (Some(address), None);
        let renamed = first.rename(Shared::key(self.number, 0));
        state.sockets.push(Some(first));
        renamed?;
        (1..shared.options.sockets).try_for_each(|_| self.open(state, shared, address))
    }

    fn finish_if_complete(&self, state: &mut DialState, shared: &Arc<Shared>) {
        let is_greeted =
            |greeting: &Option<Greeting>| matches!(greeting, Some(greeting) if greeting.is_done());
        if state.sockets.len() != shared.options.sockets || !state.sockets.iter().all(is_greeted) {
            return;
        }
        let sockets = state.sockets.drain(..).flatten();
        let sockets = sockets.map(Greeting::into_socket).collect();
        // Before the end takes this member's place: it has no deadline.
        self.schedule(state, shared);
        // The sockets' keys stay the same.
        let end = SendState::new(sockets, shared.options.stripe_bytes);
        state.outcome = Some(Ok(TcpSend::new(shared, self.number, end)));
    }

    /// Sets the deadline that comes first.
    fn schedule(&self, state: &mut DialState, shared: &Shared) {
        let waiting = state.sockets.iter().flatten();
        let waiting = waiting.filter(|greeting| !greeting.is_done());
        let first = waiting
            .map(|greeting| greeting.deadline)
            .chain(state.next_at)
            .min();
        let first = first.filter(|_| state.outcome.is_none());
        if first == state.deadline {
            return;
        }
        if let Some(at) = std::mem::replace(&mut state.deadline, first) {
            shared.clear_deadline(at, self.number);
        }
        if let Some(at) = first {
            shared.set_deadline(at, self.number);
        }
    }
}

/// Takes note of what went wrong with an address.
fn note(state: &mut DialState, address: SocketAddr, error: io::Error) {
    state.tried.push(format!("{address}: {error}"));
    let nobody = matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
    );
    if !nobody {
        state.unreachable.get_or_insert(error);
    }
}

impl Member for Dial {
    fn ready(&self, shared: &Arc<Shared>, socket: usize, _event: Event) -> bool {
        let mut state = lock(&self.state);
        if state.outcome.is_none() {
            self.advance(&mut state, shared, socket);
            self.schedule(&mut state, shared);
        }
        true
    }

    fn expired(&self, shared: &Arc<Shared>) {
        let mut state = lock(&self.state);
        state.deadline = None;
        let now = Instant::now();
        for place in 0..state.sockets.len() {
            if state.outcome.is_none() {
                self.expire(&mut state, shared, place, now);
            }
        }
        if state.outcome.is_none() && state.next_at.is_some_and(|at| at <= now) {
            self.try_next(&mut state, shared);
        }
        self.schedule(&mut state, shared);
    }
}

// SAFETY: touches no registered memory; the end that it hands out keeps the promise.
unsafe impl NetConnect for TcpConnect {
    fn poll(&mut self) -> Result<Option<Box<dyn NetSend>>> {
        self.shared.check()?;
        let mut state = lock(&self.dial.state);
        match state.outcome.take() {
            None => Ok(None),
            Some(Ok(end)) => Ok(Some(Box::new(end))),
            Some(Err(error)) => {
                state.outcome = Some(Err(error.clone()));
                Err(error)
            }
        }
    }
}

impl Drop for TcpConnect {
    fn drop(&mut self) {
        let unused = {
            let mut state = lock(&self.dial.state);
            if let Some(at) = state.deadline.take() {
                self.shared.clear_deadline(at, self.number);
                // Still connecting: the member is not the end's yet.
                self.shared.remove(self.number);
            }
            state.sockets.clear();
            state.outcome.take()
        };
        // Removes itself if it is an end; without the lock.
        if let Some(Err(_)) = unused {
            self.shared.remove(self.number);
        }
    }
}
