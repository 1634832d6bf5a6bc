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
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use comm_core::net::{NetListener, NetRecv};
use comm_core::{Error, ErrorKind, Result};
use socket2::Socket;

use super::poller::{Event, Interest};
use super::recv::{RecvState, TcpRecv};
use super::shared::{Member, Shared, lock};
use super::socket::{Sock, acknowledge_lazily, listening, prepare};
use super::wire::{CONFIRMATION, Handle, Hello, Token, answer};

/// How long a connection may take to greet.
const GREETING_LIMIT: Duration = Duration::from_secs(10);

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

#[derive(Debug)]
struct Listening {
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
        if let Err(error) = open_one(shared, SocketAddr::new(address, 0)) {
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

fn open_one(shared: &Arc<Shared>, address: SocketAddr) -> Result<()> {
    let refused = |error| Error::system("listening for TCP connections", error);
    let socket = listening(address, &shared.options).map_err(refused)?;
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
        Arc::new(Stranger {
            number,
            address,
            deadline,
            state: Mutex::new(Some(Greeting {
                socket,
                received: [0; Hello::BYTES],
                count: 0,
                hello: None,
            })),
        }),
    );
    shared.set_deadline(deadline, number);
}

/// A connection that has not said who it is.
#[derive(Debug)]
struct Stranger {
    number: u64,
    address: Option<SocketAddr>,
    deadline: Instant,
    /// Empty once it is over.
    state: Mutex<Option<Greeting>>,
}

#[derive(Debug)]
struct Greeting {
    socket: Sock,
    received: [u8; Hello::BYTES],
    count: usize,
    /// What it said, once that was answered.
    hello: Option<Hello>,
}

/// How a greeting goes on.
enum Step {
    Waiting,
    Confirmed,
    Refused(&'static str),
}

impl Stranger {
    fn step(&self, greeting: &mut Greeting, shared: &Shared) -> std::io::Result<Step> {
        const ENDED: Step = Step::Refused("it ended before it had greeted");
        while greeting.hello.is_none() {
            match greeting
                .socket
                .read(&mut greeting.received[greeting.count..])?
            {
                None => return Ok(Step::Waiting),
                Some(0) => return Ok(ENDED),
                Some(bytes) => greeting.count += bytes,
            }
            if greeting.count < Hello::BYTES {
                continue;
            }
            let Some(hello) = Hello::decode(&greeting.received) else {
                return Ok(Step::Refused("it does not greet as this version does"));
            };
            let Some(token) = lock(&shared.acceptor).answer_to(&hello) else {
                return Ok(Step::Refused("its token belongs to no listener (any more)"));
            };
            if greeting.socket.write(&answer(&token))? != Some(answer(&token).len()) {
                return Ok(Step::Refused("it takes no answer"));
            }
            greeting.hello = Some(hello);
        }
        let mut confirmation = [0];
        Ok(match greeting.socket.read(&mut confirmation)? {
            None => Step::Waiting,
            Some(0) => ENDED,
            Some(_) if confirmation == [CONFIRMATION] => Step::Confirmed,
            Some(_) => Step::Refused("it does not confirm as this version does"),
        })
    }

    fn leave(&self, shared: &Shared) {
        shared.clear_deadline(self.deadline, self.number);
        lock(&shared.acceptor).half_open.remove(&self.number);
        shared.remove(self.number);
    }

    fn refuse(&self, reason: &str) {
        tracing::warn!(address = ?self.address, reason, "a connection was refused");
    }
}

impl Member for Stranger {
    fn ready(&self, shared: &Arc<Shared>, _socket: usize, _event: Event) -> bool {
        let mut state = lock(&self.state);
        let Some(greeting) = &mut *state else {
            return false;
        };
        match self.step(greeting, shared) {
            Ok(Step::Waiting) => return true,
            Ok(Step::Confirmed) => {
                if let Some(Greeting {
                    socket,
                    hello: Some(hello),
                    ..
                }) = state.take()
                {
                    admit(shared, hello, socket);
                }
            }
            Ok(Step::Refused(reason)) => self.refuse(reason),
            Err(error) => self.refuse(&error.to_string()),
        }
        *state = None;
        self.leave(shared);
        true
    }

    fn expired(&self, shared: &Arc<Shared>) {
        if lock(&self.state).take().is_some() {
            self.refuse("it did not greet in time");
        }
        self.leave(shared);
    }
}

impl Acceptor {
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

    fn answer_to(&self, hello: &Hello) -> Option<Token> {
        let number = self.meant(hello)?;
        Some(self.listeners.get(&number)?.handle.answer)
    }
}

/// Takes a socket into the connection to which it belongs; the last one makes it ready.
fn admit(shared: &Arc<Shared>, hello: Hello, socket: Sock) {
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

/// A listener.
#[derive(Debug)]
pub(crate) struct TcpListener {
    shared: Arc<Shared>,
    number: u64,
    handle: Vec<u8>,
}

impl TcpListener {
    pub(crate) fn new(shared: &Arc<Shared>) -> Result<Self> {
        shared.check()?;
        let number = shared.new_member();
        let mut acceptor = lock(&shared.acceptor);
        let handle = Handle {
            knock: Token::random()?,
            answer: Token::random()?,
            addresses: acceptor.addresses.clone(),
        };
        let encoded = handle.encode();
        let listening = Listening {
            handle,
            partial: Vec::new(),
            ready: VecDeque::new(),
        };
        acceptor.listeners.insert(number, listening);
        Ok(Self {
            shared: Arc::clone(shared),
            number,
            handle: encoded,
        })
    }
}

// SAFETY: touches no registered memory; the ends that it hands out keep the promise.
unsafe impl NetListener for TcpListener {
    fn handle(&self) -> &[u8] {
        &self.handle
    }

    fn accept(&mut self) -> Result<Option<Box<dyn NetRecv>>> {
        self.shared.check()?;
        let mut acceptor = lock(&self.shared.acceptor);
        let listening = acceptor.listeners.get_mut(&self.number);
        let ready = listening.and_then(|listening| listening.ready.pop_front());
        Ok(ready.map(|end| Box::new(end) as _))
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        let gone = lock(&self.shared.acceptor).listeners.remove(&self.number);
        // Without the lock: connections that nobody took are closed.
        drop(gone);
    }
}
