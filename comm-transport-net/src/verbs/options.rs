//! [`VerbsOptions`].

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Choices of a [`VerbsBackend`](super::VerbsBackend).
///
/// ```
/// use comm_transport_net::verbs::{VerbsBackend, VerbsOptions};
///
/// match VerbsBackend::new(VerbsOptions::new().devices(["mlx5_0"])) {
///     Ok(backend) => println!("{backend:?}"),
///     Err(error) => println!("no RDMA: {error}"),
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbsOptions {
    pub(super) addresses: Vec<IpAddr>,
    pub(super) devices: Vec<String>,
    pub(super) gid_index: Option<u8>,
    pub(super) max_outstanding: u32,
    pub(super) connect_timeout: Duration,
}

impl Default for VerbsOptions {
    fn default() -> Self {
        Self {
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
            devices: Vec::new(),
            gid_index: None,
            max_outstanding: 64,
            connect_timeout: Duration::from_secs(5),
        }
    }
}

impl VerbsOptions {
    /// The defaults, which each method below names.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The addresses of this host on which connections are set up, best first; peers try them in
    /// this order. IPv4 loopback by default, which reaches this host only.
    #[must_use]
    pub fn addresses(mut self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        self.addresses = addresses.into_iter().collect();
        self
    }

    /// The names of the devices that may be used, best first; by default all with an active port.
    #[must_use]
    pub fn devices<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        self.devices = names.into_iter().map(Into::into).collect();
        self
    }

    /// The entry of the port's address table; by default a RoCE v2 address over IPv4 if there is
    /// one, else the first.
    #[must_use]
    pub const fn gid_index(mut self, index: Option<u8>) -> Self {
        self.gid_index = index;
        self
    }

    /// How many requests of one end can be outstanding; 64 by default.
    #[must_use]
    pub const fn max_outstanding(mut self, requests: u32) -> Self {
        self.max_outstanding = if requests == 0 { 1 } else { requests };
        self
    }

    /// How long one address of a peer may take to answer; 5 s by default.
    #[must_use]
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }
}
