//! Listening sockets: where they bind, and how connections are taken that nobody trusts yet.
//!
//! # Contract
//!
//! * All listeners of a process take the same kinds of connections: the hello says whether one is
//!   a link between members or a client of a rendezvous table.
//! * Whatever comes in, the job goes on: garbage, a wrong secret, an early end or silence ends
//!   that one connection and is logged with its address; a failing `accept` is retried.
//! * A connection has [`HANDSHAKE_LIMIT`] to open. At most [`HALF_OPEN_LIMIT`] may be opening at
//!   a time; one more pushes out the oldest. Honest handshakes take milliseconds, so slow ones
//!   cannot lock others out.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use comm_core::{Error, ErrorKind, Result};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use super::core::{Core, lock};
use super::hello::{self, Hello, Purpose, RejectReason};
use super::link;
use super::liveness;
use super::secret::Admission;

/// How long a connection may take to open.
pub(crate) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// How many connections of one process may be opening at a time.
pub(crate) const HALF_OPEN_LIMIT: usize = 512;

/// How long a failed `accept` (no descriptors left) waits before the next one.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

const BACKLOG: i32 = 1024;

/// On which port a process listens.
///
/// ```
/// use comm_runtime::control::Ports;
///
/// assert_eq!("20000-20100".parse::<Ports>()?, Ports::Range(20000..=20100));
/// assert_eq!("0".parse::<Ports>()?, Ports::Any);
/// # Ok::<(), comm_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ports {
    /// One that the system chooses.
    #[default]
    Any,
    /// The first free one of these.
    Range(RangeInclusive<u16>),
}

impl FromStr for Ports {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let invalid = || {
            Error::new(
                ErrorKind::InvalidConfiguration,
                "a port is a number up to 65535 and a port range two of them, as in 20000-20100",
            )
            .with("value", text)
        };
        let text = text.trim();
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let first: u16 = first.trim().parse().map_err(|_| invalid())?;
        let last: u16 = last.trim().parse().map_err(|_| invalid())?;
        match (first, last) {
            (0, 0) => Ok(Self::Any),
            (0, _) => Err(invalid()),
            (first, last) if first > last => Err(invalid()),
            (first, last) => Ok(Self::Range(first..=last)),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any free port"),
            Self::Range(range) if range.start() == range.end() => write!(f, "{}", range.start()),
            Self::Range(range) => write!(f, "{}-{}", range.start(), range.end()),
        }
    }
}

/// Whether this host has the address.
pub(crate) fn can_bind(address: IpAddr) -> bool {
    socket(SocketAddr::new(address, 0)).is_ok()
}

/// Binds the first free port of `ports` on `address`.
pub(crate) fn bind(address: IpAddr, ports: &Ports) -> Result<std::net::TcpListener> {
    let candidates = match ports {
        Ports::Any => 0..=0,
        Ports::Range(range) => range.clone(),
    };
    for port in candidates {
        match socket(SocketAddr::new(address, port)) {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => {
                return Err(Error::system("listening for control connections", error)
                    .with("address", address)
                    .with("port", port));
            }
        }
    }
    Err(Error::new(
        ErrorKind::ResourceExhausted,
        "every port of the configured range is taken; widen COMM_PORT_RANGE (two ports for each \
         process of this host) or leave it and COMM_PORT unset",
    )
    .with("address", address)
    .with("ports", ports))
}

/// Binds each of `wanted`, in their order; `reachable` says whether other hosts can reach this one
/// already.
///
/// What the system lists need not be there to bind: an interface can go in between (a container's
/// that ends), and an IPv6 address is listed before it may be used. Such an address is left out.
///
/// # Errors
///
/// Those of [`bind`], and the last address's if by leaving them out nothing is left by which other
/// hosts could reach this one.
pub(crate) fn bind_present(
    wanted: &[IpAddr],
    ports: &Ports,
    mut reachable: bool,
) -> Result<Vec<std::net::TcpListener>> {
    let is_network = |address: &IpAddr| !address.is_loopback();
    let (mut bound, mut missing) = (Vec::new(), None);
    for address in wanted {
        match bind(*address, ports) {
            Ok(listener) => {
                reachable |= is_network(address);
                bound.push(listener);
            }
            Err(error) if is_network(address) && is_absent(&error) => {
                tracing::info!(%address, %error, "an address is not used");
                missing = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    match missing {
        Some(error) if !reachable => Err(error),
        _ => Ok(bound),
    }
}

/// Whether the host does not have the address that was to be bound.
fn is_absent(error: &Error) -> bool {
    std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<io::Error>())
        .is_some_and(|source| source.kind() == io::ErrorKind::AddrNotAvailable)
}

/// A listening, non-blocking socket on exactly this address.
pub(crate) fn socket(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
    // Lets a port be taken again while connections of its last owner are still in TIME_WAIT.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// A listening socket and the task that takes its connections; dropping it closes the socket.
#[derive(Debug)]
pub(crate) struct Listening {
    address: SocketAddr,
    task: AbortHandle,
}

impl Listening {
    /// Takes connections from `listener` on the control thread of `core`.
    pub(crate) fn start(core: &Arc<Core>, listener: std::net::TcpListener) -> Result<Self> {
        let describe = |error| Error::system("listening for control connections", error);
        let address = listener.local_addr().map_err(describe)?;
        let _inside = core.runtime().enter();
        let listener = tokio::net::TcpListener::from_std(listener).map_err(describe)?;
        let task = core
            .runtime()
            .spawn(accept_loop(Arc::downgrade(core), listener));
        Ok(Self {
            address,
            task: task.abort_handle(),
        })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept_loop(core: Weak<Core>, listener: tokio::net::TcpListener) {
    loop {
        let accepted = listener.accept().await;
        let Some(core) = core.upgrade() else { return };
        match accepted {
            Ok((stream, peer)) => HalfOpen::admit(&core, stream, peer),
            Err(error) => {
                tracing::warn!(%error, "a control connection could not be accepted");
                drop(core);
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// The connections that have not opened yet, oldest first.
#[derive(Debug, Default)]
pub(crate) struct HalfOpen {
    state: Mutex<HalfOpenState>,
}

#[derive(Debug, Default)]
struct HalfOpenState {
    next: u64,
    tasks: BTreeMap<u64, AbortHandle>,
}

impl HalfOpen {
    /// Starts the handshake of a new connection.
    fn admit(core: &Arc<Core>, stream: TcpStream, peer: SocketAddr) {
        let mut state = lock(&core.half_open.state);
        let number = state.next;
        state.next += 1;
        let task = core
            .runtime()
            .spawn(handshake(Arc::clone(core), stream, peer, number));
        state.tasks.insert(number, task.abort_handle());
        if state.tasks.len() > HALF_OPEN_LIMIT
            && let Some((_, oldest)) = state.tasks.pop_first()
        {
            oldest.abort();
            tracing::warn!(
                limit = HALF_OPEN_LIMIT,
                "too many control connections are opening; the oldest was dropped"
            );
        }
    }

    fn finished(&self, number: u64) {
        lock(&self.state).tasks.remove(&number);
    }
}

async fn handshake(core: Arc<Core>, mut stream: TcpStream, peer: SocketAddr, number: u64) {
    let mut asked_for = None;
    let shaken = tokio::time::timeout(HANDSHAKE_LIMIT, async {
        liveness::prepare(&stream)?;
        hello::accept(&mut stream, core.tag(), |hello| {
            asked_for = Some((hello.purpose.clone(), hello.process.pid));
            admit(&core, hello, peer.ip())
        })
        .await
    })
    .await;
    core.half_open.finished(number);
    if let (Ok(Err(failure)), Some((Purpose::Rendezvous { job }, pid))) = (&shaken, asked_for) {
        let reason = failure.error.message();
        match failure.reason {
            Some(RejectReason::Secret { .. }) => {
                core.tables.note_refusal(job, peer.ip(), pid, reason);
            }
            Some(RejectReason::Unknown) => core.tables.note_stranger(peer.ip(), pid),
            _ => {}
        }
    }
    match shaken {
        Ok(Ok(hello)) => hand_over(&core, stream, peer, &hello),
        // Somebody comes early or late, and tries again or has a reason of its own.
        Ok(Err(failure)) if failure.reason == Some(RejectReason::Unknown) => {
            tracing::debug!(%peer, error = %failure.error, "dropped a control connection");
        }
        Ok(Err(failure)) => {
            tracing::warn!(%peer, error = %failure.error, "dropped a control connection");
        }
        Err(_) => tracing::warn!(
            %peer,
            limit = ?HANDSHAKE_LIMIT,
            "dropped a control connection that did not open in time"
        ),
    }
}

/// The rules by which the one who is asked for takes connections.
fn admit(core: &Core, hello: &Hello, peer: IpAddr) -> Result<Admission, RejectReason> {
    let admission = match &hello.purpose {
        Purpose::Link {
            communicator,
            from,
            to,
        } => {
            let member = core
                .members
                .get(*communicator, *to)
                .ok_or(RejectReason::Unknown)?;
            member.may_attach(*from, hello.process.id)?;
            member.admission().clone()
        }
        Purpose::Rendezvous { job } => core
            .tables
            .get(*job)
            .ok_or(RejectReason::Unknown)?
            .admission()
            .clone(),
    };
    admission
        .check_address(peer)
        .map_err(|_| RejectReason::Remote)?;
    Ok(admission)
}

fn hand_over(core: &Arc<Core>, stream: TcpStream, peer: SocketAddr, hello: &Hello) {
    match &hello.purpose {
        Purpose::Link {
            communicator,
            from,
            to,
        } => {
            match core.members.get(*communicator, *to) {
                Some(member) => member.attach(stream, *from, hello.process),
                // It left between the check and now, in good order.
                None => drop(core.runtime().spawn(link::farewell(stream))),
            }
        }
        Purpose::Rendezvous { job } => {
            if let Some(table) = core.tables.get(*job) {
                core.runtime().spawn(table.serve(stream, peer));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn ports_are_parsed_and_nonsense_is_refused() {
        assert_eq!("4000".parse::<Ports>().unwrap(), Ports::Range(4000..=4000));
        for text in ["", "x", "70000", "5-4", "0-9", "1-2-3"] {
            let error = text.parse::<Ports>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfiguration, "{text:?}");
        }
    }

    #[test]
    fn the_next_port_of_a_range_is_taken_and_a_full_range_is_an_error() {
        let first = bind(LOOPBACK, &Ports::Any).unwrap();
        let port = first.local_addr().unwrap().port();
        let error = bind(LOOPBACK, &Ports::Range(port..=port)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
        if let Some(next) = port.checked_add(20) {
            let second = bind(LOOPBACK, &Ports::Range(port..=next)).unwrap();
            assert!(second.local_addr().unwrap().port() > port);
        }
    }

    #[test]
    fn an_address_that_has_gone_is_left_out_unless_no_other_one_leads_anywhere() {
        let gone: IpAddr = "198.51.100.1".parse().unwrap();
        let error = bind_present(&[gone, LOOPBACK], &Ports::Any, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::System);
        assert!(error.to_string().contains("198.51.100.1"), "{error}");

        // The address of this host by which it reaches others, if it has a network.
        let own = std::net::UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
            socket.connect("198.51.100.1:9")?;
            socket.local_addr()
        });
        if let Ok(own) = own.map(|address| address.ip())
            && !own.is_loopback()
        {
            let bound = bind_present(&[gone, own, LOOPBACK], &Ports::Any, false).unwrap();
            let addresses: Vec<IpAddr> = bound
                .iter()
                .map(|listener| listener.local_addr().unwrap().ip())
                .collect();
            assert_eq!(addresses, [own, LOOPBACK]);
        }
        let more = bind_present(&[gone], &Ports::Any, true).unwrap();
        assert!(more.is_empty(), "{more:?}");
    }

    #[test]
    fn an_address_of_another_host_cannot_be_bound() {
        assert!(can_bind(LOOPBACK));
        assert!(!can_bind("198.51.100.1".parse().unwrap()));
    }
}
