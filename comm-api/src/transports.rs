//! The transports compiled in, in the canonical order in which all ranks try them.

use comm_core::Result;
use comm_runtime::{CommunicatorBuilder, Settings, TransportFactory};

/// The name of the transport over the built-in network.
#[cfg(feature = "tcp")]
pub(crate) const NET: &str = "net";

/// The name of the transport over RDMA cards.
#[cfg(feature = "verbs")]
pub(crate) const VERBS: &str = "verbs";

/// The names of the transports whose Cargo features are on, in the order in which they are tried.
///
/// A communicator can have more, registered by [`Builder::transport`](crate::Builder::transport)
/// and tried before `verbs` and `net`.
#[must_use]
pub const fn compiled_transports() -> &'static [&'static str] {
    &[
        #[cfg(feature = "p2p")]
        comm_transport_p2p::NAME,
        #[cfg(all(feature = "shm", target_os = "linux"))]
        comm_transport_shm::NAME,
        #[cfg(feature = "verbs")]
        VERBS,
        #[cfg(feature = "tcp")]
        NET,
    ]
}

/// A transport that the program brings.
pub(crate) type Custom = (String, TransportFactory);

/// The transport of this name over a network that the program brings.
#[cfg(feature = "net")]
pub(crate) fn over(
    name: &str,
    network: std::sync::Arc<dyn comm_core::net::NetBackend>,
) -> Result<std::sync::Arc<dyn comm_core::Transport>> {
    use comm_transport_net::{NetOptions, NetTransport};

    let options = NetOptions::default().name(name);
    Ok(std::sync::Arc::new(NetTransport::new(network, options)?))
}

/// The switches of the transports, from the environment.
#[derive(Clone, Debug)]
pub(crate) struct Switches {
    #[cfg(feature = "p2p")]
    p2p_disabled: Option<String>,
    #[cfg(all(feature = "shm", target_os = "linux"))]
    shm: crate::shm::ShmSettings,
    #[cfg(feature = "verbs")]
    verbs: crate::verbs::VerbsSettings,
    #[cfg(feature = "tcp")]
    tcp: crate::tcp::TcpSettings,
}

impl Switches {
    /// Reads the switches, and adds them to the table of `settings`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfiguration`](comm_core::ErrorKind) for one that cannot be parsed.
    pub(crate) fn read(
        lookup: &dyn Fn(&str) -> Option<String>,
        settings: &mut Settings,
    ) -> Result<Self> {
        // Not every combination of features has switches.
        let _ = (lookup, &settings);
        Ok(Self {
            #[cfg(feature = "p2p")]
            p2p_disabled: switched_off("P2P", lookup)?,
            #[cfg(all(feature = "shm", target_os = "linux"))]
            shm: crate::shm::ShmSettings::read(lookup, settings)?,
            #[cfg(feature = "verbs")]
            verbs: crate::verbs::VerbsSettings::read(lookup, settings)?,
            #[cfg(feature = "tcp")]
            tcp: crate::tcp::TcpSettings::read(lookup, settings)?,
        })
    }

    /// Registers the transports whose Cargo features are on, and the program's own between those
    /// for one host and those for all.
    pub(crate) fn register(
        self,
        builder: CommunicatorBuilder,
        custom: Vec<Custom>,
    ) -> CommunicatorBuilder {
        #[cfg(feature = "p2p")]
        let builder = p2p(builder, self.p2p_disabled);
        #[cfg(all(feature = "shm", target_os = "linux"))]
        let builder = self.shm.register(builder);
        let builder = custom
            .into_iter()
            .fold(builder, |builder, (name, factory)| {
                builder.transport(name, factory)
            });
        #[cfg(feature = "verbs")]
        let builder = builder.transport(VERBS, move |context| self.verbs.transport(context));
        #[cfg(feature = "tcp")]
        let builder = builder.transport(NET, move |context| self.tcp.transport(context));
        builder
    }
}

#[cfg(feature = "p2p")]
fn p2p(builder: CommunicatorBuilder, disabled: Option<String>) -> CommunicatorBuilder {
    use std::sync::Arc;

    use comm_transport_p2p::P2pTransport;

    builder.transport(comm_transport_p2p::NAME, move |context| {
        Ok(Arc::new(match disabled {
            Some(variable) => P2pTransport::disabled(format!("{variable}=1 is set")),
            None => P2pTransport::new(Arc::clone(&context.doorbells)),
        }))
    })
}

/// The variable (such as `COMM_SHM_DISABLE`, or NCCL's) that switches a transport off, if one does.
#[cfg(any(
    test,
    feature = "p2p",
    feature = "verbs",
    all(feature = "shm", target_os = "linux")
))]
pub(crate) fn switched_off(
    what: &str,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<Option<String>> {
    for prefix in ["COMM", "NCCL"] {
        let variable = format!("{prefix}_{what}_DISABLE");
        match lookup(&variable).as_deref().map(str::trim) {
            None => {}
            Some("0" | "") => return Ok(None),
            Some("1") => return Ok(Some(variable)),
            Some(other) => {
                return Err(comm_core::Error::new(
                    comm_core::ErrorKind::InvalidConfiguration,
                    format!("{variable}={other} is neither 0 nor 1"),
                ));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_switch_wins_over_nccls() {
        let of = |variables: &[(&str, &str)]| {
            switched_off("SHM", |name| {
                variables
                    .iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(of(&[]).unwrap(), None);
        assert_eq!(
            of(&[("NCCL_SHM_DISABLE", "1")]).unwrap().as_deref(),
            Some("NCCL_SHM_DISABLE")
        );
        assert_eq!(
            of(&[("COMM_SHM_DISABLE", "0"), ("NCCL_SHM_DISABLE", "1")]).unwrap(),
            None
        );
        assert!(of(&[("COMM_SHM_DISABLE", "maybe")]).is_err());
    }
}
