//! Where a rendezvous table can be, and how a process comes to serve it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use comm_core::{Error, ErrorKind, Result};

use super::tcp_server::Serving;
use crate::control::core::Core;
use crate::control::hello::JobId;
use crate::control::listener;
use crate::control::secret::Admission;

/// Who may serve the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Serve {
    /// Whoever has the address and can bind it.
    WhoeverCan,
    /// This process, at the first target whose port is free.
    ThisProcess,
    /// Another process.
    #[default]
    AnotherProcess,
}

impl Serve {
    /// For places where all know who serves.
    pub(super) const fn by_this_process_if(this: bool) -> Self {
        if this {
            Self::ThisProcess
        } else {
            Self::AnotherProcess
        }
    }
}

/// Where a table is, and how to know it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    /// For messages.
    pub(crate) name: String,
    /// The table is at one of these hosts and ports; at which one, the hello tells.
    pub(crate) targets: Vec<(String, u16)>,
    /// Where it is if no host of `targets` resolves to an address.
    pub(crate) fallback: Vec<(String, u16)>,
    pub(crate) job: JobId,
    pub(crate) serve: Serve,
    /// What to say if this process should serve and has none of the addresses; `None` if a table
    /// may have an address that is not its host's own (a service address of Kubernetes).
    pub(crate) must_be_here: Option<&'static str>,
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
        let addresses = match look_up(&self.targets).await {
            Err(error) if self.fallback.is_empty() => return Err(NoConnection::Later(error)),
            Err(error) => {
                tracing::debug!(%error, place = self.name, "using the other address");
                look_up(&self.fallback).await.map_err(NoConnection::Later)?
            }
            Ok(addresses) => addresses,
        };
        if let (Serve::ThisProcess, Some(advice)) = (self.serve, self.must_be_here)
            && !addresses.iter().any(|at| listener::can_bind(at.ip()))
        {
            let error = Error::new(ErrorKind::InvalidConfiguration, advice);
            return Err(NoConnection::Never(error));
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

/// The addresses of hosts and ports, without repetition.
///
/// # Errors
///
/// If none of the hosts has one.
async fn look_up(targets: &[(String, u16)]) -> Result<Vec<SocketAddr>> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    let mut failure = None;
    for (host, port) in targets {
        match tokio::net::lookup_host((host.as_str(), *port)).await {
            Ok(found) => {
                for address in found {
                    if !addresses.contains(&address) {
                        addresses.push(address);
                    }
                }
            }
            Err(error) => {
                let error = Error::system("resolving the host name of the rendezvous", error);
                failure = Some(error.with("host", host));
                // The other ports of the host have the same name.
                if targets.iter().all(|(other, _)| other == host) {
                    break;
                }
            }
        }
    }
    match failure {
        Some(error) if addresses.is_empty() => Err(error),
        _ => Ok(addresses),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(host: &str) -> Place {
        Place {
            targets: vec![(host.to_owned(), 20_001), (host.to_owned(), 20_002)],
            fallback: vec![("127.0.0.1".to_owned(), 20_001)],
            ..Place::default()
        }
    }

    fn resolve(place: &Place) -> Result<Vec<SocketAddr>, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let resolved = runtime.block_on(place.resolve(&Admission::default()));
        resolved.map_err(|no| match no {
            NoConnection::Later(error) => format!("later: {error}"),
            NoConnection::Never(error) => format!("never: {error}"),
        })
    }

    #[test]
    fn the_fallback_is_taken_only_if_the_name_does_not_resolve() {
        let by_name = resolve(&place("127.0.0.2")).unwrap();
        assert_eq!(by_name.len(), 2);
        assert_eq!(by_name[0].to_string(), "127.0.0.2:20001");
        // A name that no resolver has (RFC 2606).
        let by_fallback = resolve(&place("n1.invalid")).unwrap();
        assert_eq!(by_fallback, ["127.0.0.1:20001".parse().unwrap()]);
        let neither = Place {
            fallback: Vec::new(),
            ..place("n1.invalid")
        };
        let error = resolve(&neither).unwrap_err();
        assert!(
            error.contains("n1.invalid") && error.starts_with("later"),
            "{error}"
        );
    }

    #[test]
    fn who_should_serve_elsewhere_is_told_what_to_do_at_once() {
        let elsewhere = Place {
            serve: Serve::ThisProcess,
            must_be_here: Some("start it there"),
            ..place("198.51.100.1")
        };
        let error = resolve(&elsewhere).unwrap_err();
        assert!(
            error.starts_with("never") && error.contains("start it there"),
            "{error}"
        );
    }
}
