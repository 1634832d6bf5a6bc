//! Dialling a peer: which of its addresses, in which order, for how long.
//!
//! # Contract
//!
//! * All addresses that a peer published are tried: loopback first on the same host and never
//!   from another one, the others in the order of the peer. The next one starts when the one
//!   before failed or has not answered for [`STAGGER`] (RFC 8305, "happy eyeballs"); the first
//!   that proves to be the peer wins.
//! * Refused connections are tried again for [`REFUSED_LIMIT`]: a peer listens before it
//!   publishes its addresses, so a longer refusal means that it is dead. Everything together ends
//!   after [`DIAL_LIMIT`].
//! * The error says what happened on each address.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use comm_core::{Error, ErrorKind, PeerInfo};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::core::Core;
use super::hello::{self, HandshakeFailure, Purpose, RejectReason};
use super::listener::HANDSHAKE_LIMIT;
use super::liveness::{self, ProcessTag};
use super::secret::Admission;

/// Head start of one address over the next.
const STAGGER: Duration = Duration::from_millis(250);

/// How long one connection may take to be established.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// How long refused connections are tried again.
const REFUSED_LIMIT: Duration = Duration::from_secs(2);

/// How long dialling may take in all.
const DIAL_LIMIT: Duration = Duration::from_secs(30);

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// An open connection to the peer that published `info`, and the process that answered.
pub(crate) async fn dial(
    core: &Arc<Core>,
    info: &PeerInfo,
    purpose: &Purpose,
    admission: &Admission,
) -> Result<(TcpStream, ProcessTag), HandshakeFailure> {
    let addresses = order(core, info, admission)?;
    let start = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let failures = match try_all(core, &addresses, purpose, admission).await {
            Ok((mut stream, process)) => {
                hello::open(&mut stream).await?;
                return Ok((stream, process));
            }
            Err(failures) => failures,
        };
        let refused = failures.values().all(|failure| failure.reason.is_none());
        let limit = if failures.values().all(|failure| failure.is_refusal) {
            REFUSED_LIMIT
        } else {
            DIAL_LIMIT
        };
        // Only what the network does can change by itself.
        if !refused || start.elapsed() + pause > limit {
            return Err(summary(failures));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The addresses to try, best first.
fn order(
    core: &Core,
    info: &PeerInfo,
    admission: &Admission,
) -> Result<Vec<SocketAddr>, HandshakeFailure> {
    let same_host = info.host == core.host;
    let mut addresses = info.control_addresses.clone();
    addresses.retain(|address| same_host || !address.ip().is_loopback());
    addresses.sort_by_key(|address| !address.ip().is_loopback());
    let all = addresses.len();
    addresses.retain(|address| admission.check_address(address.ip()).is_ok());
    if !addresses.is_empty() {
        return Ok(addresses);
    }
    let error = if !admission.may_leave_host() && (all > 0 || !same_host) {
        admission.refusal().with("peer", info)
    } else {
        Error::new(
            ErrorKind::Rendezvous,
            "the peer published no address that can be reached from here; COMM_SOCKET_IFNAME on \
             its host may exclude too much",
        )
        .with("peer", info)
    };
    Err(error.into())
}

/// Tries the addresses until one works; otherwise what went wrong on each.
pub(crate) async fn try_all(
    core: &Arc<Core>,
    addresses: &[SocketAddr],
    purpose: &Purpose,
    admission: &Admission,
) -> Result<(TcpStream, ProcessTag), BTreeMap<SocketAddr, HandshakeFailure>> {
    let mut failures = BTreeMap::new();
    let mut attempts = JoinSet::new();
    let mut waiting = addresses.iter().copied();
    let mut start_next = true;
    loop {
        if start_next && let Some(address) = waiting.next() {
            let (core, purpose, admission) = (Arc::clone(core), purpose.clone(), admission.clone());
            attempts.spawn(
                async move { (address, attempt(&core, address, purpose, &admission).await) },
            );
        }
        match tokio::time::timeout(STAGGER, attempts.join_next()).await {
            Ok(None) => return Err(failures),
            Ok(Some(Ok((_, Ok(connected))))) => return Ok(connected),
            Ok(Some(Ok((address, Err(failure))))) => {
                failures.insert(address, failure);
                start_next = true;
            }
            // Attempts neither panic nor are cancelled while the set is alive.
            Ok(Some(Err(_))) => start_next = true,
            Err(_) => start_next = true,
        }
    }
}

/// One connection with its handshake, up to but without the final `Open`.
async fn attempt(
    core: &Core,
    address: SocketAddr,
    purpose: Purpose,
    admission: &Admission,
) -> Result<(TcpStream, ProcessTag), HandshakeFailure> {
    let late = |what: &'static str, limit: Duration| {
        Error::new(ErrorKind::Timeout, what).with("after_seconds", limit.as_secs())
    };
    let mut stream = match tokio::time::timeout(CONNECT_LIMIT, TcpStream::connect(address)).await {
        Ok(stream) => stream.map_err(|error| Error::system("connecting", error))?,
        Err(_) => return Err(late("connecting got no answer", CONNECT_LIMIT).into()),
    };
    liveness::prepare(&stream)?;
    let handshake = hello::dial(&mut stream, purpose, core.tag(), admission);
    match tokio::time::timeout(HANDSHAKE_LIMIT, handshake).await {
        Ok(result) => result.map(|process| (stream, process)),
        Err(_) => Err(late("the listener did not answer the hello", HANDSHAKE_LIMIT).into()),
    }
}

/// One failure for all addresses: a reason that a listener gave counts most.
pub(crate) fn summary(failures: BTreeMap<SocketAddr, HandshakeFailure>) -> HandshakeFailure {
    let text = failures
        .iter()
        .map(|(address, failure)| format!("{address}: {}", failure.error))
        .collect::<Vec<_>>()
        .join("; ");
    let is_refusal = failures.values().all(|failure| failure.is_refusal);
    // "Unknown" may come from a stranger with the same address, so any other reason goes first.
    let best = failures
        .into_values()
        .max_by_key(|failure| match failure.reason {
            None => 0,
            Some(RejectReason::Unknown) => 1,
            Some(_) => 2,
        });
    let (kind, reason) = best.map_or((ErrorKind::Rendezvous, None), |failure| {
        (failure.error.kind(), failure.reason)
    });
    HandshakeFailure {
        error: Error::new(kind, text),
        reason,
        is_refusal,
    }
}
