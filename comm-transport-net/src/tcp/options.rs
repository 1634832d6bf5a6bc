//! [`TcpOptions`].

use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::time::Duration;

use comm_core::{Error, ErrorKind, Result};

/// Most sockets of one connection.
pub(crate) const MAX_SOCKETS: usize = 16;

/// Most addresses of one backend; their handles must not become too long.
pub(crate) const MAX_ADDRESSES: usize = 16;

/// Choices of a [`TcpBackend`](super::TcpBackend).
///
/// ```
/// use comm_transport_net::tcp::{TcpBackend, TcpOptions};
///
/// let options = TcpOptions::new().addresses(["127.0.0.1".parse().unwrap()]);
/// let backend = TcpBackend::new(options)?;
/// # Ok::<(), comm_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpOptions {
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) ports: RangeInclusive<u16>,
    pub(crate) sockets: usize,
    pub(crate) stripe_bytes: u32,
    pub(crate) buffer_bytes: Option<usize>,
    pub(crate) connect_timeout: Duration,
    pub(crate) keep_alive: Duration,
    pub(crate) user_timeout: Option<Duration>,
}

impl Default for TcpOptions {
    fn default() -> Self {
        Self {
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
            ports: 0..=0,
            sockets: 2,
            stripe_bytes: 256 << 10,
            buffer_bytes: None,
            connect_timeout: Duration::from_secs(20),
            keep_alive: Duration::from_secs(30),
            user_timeout: None,
        }
    }
}

impl TcpOptions {
    /// The defaults, which each method below names.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The addresses of this host on which to listen, best first; peers try them in this order.
    /// IPv4 loopback by default, which reaches this host only.
    #[must_use]
    pub fn addresses(mut self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        self.addresses = addresses.into_iter().collect();
        self
    }

    /// The ports on which to listen: the first free one of these on each address; by default one
    /// that the system chooses.
    #[must_use]
    pub const fn ports(mut self, ports: RangeInclusive<u16>) -> Self {
        self.ports = ports;
        self
    }

    /// How many sockets carry one connection, 1 to 16; 2 by default.
    ///
    /// Large messages are split over them. Two sockets carry a quarter more than one over
    /// loopback, where the two ends of a socket get into each other's way; more help where the
    /// network gives a single flow only a part of the link, as clouds and links of many lanes do.
    #[must_use]
    pub const fn sockets(mut self, sockets: usize) -> Self {
        self.sockets = sockets;
        self
    }

    /// The least that a socket carries of a message that is split; 256 KiB by default.
    #[must_use]
    pub const fn stripe_bytes(mut self, bytes: u32) -> Self {
        self.stripe_bytes = bytes;
        self
    }

    /// Size of each socket's send and receive buffer; what the system finds best by default.
    #[must_use]
    pub const fn buffer_bytes(mut self, bytes: Option<usize>) -> Self {
        self.buffer_bytes = bytes;
        self
    }

    /// How long each address of a peer may take to connect, and then to answer; 20 seconds by default.
    ///
    /// Only an error comes later for it: a silent address does not keep the others waiting.
    #[must_use]
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// After how much silence of the peer's host an idle connection counts as dead; 30 seconds by
    /// default. Keep-alive probes are sent from a third of it on.
    #[must_use]
    pub const fn keep_alive(mut self, timeout: Duration) -> Self {
        self.keep_alive = timeout;
        self
    }

    /// How long sent data may stay unacknowledged (`TCP_USER_TIMEOUT`, on Linux); by default as
    /// long as the system's retransmissions take, some 15 minutes.
    ///
    /// Linux also counts the time in which the peer lives but does not receive, so a limit shorter
    /// than the longest pause of a program kills good connections. Dead hosts are noticed sooner
    /// by the control plane's heartbeats.
    #[must_use]
    pub const fn user_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.user_timeout = timeout;
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        let refused = |what: &'static str| Err(Error::new(ErrorKind::InvalidConfiguration, what));
        if self.addresses.is_empty() {
            return refused("the TCP network needs an address to listen on");
        }
        if self.ports.is_empty() || (*self.ports.start() == 0 && *self.ports.end() != 0) {
            return refused("a range of ports has a first and a last port, from 1 on");
        }
        if !(1..=MAX_SOCKETS).contains(&self.sockets) {
            return refused("a connection has 1 to 16 sockets (COMM_NET_SOCKETS)");
        }
        if self.stripe_bytes == 0 {
            return refused("a stripe has at least one byte");
        }
        if self.buffer_bytes == Some(0) {
            return refused(
                "a socket's buffer has at least one byte (COMM_NET_SOCKET_BUFFER_BYTES)",
            );
        }
        if self.keep_alive < Duration::from_secs(3) {
            return refused("keep-alive takes 3 seconds at least");
        }
        Ok(())
    }
}
