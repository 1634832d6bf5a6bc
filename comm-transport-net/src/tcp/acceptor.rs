//! Listening, and taking connections that nobody trusts yet.
//!
//! # Contract
//!
//! * A backend listens once on each of its addresses; all its listeners share these sockets. The
//!   token in the greeting says to which of them a connection belongs.
//! * Whatever comes in, the job goes on: garbage, a wrong token, an early end or silence ends that
//!   one connection and is logged with its address. No resource is held for longer than
//!   [`GREETING_LIMIT`], nor for more than [`HALF_OPEN_LIMIT`] strangers; one more pushes out the
//!   oldest.
//! * A shortage of descriptors is waited out.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use comm_core::{Error, ErrorKind, Result};
use socket2::Socket;

use super::poller::{Event, Interest};
use super::recv::{RecvState, TcpRecv};
use super::shared::{Member, Shared, lock};
use super::socket::{Sock, acknowledge_lazily, listening, prepare};
use super::stranger::Stranger;
use super::wire::{Handle, Hello, Token};

/// How long a connection may take to greet.
const GREETING_LIMIT: Duration = Duration::from_secs(20);

/// How many connections may be greeting at a time.
const HALF_OPEN_LIMIT: usize = 512;

/// How many connections one look takes at most.
const TAKE_LIMIT: usize = 64;

/// How long a failed `accept` (no descriptors left) waits before the next one.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// The listeners of a backend and who wants in.
#[derive(Debug, Default)]
pub(crate) struct Acceptor {
    /// Members that listen, and where.
    doors: Vec<u64>,
    addresses: Vec<SocketAddr>,
    listeners: HashMap<u64, Listening>,
    /// Members that are still greeting, and until when they may; the oldest has the smallest
    /// number.
    half_open: BTreeMap<u64, Instant>,
}

/// A listener as the acceptor sees it.
#[derive(Debug)]
pub(crate) struct Listening {
    handle: Handle,
    /// Connections of which some sockets have come.
    partial: Vec<Partial>,
    ready: VecDeque<TcpRecv>,
}

#[derive(Debug)]
struct Partial {
    hello: Hello,
    sockets: Vec<Option<Sock>>,
}

/// Listens on all addresses of the options.
///
/// # Errors
///
/// If none of them can be used; those that cannot are logged otherwise.
pub(crate) fn open(shared: &Arc<Shared>) -> Result<()> {
    let mut failure = None;
    for &address in &shared.options.addresses {
        if let Err(error) = open_one(shared, address) {
            let error = error.with("address", address);
            tracing::warn!(%error, "an address is not used");
            failure = Some(error);
        }
    }
    match failure {
        Some(error) if lock(&shared.acceptor).addresses.is_empty() => Err(error),
        _ => Ok(()),
    }
}

fn open_one(shared: &Arc<Shared>, address: IpAddr) -> Result<()> {
    let refused = |error| Error::system("listening for TCP connections", error);
    let socket = first_free(shared, address)?;
    let bound = socket.local_addr().map_err(refused)?.as_socket();
    let bound = bound.ok_or_else(|| {
        Error::new(
            ErrorKind::Internal,
            "a TCP socket has an address of another kind",
        )
    })?;
    let number = shared.new_member();
    let mut socket = Sock::new(socket, &shared.poller, Shared::key(number, 0));
    socket.want(Interest::READ).map_err(refused)?;
    shared.insert(
        number,
        Arc::new(Door {
            number,
            socket: Mutex::new(socket),
        }),
    );
    let mut acceptor = lock(&shared.acceptor);
    acceptor.doors.push(number);
    acceptor.addresses.push(bound);
    Ok(())
}

/// A socket that listens on the first free port of the options.
fn first_free(shared: &Arc<Shared>, address: IpAddr) -> Result<Socket> {
    for port in shared.options.ports.clone() {
        match listening(SocketAddr::new(address, port), &shared.options) {
            Ok(socket) => return Ok(socket),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
            Err(error) => {
                let error = Error::system("listening for TCP connections", error);
                return Err(error.with("port", port));
            }
        }
    }
    Err(Error::new(
        ErrorKind::ResourceExhausted,
        "every port on which data connections may listen is taken; widen COMM_PORT_RANGE (each \
         process takes two ports), or leave it and COMM_PORT unset",
    )
    .with("first_port", shared.options.ports.start())
    .with("last_port", shared.options.ports.end()))
}

/// Stops listening, and closes what has not greeted.
pub(crate) fn close(shared: &Shared) {
    let (doors, strangers) = {
        let mut acceptor = lock(&shared.acceptor);
        (
            std::mem::take(&mut acceptor.doors),
            std::mem::take(&mut acceptor.half_open),
        )
    };
    for number in doors.into_iter().chain(strangers.into_keys()) {
        shared.remove(number);
    }
}

/// A listening socket.
#[derive(Debug)]
struct Door {
    number: u64,
    socket: Mutex<Sock>,
}

impl Member for Door {
    fn ready(&self, shared: &Arc<Shared>, _socket: usize, _event: Event) -> bool {
        for _ in 0..TAKE_LIMIT {
            let taken = lock(&self.socket).socket().accept();
            match taken {
                Ok((socket, address)) => greet(shared, socket, address.as_socket()),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!(%error, "a connection cannot be taken now");
                    // Not readable meanwhile, or nobody could sleep.
                    let _ = lock(&self.socket).settle(Interest::NONE);
                    shared.set_deadline(Instant::now() + ACCEPT_AGAIN, self.number);
                    break;
                }
            }
        }
        true
    }

    fn expired(&self, shared: &Arc<Shared>) {
        if let Err(error) = lock(&self.socket).settle(Interest::READ) {
            shared.fail(Error::system("listening for TCP connections", error));
        }
    }
}

/// Waits for a stranger's greeting.
fn greet(shared: &Arc<Shared>, socket: Socket, address: Option<SocketAddr>) {
    let number = shared.new_member();
    let deadline = Instant::now() + GREETING_LIMIT;
    let prepared = prepare(&socket, &shared.options).and_then(|()| {
        let mut socket = Sock::new(socket, &shared.poller, Shared::key(number, 0));
        socket.want(Interest::READ)?;
        Ok(socket)
    });
    let socket = match prepared {
        Ok(socket) => socket,
        Err(error) => {
            tracing::warn!(?address, %error, "a connection that was taken cannot be used");
            return;
        }
    };
    let pushed_out = {
        let mut acceptor = lock(&shared.acceptor);
        acceptor.half_open.insert(number, deadline);
        let full = acceptor.half_open.len() > HALF_OPEN_LIMIT;
        full.then(|| acceptor.half_open.pop_first()).flatten()
    };
    if let Some((oldest, deadline)) = pushed_out {
        tracing::warn!("too many connections that do not greet: the oldest one is closed");
        shared.clear_deadline(deadline, oldest);
        shared.remove(oldest);
    }
    shared.insert(
        number,
        Arc::new(Stranger::new(number, address, deadline, socket)),
    );
    shared.set_deadline(deadline, number);
}

impl Acceptor {
    /// Takes note that a stranger has greeted, or never will.
    pub(crate) fn met(&mut self, number: u64) {
        self.half_open.remove(&number);
    }

    /// Adds a listener; its handle.
    pub(crate) fn listen(&mut self, number: u64) -> Result<Vec<u8>> {
        let handle = Handle {
            knock: Token::random()?,
            answer: Token::random()?,
            addresses: self.addresses.clone(),
        };
        let encoded = handle.encode();
        let listening = Listening {
            handle,
            partial: Vec::new(),
            ready: VecDeque::new(),
        };
        self.listeners.insert(number, listening);
        Ok(encoded)
    }

    /// The next connection of a listener.
    pub(crate) fn take_ready(&mut self, number: u64) -> Option<TcpRecv> {
        self.listeners.get_mut(&number)?.ready.pop_front()
    }

    /// Removes a listener, and with it the connections that nobody took.
    pub(crate) fn forget(&mut self, number: u64) -> Option<Listening> {
        self.listeners.remove(&number)
    }

    /// The listener that a hello means. Looks at all of them, to take equally long.
    fn meant(&self, hello: &Hello) -> Option<u64> {
        let mut meant = None;
        for (&number, listening) in &self.listeners {
            if listening.handle.knock.matches(&hello.knock) {
                meant = Some(number);
            }
        }
        meant
    }

    pub(crate) fn answer_to(&self, hello: &Hello) -> Option<Token> {
        let number = self.meant(hello)?;
        Some(self.listeners.get(&number)?.handle.answer)
    }
}

/// Takes a socket into the connection to which it belongs; the last one makes it ready.
pub(crate) fn admit(shared: &Arc<Shared>, hello: Hello, socket: Sock) {
    let mut acceptor = lock(&shared.acceptor);
    let Some(listening) = acceptor
        .meant(&hello)
        .and_then(|number| acceptor.listeners.get_mut(&number))
    else {
        return;
    };
    let known = listening.partial.iter().position(|partial| {
        partial.hello.connection == hello.connection
            && partial.hello.sockets == hello.sockets
            && partial.hello.stripe_bytes == hello.stripe_bytes
    });
    let place = known.unwrap_or_else(|| {
        listening.partial.push(Partial {
            sockets: (0..hello.sockets).map(|_| None).collect(),
            hello: hello.clone(),
        });
        listening.partial.len() - 1
    });
    let partial = &mut listening.partial[place];
    partial.sockets[hello.index] = Some(socket);
    if partial.sockets.iter().any(Option::is_none) {
        return;
    }
    let whole = listening.partial.swap_remove(place);
    let number = shared.new_member();
    let mut sockets: Vec<Sock> = whole.sockets.into_iter().flatten().collect();
    for (index, socket) in sockets.iter_mut().enumerate() {
        // Nothing is reported before a receive is posted.
        let renamed = socket
            .rename(Shared::key(number, index), Interest::NONE)
            .and_then(|()| acknowledge_lazily(socket.socket()));
        if let Err(error) = renamed {
            tracing::warn!(%error, "a connection that was taken cannot be used");
            return;
        }
    }
    let state = RecvState::new(sockets, hello.stripe_bytes);
    listening
        .ready
        .push_back(TcpRecv::new(shared, number, state));
}
