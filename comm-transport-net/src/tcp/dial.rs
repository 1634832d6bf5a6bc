//! Connecting.
//!
//! The receiver's addresses are tried in order; a refusal, a wrong answer or silence for
//! `connect_timeout` leads to the next one. Once the first socket of a connection is greeted, the
//! others follow to the same address.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use comm_core::net::{NetConnect, NetSend};
use comm_core::{Error, ErrorKind, Result};

use super::poller::{Event, Interest};
use super::send::{SendState, TcpSend};
use super::shared::{Member, Shared, lock};
use super::socket::{Sock, connecting, hurry_within_host};
use super::wire::{ANSWER_BYTES, CONFIRMATION, Handle, Hello, Token, is_answer};

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
    left: VecDeque<SocketAddr>,
    address: Option<SocketAddr>,
    deadline: Option<Instant>,
    connection: Token,
    sockets: Vec<Greeting>,
    tried: Vec<String>,
    /// Whether something else than "nobody listens there" went wrong.
    unreachable: Option<io::Error>,
    /// The end or the failure; taken by the owner.
    outcome: Option<Result<TcpSend>>,
}

#[derive(Debug)]
struct Greeting {
    socket: Sock,
    stage: Stage,
    received: [u8; ANSWER_BYTES],
    count: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    Answering,
    Greeted,
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
                address: None,
                deadline: None,
                connection: Token::random()?,
                sockets: Vec::new(),
                tried: Vec::new(),
                unreachable: None,
                outcome: None,
            }),
            handle,
        });
        shared.insert(number, Arc::clone(&dial) as _);
        dial.try_next(&mut lock(&dial.state), shared);
        Ok(Self {
            shared: Arc::clone(shared),
            number,
            dial,
        })
    }
}

impl Dial {
    /// Begins with the next address, or fails.
    fn try_next(&self, state: &mut DialState, shared: &Arc<Shared>) {
        state.sockets.clear();
        if let Some(at) = state.deadline.take() {
            shared.clear_deadline(at, self.number);
        }
        while let Some(address) = state.left.pop_front() {
            state.address = Some(address);
            match self.open(state, shared, address) {
                Ok(()) => {
                    let at = Instant::now() + shared.options.connect_timeout;
                    state.deadline = Some(at);
                    shared.set_deadline(at, self.number);
                    return;
                }
                Err(error) => self.note(state, error),
            }
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

    /// Takes note of what went wrong with an address.
    fn note(&self, state: &mut DialState, error: io::Error) {
        if let Some(address) = state.address {
            state.tried.push(format!("{address}: {error}"));
        }
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

    /// Begins to connect one more socket.
    fn open(&self, state: &mut DialState, shared: &Shared, address: SocketAddr) -> io::Result<()> {
        let key = Shared::key(self.number, state.sockets.len());
        let socket = connecting(address, &shared.options)?;
        let mut socket = Sock::new(socket, &shared.poller, key);
        socket.settle(Interest::WRITE)?;
        state.sockets.push(Greeting {
            socket,
            stage: Stage::Connecting,
            received: [0; ANSWER_BYTES],
            count: 0,
        });
        Ok(())
    }

    fn step(&self, state: &mut DialState, shared: &Arc<Shared>, index: usize) -> io::Result<()> {
        let hello = Hello {
            knock: self.handle.knock,
            connection: *state.connection.bytes(),
            sockets: shared.options.sockets,
            index,
            stripe_bytes: shared.options.stripe_bytes,
        };
        let Some(greeting) = state.sockets.get_mut(index) else {
            return Ok(());
        };
        match greeting.stage {
            Stage::Connecting => {
                if let Some(error) = greeting.socket.socket().take_error()? {
                    return Err(error);
                }
                if let Err(error) = hurry_within_host(greeting.socket.socket()) {
                    tracing::debug!(%error, "the system's congestion control stays");
                }
                send_all(&greeting.socket, &hello.encode())?;
                greeting.socket.settle(Interest::READ)?;
                greeting.stage = Stage::Answering;
                return Ok(());
            }
            Stage::Greeted => return Ok(()),
            Stage::Answering => {}
        }
        while greeting.count < ANSWER_BYTES {
            match greeting
                .socket
                .read(&mut greeting.received[greeting.count..])?
            {
                None => return Ok(()),
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(bytes) => greeting.count += bytes,
            }
        }
        if !is_answer(&greeting.received, &self.handle.answer) {
            return Err(io::Error::other("somebody else answers there"));
        }
        send_all(&greeting.socket, &[CONFIRMATION])?;
        greeting.stage = Stage::Greeted;
        if index == 0
            && let Some(address) = state.address
        {
            for _ in 1..shared.options.sockets {
                self.open(state, shared, address)?;
            }
        }
        let all = |greeting: &Greeting| greeting.stage == Stage::Greeted;
        if state.sockets.len() == shared.options.sockets && state.sockets.iter().all(all) {
            let sockets: Vec<Sock> = state.sockets.drain(..).map(|one| one.socket).collect();
            if let Some(at) = state.deadline.take() {
                shared.clear_deadline(at, self.number);
            }
            // The sockets' keys stay the same: the end takes this member's place.
            let end = SendState::new(sockets, shared.options.stripe_bytes);
            state.outcome = Some(Ok(TcpSend::new(shared, self.number, end)));
        }
        Ok(())
    }
}

fn send_all(socket: &Sock, bytes: &[u8]) -> io::Result<()> {
    // The buffer of a new connection has room for a few bytes.
    match socket.write(bytes)? {
        Some(written) if written == bytes.len() => Ok(()),
        _ => Err(io::Error::other("the connection takes no greeting")),
    }
}

impl Member for Dial {
    fn ready(&self, shared: &Arc<Shared>, socket: usize, _event: Event) -> bool {
        let mut state = lock(&self.state);
        if state.outcome.is_none()
            && let Err(error) = self.step(&mut state, shared, socket)
        {
            self.note(&mut state, error);
            self.try_next(&mut state, shared);
        }
        true
    }

    fn expired(&self, shared: &Arc<Shared>) {
        let mut state = lock(&self.state);
        state.deadline = None;
        if state.outcome.is_none() {
            self.note(&mut state, io::ErrorKind::TimedOut.into());
            self.try_next(&mut state, shared);
        }
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
