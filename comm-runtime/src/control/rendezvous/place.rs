//! Where a rendezvous table can be, and how a process comes to serve it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use comm_core::{Error, Result};

use super::tcp_server::Serving;
use crate::control::core::Core;
use crate::control::hello::JobId;
use crate::control::listener;
use crate::control::secret::Admission;

/// Who may serve the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serve {
    /// Whoever has the address and can bind it.
    WhoeverCan,
    /// This process, at the first target whose port is free.
    ThisProcess,
    /// Another process.
    AnotherProcess,
}

/// Where a table is, and how to know it.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// For messages.
    pub(crate) name: String,
    /// The table is at one of these hosts and ports; at which one, the hello tells.
    pub(crate) targets: Vec<(String, u16)>,
    pub(crate) job: JobId,
    pub(crate) serve: Serve,
}

/// Why no connection to a table came about.
pub(super) enum NoConnection {
    /// Trying again may help.
    Later(Error),
    /// It never will.
    Never(Error),
}

impl Place {
    /// The addresses of all targets that this job may use.
    pub(super) async fn resolve(
        &self,
        admission: &Admission,
    ) -> Result<Vec<SocketAddr>, NoConnection> {
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for (host, port) in &self.targets {
            let found = tokio::net::lookup_host((host.as_str(), *port))
                .await
                .map_err(|error| {
                    let error = Error::system("resolving the host name of the rendezvous", error);
                    NoConnection::Later(error.with("host", host))
                })?;
            for address in found {
                if !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
        }
        let allowed: Vec<SocketAddr> = addresses
            .iter()
            .copied()
            .filter(|address| admission.check_address(address.ip()).is_ok())
            .collect();
        match addresses.first() {
            Some(address) if allowed.is_empty() => Err(NoConnection::Never(
                admission.refusal().with("rendezvous_address", address),
            )),
            _ => Ok(allowed),
        }
    }

    /// Starts the table if this process may and can; that it cannot is normal.
    pub(super) fn try_to_serve(
        &self,
        core: &Arc<Core>,
        admission: &Admission,
        addresses: &[SocketAddr],
    ) -> Option<Serving> {
        if self.serve == Serve::AnotherProcess {
            return None;
        }
        for address in addresses {
            let Some(ip) = self.bind_address(address.ip(), admission) else {
                continue;
            };
            let bind = SocketAddr::new(ip, address.port());
            let socket = match listener::socket(bind) {
                Ok(socket) => socket,
                // Somebody else serves it. A second table at another address of the same name
                // would split the job.
                Err(error)
                    if error.kind() == io::ErrorKind::AddrInUse
                        && self.serve == Serve::WhoeverCan =>
                {
                    return None;
                }
                Err(error) => {
                    tracing::trace!(%error, address = %bind, "the rendezvous is not served here");
                    continue;
                }
            };
            match Serving::start(core, self.job, admission.clone(), vec![socket]) {
                Ok(serving) => {
                    tracing::debug!(address = %bind, "serving the rendezvous table");
                    return Some(serving);
                }
                Err(error) => {
                    tracing::debug!(%error, "not serving a second rendezvous table");
                    return None;
                }
            }
        }
        None
    }

    /// Where to bind for a resolved address; `None` if it is not one of this host.
    ///
    /// A host's own name often resolves to a loopback address on the host itself (`127.0.1.1`)
    /// and to another one elsewhere, and the address by which others reach a host may not be its
    /// own at all (a service address of Kubernetes). So a table that is named by a name listens
    /// on all addresses, if the job may leave the host.
    fn bind_address(&self, resolved: IpAddr, admission: &Admission) -> Option<IpAddr> {
        let named = self
            .targets
            .iter()
            .all(|(host, _)| host.parse::<IpAddr>().is_err() && host != "localhost");
        let own = listener::can_bind(resolved);
        if !admission.may_leave_host() || !(named || self.serve == Serve::ThisProcess) {
            return own.then_some(resolved);
        }
        if resolved.is_loopback() && !named {
            return Some(resolved);
        }
        (own || self.serve == Serve::ThisProcess).then_some(match resolved {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        })
    }
}
