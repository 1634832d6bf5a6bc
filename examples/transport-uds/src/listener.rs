//! Listening and connecting.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

use comm_core::net::{NetConnect, NetListener, NetRecv, NetSend};
use comm_core::{Error, ErrorKind, Result};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with,
};
use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::endpoint::Endpoint;
use crate::poller::{Member, Poller, Watched, lock};
use crate::recv::Receiving;
use crate::send::Sending;

/// What a handle begins with: the network and the version of its format.
const MAGIC: [u8; 4] = *b"uds1";
/// The rest of a handle is the name of the listener, so long that nobody guesses one.
const NAME_BYTES: usize = 16;

/// Connections that may wait for being accepted.
const BACKLOG: i32 = 128;
/// Connections that are looked at in one call, of which all but the last are strangers'.
const LOOKS: usize = 16;

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// A listener: one socket in the abstract namespace.
#[derive(Debug)]
pub(crate) struct UdsListener {
    poller: Arc<Poller>,
    door: Arc<Door>,
    handle: Vec<u8>,
}

#[derive(Debug)]
struct Door(Mutex<Watched>);

impl Member for Door {
    fn ready(&self) -> bool {
        lock(&self.0).reported();
        // Somebody knocks: time to call `accept`.
        true
    }
}

impl UdsListener {
    pub(crate) fn new(poller: &Arc<Poller>) -> Result<Self> {
        let mut name = [0; NAME_BYTES];
        // So few bytes come whole.
        getrandom(&mut name, GetRandomFlags::empty())
            .map_err(|errno| Error::system("making up a name for a Unix socket", errno))?;
        let refused = |errno| Error::system("listening on a Unix socket", errno);
        let socket = new_socket()?;
        bind(&socket, &address(&name)?).map_err(refused)?;
        listen(&socket, BACKLOG).map_err(refused)?;
        let door = poller.watch(socket, EventFlags::IN, |socket| Door(Mutex::new(socket)))?;
        Ok(Self {
            poller: Arc::clone(poller),
            door,
            handle: [&MAGIC[..], &name].concat(),
        })
    }
}

// SAFETY: touches no registered memory; the ends that it hands out keep the promise.
unsafe impl NetListener for UdsListener {
    fn handle(&self) -> &[u8] {
        &self.handle
    }

    fn accept(&mut self) -> Result<Option<Box<dyn NetRecv>>> {
        let mut door = lock(&self.door.0);
        let mut accepted = None;
        for _ in 0..LOOKS {
            match accept_with(door.fd(), FLAGS) {
                Ok(socket) if is_of_our_user(&socket)? => {
                    accepted = Some(socket);
                    break;
                }
                // What a stranger does is not our failure.
                Ok(_) | Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(Error::system("accepting on a Unix socket", errno)),
            }
        }
        // Others may be waiting.
        door.ask()?;
        let Some(socket) = accepted else {
            return Ok(None);
        };
        let end = Endpoint::new(&self.poller, socket, Receiving::default())?;
        Ok(Some(Box::new(end)))
    }
}

/// A connect. It takes one system call, which never waits: the kernel connects the socket whether
/// or not the receiver has accepted.
#[derive(Debug)]
pub(crate) struct UdsConnect {
    poller: Arc<Poller>,
    name: [u8; NAME_BYTES],
}

impl UdsConnect {
    pub(crate) fn new(poller: &Arc<Poller>, handle: &[u8]) -> Result<Self> {
        let name = handle
            .strip_prefix(&MAGIC)
            .map(<[u8; NAME_BYTES]>::try_from);
        let Some(Ok(name)) = name else {
            return Err(Error::new(
                ErrorKind::Protocol,
                "the handle is none of this version of the Unix-socket network; use the same \
                 release in all processes",
            )
            .with("bytes", handle.len()));
        };
        Ok(Self {
            poller: Arc::clone(poller),
            name,
        })
    }
}

// SAFETY: as for the listener.
unsafe impl NetConnect for UdsConnect {
    fn poll(&mut self) -> Result<Option<Box<dyn NetSend>>> {
        let socket = new_socket()?;
        connect(&socket, &address(&self.name)?).map_err(|errno| match errno {
            Errno::CONNREFUSED => Error::new(
                ErrorKind::PeerDied,
                "nobody listens there: the peer's process ended or gave up, or it is in a \
                 container with a network namespace of its own, where Unix sockets do not reach",
            ),
            Errno::AGAIN => Error::new(
                ErrorKind::ResourceExhausted,
                "too many connections wait to be accepted by the peer; something else on this \
                 host connects to it",
            ),
            errno => Error::system("connecting a Unix socket", errno),
        })?;
        if !is_of_our_user(&socket)? {
            return Err(Error::new(
                ErrorKind::Authentication,
                "a process of another user listens there; run all ranks of a host as one user",
            ));
        }
        let end = Endpoint::new(&self.poller, socket, Sending::default())?;
        Ok(Some(Box::new(end)))
    }
}

fn new_socket() -> Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)
        .map_err(|errno| Error::system("making a Unix socket", errno))
}

fn address(name: &[u8; NAME_BYTES]) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(name)
        .map_err(|errno| Error::system("naming a Unix socket", errno))
}

/// Whether the process at the other end belongs to the user of this one, by the kernel's word.
fn is_of_our_user(socket: impl AsFd) -> Result<bool> {
    let peer = socket_peercred(socket)
        .map_err(|errno| Error::system("asking whose process the peer is", errno))?;
    Ok(peer.uid == geteuid())
}
