//! Connecting.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use comm_core::net::{NetConnect, NetSend};
use comm_core::{Error, ErrorKind, Result};
use socket2::{Domain, Protocol, Socket, Type};

use super::device::Device;
use super::ffi::{Peer, Queue};
use super::greeting::{CONFIRMATION, Greeting, Handle};
use super::link::{End, Link, VerbsSend};
use super::listener::{enter, new_queue};
use super::shared::{Member, Shared, lock};

/// A connection that is being made, as the event set sees it.
#[derive(Debug)]
pub(super) struct Dial {
    number: u64,
    device: Arc<Device>,
    handle: Handle,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Addresses that were tried.
    tried: usize,
    attempt: Option<Attempt>,
    last_error: Option<(SocketAddr, io::Error)>,
    outcome: Option<Result<End>>,
}

/// An attempt to reach one address.
#[derive(Debug)]
struct Attempt {
    socket: TcpStream,
    deadline: Instant,
    is_connected: bool,
    number: u64,
    queue: Queue,
    own: Peer,
    received: [u8; Greeting::BYTES],
    count: usize,
}

impl Dial {
    /// Goes on as far as possible; whether anything moved.
    pub(super) fn ready(&self, shared: &Arc<Shared>) -> bool {
        let mut state = lock(&self.state);
        self.advance(shared, &mut state);
        true
    }

    fn advance(&self, shared: &Arc<Shared>, state: &mut State) {
        while state.outcome.is_none() {
            if state.attempt.is_none() && !self.begin(shared, state) {
                return;
            }
            let Some(attempt) = &mut state.attempt else {
                continue;
            };
            let late = Instant::now() >= attempt.deadline;
            match self.step(shared, attempt) {
                Ok(true) => {
                    if let Some(attempt) = state.attempt.take() {
                        state.outcome = Some(self.finish(shared, attempt));
                    }
                }
                Ok(false) if !late => return,
                Ok(false) => self.give_up(shared, state, io::ErrorKind::TimedOut.into()),
                Err(error) => self.give_up(shared, state, error),
            }
        }
    }

    fn give_up(&self, shared: &Shared, state: &mut State, error: io::Error) {
        if let Some(attempt) = state.attempt.take() {
            shared.unwatch(attempt.socket.as_fd());
        }
        if let Some(address) = self.handle.addresses.get(state.tried.saturating_sub(1)) {
            state.last_error = Some((*address, error));
        }
    }

    /// Starts with the next address; `false` once there is an outcome.
    fn begin(&self, shared: &Shared, state: &mut State) -> bool {
        let Some(&address) = self.handle.addresses.get(state.tried) else {
            state.outcome = Some(Err(nobody(state.last_error.take())));
            return false;
        };
        state.tried += 1;
        let (number, queue, own) = match new_queue(shared, &self.device) {
            Ok(made) => made,
            Err(error) => {
                state.outcome = Some(Err(error));
                return false;
            }
        };
        let socket = open(address).and_then(|socket| {
            shared
                .watch(socket.as_fd(), self.number, false)
                .map_err(io::Error::other)?;
            Ok(socket)
        });
        match socket {
            Ok(socket) => {
                state.attempt = Some(Attempt {
                    socket,
                    deadline: Instant::now() + shared.options.connect_timeout,
                    is_connected: false,
                    number,
                    queue,
                    own,
                    received: [0; Greeting::BYTES],
                    count: 0,
                });
            }
            Err(error) => state.last_error = Some((address, error)),
        }
        true
    }

    /// One attempt, as far as it goes; whether it is complete.
    fn step(&self, shared: &Shared, attempt: &mut Attempt) -> io::Result<bool> {
        if !attempt.is_connected {
            if let Some(error) = attempt.socket.take_error()? {
                return Err(error);
            }
            match attempt.socket.peer_addr() {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(false),
                Err(error) => return Err(error),
            }
            attempt.is_connected = true;
            let greeting = Greeting {
                token: self.handle.knock,
                peer: attempt.own,
            };
            write_all(&mut attempt.socket, &greeting.encode())?;
            shared
                .watch_again(attempt.socket.as_fd(), self.number)
                .map_err(io::Error::other)?;
        }
        while attempt.count < Greeting::BYTES {
            match attempt.socket.read(&mut attempt.received[attempt.count..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => attempt.count += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        let peer = Greeting::decode(&attempt.received, &self.handle.answer)
            .ok_or_else(|| io::Error::other("somebody else answers there"))?;
        let own = &attempt.own;
        attempt
            .queue
            .connect(self.device.at, own.first_packet, own.mtu, &peer)
            .map_err(io::Error::other)?;
        write_all(&mut attempt.socket, &[CONFIRMATION])?;
        Ok(true)
    }

    fn finish(&self, shared: &Arc<Shared>, attempt: Attempt) -> Result<End> {
        shared.unwatch(attempt.socket.as_fd());
        let link = Link::new(
            attempt.number,
            Arc::clone(&self.device),
            attempt.queue,
            false,
        )?;
        enter(shared, link, attempt.socket.into())
    }
}

fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking(),
        Some(Protocol::TCP),
    )?;
    socket.set_tcp_nodelay(true)?;
    socket.set_keepalive(true)?;
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error)
            if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}

fn write_all(socket: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    // The buffer of a new connection has room for a few bytes.
    match socket.write(bytes)? {
        written if written == bytes.len() => Ok(()),
        _ => Err(io::Error::other("the connection takes no greeting")),
    }
}

fn nobody(last: Option<(SocketAddr, io::Error)>) -> Error {
    let text = "nobody listens for this RDMA connection (any more)";
    match last {
        Some((address, error)) => Error::new(ErrorKind::PeerDied, text)
            .with("address", address)
            .with("reason", error),
        None => Error::new(ErrorKind::PeerDied, text),
    }
}

/// A [`NetConnect`] from an RDMA device.
#[derive(Debug)]
pub(super) struct VerbsConnect {
    shared: Arc<Shared>,
    dial: Arc<Dial>,
}

impl VerbsConnect {
    pub(super) fn new(shared: &Arc<Shared>, device: usize, handle: &[u8]) -> Result<Self> {
        let device = Arc::clone(shared.device(device)?);
        let handle = Handle::decode(handle)?;
        let number = shared.number();
        let dial = Arc::new(Dial {
            number,
            device,
            handle,
            state: Mutex::default(),
        });
        shared.insert(number, Member::Dial(Arc::clone(&dial)));
        dial.advance(shared, &mut lock(&dial.state));
        Ok(Self {
            shared: Arc::clone(shared),
            dial,
        })
    }
}

// SAFETY: touches no registered memory; the end that it hands out keeps the promise.
unsafe impl NetConnect for VerbsConnect {
    fn poll(&mut self) -> Result<Option<Box<dyn NetSend>>> {
        self.shared.check()?;
        let mut state = lock(&self.dial.state);
        match state.outcome.take() {
            None => Ok(None),
            Some(Ok(end)) => Ok(Some(Box::new(VerbsSend(end)))),
            Some(Err(error)) => {
                state.outcome = Some(Err(error.clone()));
                Err(error)
            }
        }
    }
}

impl Drop for VerbsConnect {
    fn drop(&mut self) {
        self.shared.forget(self.dial.number);
        let unused = std::mem::take(&mut *lock(&self.dial.state));
        if let Some(attempt) = &unused.attempt {
            self.shared.unwatch(attempt.socket.as_fd());
        }
        drop(unused);
    }
}
