//! Listening, and who comes to the door.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use comm_core::net::{NetListener, NetRecv};
use comm_core::{Error, ErrorKind, Result};

use super::device::Device;
use super::ffi::{Peer, Queue};
use super::greeting::{CONFIRMATION, Greeting, Handle, token};
use super::link::{End, Link, VerbsRecv};
use super::shared::{Member, Shared, lock};

/// How long a stranger may take to greet.
const GREETING_LIMIT: Duration = Duration::from_secs(10);

/// Strangers at one door; one more pushes out the oldest.
const MOST_STRANGERS: usize = 64;

/// A listener as the event set sees it.
#[derive(Debug)]
pub(super) struct Door {
    number: u64,
    device: Arc<Device>,
    handle: Handle,
    sockets: Vec<TcpListener>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    strangers: VecDeque<Stranger>,
    ready: VecDeque<End>,
}

/// Somebody who has not said everything yet.
#[derive(Debug)]
struct Stranger {
    socket: TcpStream,
    deadline: Instant,
    received: [u8; Greeting::BYTES],
    count: usize,
    /// The connected queue, once the greeting was answered.
    queue: Option<(u64, Queue)>,
}

/// How it goes on with a stranger.
enum Step {
    Waiting,
    Confirmed,
    Refused(&'static str),
}

/// A queue for a new connection on `device`, with what the peer has to know of it.
pub(super) fn new_queue(shared: &Shared, device: &Device) -> Result<(u64, Queue, Peer)> {
    let number = shared.number();
    let requests = shared.options.max_outstanding;
    let queue = Queue::new(&device.context, number, requests)?;
    let peer = Peer {
        queue_number: queue.number(),
        // Packets of an earlier connection of the same number are not taken for new ones.
        first_packet: u32::from_le_bytes(first_four(token()?)) & 0x00ff_ffff,
        gid: device.gid,
        lid: device.lid,
        mtu: device.mtu,
    };
    Ok((number, queue, peer))
}

const fn first_four(token: [u8; 16]) -> [u8; 4] {
    [token[0], token[1], token[2], token[3]]
}

impl Door {
    /// Takes who came and listens to who is there; whether anything moved.
    pub(super) fn ready(&self, shared: &Arc<Shared>) -> bool {
        let mut state = lock(&self.state);
        for socket in &self.sockets {
            while let Ok((stream, address)) = socket.accept() {
                self.welcome(shared, &mut state, stream, address);
            }
        }
        let mut waiting = VecDeque::new();
        while let Some(mut stranger) = state.strangers.pop_front() {
            match self.step(shared, &mut stranger) {
                Ok(Step::Waiting) if Instant::now() < stranger.deadline => {
                    waiting.push_back(stranger);
                }
                Ok(Step::Waiting) => refuse(shared, &stranger, "it did not greet in time"),
                Ok(Step::Refused(reason)) => refuse(shared, &stranger, reason),
                Err(error) => refuse(shared, &stranger, &error.to_string()),
                Ok(Step::Confirmed) => match self.admit(shared, stranger) {
                    Ok(end) => state.ready.push_back(end),
                    Err(error) => tracing::warn!(%error, "a connection cannot be used"),
                },
            }
        }
        state.strangers = waiting;
        true
    }

    fn welcome(&self, shared: &Shared, state: &mut State, socket: TcpStream, address: SocketAddr) {
        let watched = socket
            .set_nonblocking(true)
            .map_err(|error| Error::system("taking a connection", error))
            .and_then(|()| shared.watch(socket.as_fd(), self.number, true));
        if let Err(error) = watched {
            tracing::warn!(%address, %error, "a connection that was taken cannot be used");
            return;
        }
        if state.strangers.len() == MOST_STRANGERS
            && let Some(oldest) = state.strangers.pop_front()
        {
            refuse(shared, &oldest, "too many connections do not greet");
        }
        state.strangers.push_back(Stranger {
            socket,
            deadline: Instant::now() + GREETING_LIMIT,
            received: [0; Greeting::BYTES],
            count: 0,
            queue: None,
        });
    }

    fn step(&self, shared: &Shared, stranger: &mut Stranger) -> Result<Step> {
        const ENDED: Step = Step::Refused("it ended before it had greeted");
        let read = |socket: &mut TcpStream, into: &mut [u8]| match socket.read(into) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(Error::system("reading a greeting", error)),
        };
        while stranger.queue.is_none() {
            let room = &mut stranger.received[stranger.count..];
            match read(&mut stranger.socket, room)? {
                None => return Ok(Step::Waiting),
                Some(0) => return Ok(ENDED),
                Some(bytes) => stranger.count += bytes,
            }
            if stranger.count < Greeting::BYTES {
                continue;
            }
            let Some(peer) = Greeting::decode(&stranger.received, &self.handle.knock) else {
                return Ok(Step::Refused("it does not show this listener's token"));
            };
            let (number, mut queue, own) = new_queue(shared, &self.device)?;
            queue.connect(self.device.at, own.first_packet, own.mtu, &peer)?;
            let answer = Greeting {
                token: self.handle.answer,
                peer: own,
            };
            // The buffer of a new connection has room for a few bytes.
            match stranger.socket.write(&answer.encode()) {
                Ok(Greeting::BYTES) => stranger.queue = Some((number, queue)),
                _ => return Ok(Step::Refused("it takes no answer")),
            }
        }
        let mut confirmation = [0];
        Ok(match read(&mut stranger.socket, &mut confirmation)? {
            None => Step::Waiting,
            Some(0) => ENDED,
            Some(_) if confirmation == [CONFIRMATION] => Step::Confirmed,
            Some(_) => Step::Refused("it does not confirm as this version does"),
        })
    }

    fn admit(&self, shared: &Arc<Shared>, stranger: Stranger) -> Result<End> {
        let Some((number, queue)) = stranger.queue else {
            return Err(Error::new(ErrorKind::Internal, "a connection has no queue"));
        };
        shared.unwatch(stranger.socket.as_fd());
        let link = Link::new(number, Arc::clone(&self.device), queue, true)?;
        enter(shared, link, stranger.socket.into())
    }
}

/// Makes a connection a member of the backend, which then watches its socket.
pub(super) fn enter(shared: &Arc<Shared>, link: Arc<Link>, socket: OwnedFd) -> Result<End> {
    let number = link.number;
    let socket = Arc::new(socket);
    shared.insert(number, Member::Link(Arc::clone(&link), Arc::clone(&socket)));
    let end = End {
        shared: Arc::clone(shared),
        link,
    };
    // Dropping the end removes the member.
    shared.watch(socket.as_fd(), number, true)?;
    Ok(end)
}

fn refuse(shared: &Shared, stranger: &Stranger, reason: &str) {
    shared.unwatch(stranger.socket.as_fd());
    let address = stranger.socket.peer_addr().ok();
    tracing::warn!(?address, reason, "a connection was refused");
}

/// A [`NetListener`] on an RDMA device.
pub(super) struct VerbsListener {
    shared: Arc<Shared>,
    door: Arc<Door>,
    handle: Vec<u8>,
}

impl VerbsListener {
    pub(super) fn new(shared: &Arc<Shared>, device: usize) -> Result<Self> {
        let device = Arc::clone(shared.device(device)?);
        let number = shared.number();
        let (mut sockets, mut addresses, mut failure) = (Vec::new(), Vec::new(), None);
        for &address in &shared.options.addresses {
            let opened = TcpListener::bind((address, 0)).and_then(|socket| {
                socket.set_nonblocking(true)?;
                let bound = socket.local_addr()?;
                Ok((socket, bound))
            });
            match opened {
                Ok((socket, bound)) => {
                    shared.watch(socket.as_fd(), number, true)?;
                    sockets.push(socket);
                    addresses.push(bound);
                }
                Err(error) => failure = Some((address, error)),
            }
        }
        if sockets.is_empty() {
            let nowhere = Error::new(
                ErrorKind::InvalidConfiguration,
                "there is no address on which RDMA connections can be set up",
            );
            return Err(match failure {
                Some((address, error)) => {
                    Error::system("listening for RDMA connections", error).with("address", address)
                }
                None => nowhere,
            });
        }
        let handle = Handle {
            knock: token()?,
            answer: token()?,
            addresses,
        };
        let encoded = handle.encode();
        let door = Arc::new(Door {
            number,
            device,
            handle,
            sockets,
            state: Mutex::default(),
        });
        shared.insert(number, Member::Door(Arc::clone(&door)));
        Ok(Self {
            shared: Arc::clone(shared),
            door,
            handle: encoded,
        })
    }
}

impl fmt::Debug for VerbsListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsListener")
            .field("addresses", &self.door.handle.addresses)
            .finish_non_exhaustive()
    }
}

// SAFETY: touches no registered memory; the end that it hands out keeps the promise.
unsafe impl NetListener for VerbsListener {
    fn handle(&self) -> &[u8] {
        &self.handle
    }

    fn accept(&mut self) -> Result<Option<Box<dyn NetRecv>>> {
        self.shared.check()?;
        let end = lock(&self.door.state).ready.pop_front();
        Ok(end.map(|end| Box::new(VerbsRecv(end)) as Box<dyn NetRecv>))
    }
}

impl Drop for VerbsListener {
    fn drop(&mut self) {
        self.shared.forget(self.door.number);
        // Ends refer to the backend, which refers to the door no more: dropped without its lock.
        let unused = std::mem::take(&mut *lock(&self.door.state));
        drop(unused);
    }
}
