//! File descriptors between processes of one host.
//!
//! # Contract
//!
//! * One abstract Unix datagram socket per process, under a random name that is published in
//!   [`PeerInfo::fd_socket`](comm_core::PeerInfo::fd_socket); nothing appears in the file system
//!   and nothing is left after a kill.
//! * The descriptors of one message travel in one datagram with a random ticket; the same ticket
//!   travels with the message over the authenticated link. A datagram is taken only if its MAC is
//!   made with the job's key and the system says that it comes from the same user (any user, if
//!   the job has a secret). Everything else is closed and logged.
//! * Descriptors whose message does not come within [`FD_LIMIT`] are closed; a message whose
//!   descriptors do not come within it is delivered with an error in their place.

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use comm_core::{Error, ErrorKind, Rank, Result};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, UCred,
};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::core::{Core, lock};
use super::hello::CommunicatorId;
use super::member::Member;
use super::secret;

/// How many descriptors one message can carry.
pub const MAX_FDS: usize = 16;

/// How long descriptors and their message wait for each other.
pub(crate) const FD_LIMIT: Duration = Duration::from_secs(5);

/// In how many parts that is measured: of time in which this process did not run, one part counts.
const PARTS_OF_WAITING: u32 = 10;

/// How many datagrams may wait for their messages.
const MAX_PARCELS: usize = 1024;

/// Pause of a sender whose receiver has a full queue (the system's default is ten datagrams).
const FULL_PAUSE: Duration = Duration::from_millis(1);

const MAGIC: [u8; 4] = *b"cmfd";
const MAX_DATAGRAM_BYTES: usize = 256;

/// Ties descriptors to the message to which they belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FdTicket {
    token: [u8; 16],
    count: u8,
}

/// The datagram that carries the descriptors.
#[derive(Debug, Serialize, Deserialize)]
struct Parcel {
    magic: [u8; 4],
    communicator: CommunicatorId,
    from: Rank,
    to: Rank,
    ticket: FdTicket,
    mac: [u8; 32],
}

impl Parcel {
    fn mac(&self, key: &[u8; 32]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(key);
        hasher.update(b"descriptors");
        hasher.update(&self.communicator);
        hasher.update(&self.from.to_le_bytes());
        hasher.update(&self.to.to_le_bytes());
        hasher.update(&self.ticket.token);
        hasher.update(&[self.ticket.count]);
        hasher.finalize()
    }
}

/// Communicator, receiving rank and token.
type ParcelKey = (CommunicatorId, Rank, [u8; 16]);

/// Descriptors that came and whose message has not been read yet.
#[derive(Debug, Default)]
pub(crate) struct FdInbox {
    parcels: Mutex<HashMap<ParcelKey, Vec<OwnedFd>>>,
    arrived: Notify,
}

impl FdInbox {
    /// The descriptors of the ticket for this member, waiting for them up to [`FD_LIMIT`].
    pub(crate) async fn take(&self, member: &Member, ticket: FdTicket) -> Result<Vec<OwnedFd>> {
        let key = (member.communicator(), member.rank(), ticket.token);
        let part = FD_LIMIT / PARTS_OF_WAITING;
        let (mut parts, mut until) = (1, Instant::now() + part);
        loop {
            let arrived = self.arrived.notified();
            if let Some(fds) = lock(&self.parcels).remove(&key) {
                return Ok(fds);
            }
            if tokio::time::timeout_at(until, arrived).await.is_ok() {
                continue;
            }
            (parts, until) = (parts + 1, Instant::now() + part);
            if parts > PARTS_OF_WAITING {
                return Err(Error::new(
                    ErrorKind::Timeout,
                    "the file descriptors of a message never came, or this process has no \
                     descriptors left (see `ulimit -n`)",
                )
                .with("descriptors", ticket.count)
                .with("after_seconds", FD_LIMIT.as_secs()));
            }
        }
    }

    fn store(
        &self,
        core: &Arc<Core>,
        parcel: &Parcel,
        fds: Vec<OwnedFd>,
    ) -> Result<(), &'static str> {
        let key = (parcel.communicator, parcel.to, parcel.ticket.token);
        {
            let mut parcels = lock(&self.parcels);
            if parcels.len() >= MAX_PARCELS {
                return Err("too many descriptors wait for their messages");
            }
            if parcels.insert(key, fds).is_some() {
                return Err("a ticket was used twice");
            }
        }
        self.arrived.notify_waiters();
        // The message follows at once, unless its sender died in between.
        let core_then = Arc::downgrade(core);
        core.runtime().spawn(async move {
            tokio::time::sleep(2 * FD_LIMIT).await;
            let expired = core_then
                .upgrade()
                .and_then(|core| lock(&core.fds.parcels).remove(&key));
            if expired.is_some() {
                tracing::warn!("closed file descriptors whose message never came");
            }
        });
        Ok(())
    }
}

/// Opens the process's descriptor socket; its name, or `None` where the system has none.
pub(crate) fn listen(core: &Arc<Core>) -> Result<Option<String>> {
    let name = format!(
        "comm-{}",
        blake3::Hash::from(secret::random::<32>()?).to_hex()
    );
    let Some(address) = abstract_address(&name)? else {
        return Ok(None);
    };
    let describe = |error| Error::system("opening the socket for file descriptors", error);
    let socket = std::os::unix::net::UnixDatagram::bind_addr(&address).map_err(describe)?;
    socket.set_nonblocking(true).map_err(describe)?;
    #[cfg(target_os = "linux")]
    rustix::net::sockopt::set_socket_passcred(&socket, true)
        .map_err(|error| describe(error.into()))?;
    let _inside = core.runtime().enter();
    let socket = UnixDatagram::from_std(socket).map_err(describe)?;
    core.runtime()
        .spawn(receive_loop(Arc::downgrade(core), socket));
    Ok(Some(name))
}

#[cfg(target_os = "linux")]
fn abstract_address(name: &str) -> Result<Option<std::os::unix::net::SocketAddr>> {
    use std::os::linux::net::SocketAddrExt;
    std::os::unix::net::SocketAddr::from_abstract_name(name)
        .map(Some)
        .map_err(|error| Error::system("naming the socket for file descriptors", error))
}

#[cfg(not(target_os = "linux"))]
fn abstract_address(_name: &str) -> Result<Option<std::os::unix::net::SocketAddr>> {
    Ok(None)
}

/// Sends descriptors to the process of a peer; the ticket goes into the message.
///
/// # Errors
///
/// If the peer's socket cannot be reached (another host or network namespace) or stays full.
pub(crate) async fn send(member: &Member, peer: Rank, fds: Vec<OwnedFd>) -> Result<FdTicket> {
    let count = u8::try_from(fds.len()).unwrap_or(u8::MAX);
    let name = member
        .info(peer)
        .and_then(|info| info.fd_socket)
        .ok_or_else(|| Error::new(ErrorKind::Unavailable, "the peer takes no file descriptors"))?;
    let mut parcel = Parcel {
        magic: MAGIC,
        communicator: member.communicator(),
        from: member.rank(),
        to: peer,
        ticket: FdTicket {
            token: secret::random()?,
            count,
        },
        mac: [0; 32],
    };
    parcel.mac = parcel.mac(&member.admission().key()).into();
    let bytes = postcard::to_allocvec(&parcel).map_err(|error| {
        Error::new(
            ErrorKind::Internal,
            format!("a descriptor parcel does not encode: {error}"),
        )
    })?;
    let describe = |error| {
        Error::system(
            "passing file descriptors (the peer must share this host's network namespace)",
            error,
        )
    };
    let socket = std::os::unix::net::UnixDatagram::unbound().map_err(describe)?;
    let address = abstract_address(&name)?.ok_or_else(|| {
        Error::new(
            ErrorKind::Unavailable,
            "this system passes no file descriptors",
        )
    })?;
    socket.connect_addr(&address).map_err(describe)?;
    socket.set_nonblocking(true).map_err(describe)?;
    // Counted, not timed: time in which this process did not run is none of the receiver's.
    let mut pauses = FD_LIMIT.as_millis() / FULL_PAUSE.as_millis();
    let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    loop {
        match send_datagram(socket.as_fd(), &bytes, &borrowed) {
            Ok(()) => return Ok(parcel.ticket),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if pauses == 0 {
                    return Err(describe(error));
                }
                pauses -= 1;
                tokio::time::sleep(FULL_PAUSE).await;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(describe(error)),
        }
    }
}

fn send_datagram(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "too many descriptors",
        ));
    }
    rustix::net::sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

async fn receive_loop(core: Weak<Core>, socket: UnixDatagram) {
    loop {
        let received = socket
            .async_io(Interest::READABLE, || receive_datagram(socket.as_fd()))
            .await;
        let Some(core) = core.upgrade() else { return };
        let result = match received {
            Ok(received) => accept(&core, received),
            Err(error) => {
                tracing::warn!(%error, "reading the socket for file descriptors failed");
                drop(core);
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        if let Err(reason) = result {
            tracing::warn!(reason, "closed file descriptors that somebody sent");
        }
    }
}

struct Received {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
    sender: Option<UCred>,
}

fn receive_datagram(socket: BorrowedFd<'_>) -> io::Result<Received> {
    let mut space =
        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; MAX_DATAGRAM_BYTES];
    let message = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    bytes.truncate(message.bytes);
    let mut received = Received {
        bytes,
        fds: Vec::new(),
        sender: None,
    };
    for message in control.drain() {
        match message {
            RecvAncillaryMessage::ScmRights(fds) => received.fds.extend(fds),
            #[cfg(target_os = "linux")]
            RecvAncillaryMessage::ScmCredentials(sender) => received.sender = Some(sender),
            _ => {}
        }
    }
    Ok(received)
}

/// Checks a datagram and stores its descriptors; the reason if they are closed instead.
fn accept(core: &Arc<Core>, received: Received) -> Result<(), &'static str> {
    let parcel: Parcel = postcard::from_bytes(&received.bytes)
        .map_err(|_| "the datagram is not of this protocol")?;
    if parcel.magic != MAGIC {
        return Err("the datagram is not of this protocol");
    }
    let member = core
        .members
        .get(parcel.communicator, parcel.to)
        .ok_or("nobody here is the member that was named")?;
    let admission = member.admission();
    if parcel.mac(&admission.key()) != blake3::Hash::from(parcel.mac) {
        return Err("the sender does not know the job secret");
    }
    let own_user = rustix::process::geteuid();
    let same_user = received.sender.is_some_and(|sender| sender.uid == own_user);
    if !admission.is_secret() && !same_user {
        return Err("the sender is another user and the job has no secret");
    }
    if received.fds.len() != usize::from(parcel.ticket.count) {
        return Err("the number of descriptors is not the announced one");
    }
    core.fds.store(core, &parcel, received.fds)
}
