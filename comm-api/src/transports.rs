//! The transports compiled in, in the canonical order in which all ranks try them.

use comm_core::Result;
use comm_runtime::{CommunicatorBuilder, Settings, TransportFactory};

/// The name of the transport over the built-in network.
#[cfg(feature = "tcp")]
pub(crate) const NET: &str = "net";

/// The names of the transports whose Cargo features are on, in the order in which they are tried.
///
/// A communicator can have more, registered by [`Builder::transport`](crate::Builder::transport)
/// and tried before `net`.
#[must_use]
pub const fn compiled_transports() -> &'static [&'static str] {
    &[
        #[cfg(feature = "p2p")]
        comm_transport_p2p::NAME,
        #[cfg(all(feature = "shm", target_os = "linux"))]
        comm_transport_shm::NAME,
        #[cfg(feature = "tcp")]
        NET,
    ]
}

/// A transport that the program brings.
pub(crate) type Custom = (String, TransportFactory);

/// The switches of the transports, from the environment.
#[derive(Debug)]
pub(crate) struct Switches {
    #[cfg(feature = "p2p")]
    p2p_disabled: Option<String>,
    #[cfg(all(feature = "shm", target_os = "linux"))]
    shm_disabled: Option<String>,
    #[cfg(all(feature = "shm", target_os = "linux"))]
    shm_pulls: bool,
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
            shm_disabled: switched_off("SHM", lookup)?,
            #[cfg(all(feature = "shm", target_os = "linux"))]
            shm_pulls: shm_pulls(lookup, settings)?,
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
        let builder = shm(builder, self.shm_disabled, self.shm_pulls);
        let builder = custom
            .into_iter()
            .fold(builder, |builder, (name, factory)| {
                builder.transport(name, factory)
            });
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

#[cfg(all(feature = "shm", target_os = "linux"))]
fn shm(builder: CommunicatorBuilder, disabled: Option<String>, pulls: bool) -> CommunicatorBuilder {
    use std::sync::Arc;

    use comm_transport_shm::ShmTransport;

    builder.transport(comm_transport_shm::NAME, move |context| {
        Ok(Arc::new(match disabled {
            Some(variable) => ShmTransport::disabled(format!("{variable}=1 is set")),
            None => ShmTransport::new(Arc::clone(&context.doorbells)).pulling(pulls),
        }))
    })
}

/// `COMM_SHM_PULL`: whether shared memory edges read large steps from the sender's process.
#[cfg(all(feature = "shm", target_os = "linux"))]
fn shm_pulls(lookup: &dyn Fn(&str) -> Option<String>, settings: &mut Settings) -> Result<bool> {
    const NAME: &str = "COMM_SHM_PULL";
    let text = lookup(NAME);
    let pulls = match text.as_deref().map(str::trim) {
        None | Some("") => comm_transport_shm::ShmTransport::pulls_by_default(),
        Some("0") => false,
        Some("1") => true,
        Some(other) => {
            return Err(comm_core::Error::new(
                comm_core::ErrorKind::InvalidConfiguration,
                format!("{NAME}={other} is neither 0 nor 1"),
            ));
        }
    };
    settings.note(comm_runtime::Setting {
        name: NAME,
        value: u8::from(pulls).to_string(),
        source: match text {
            Some(_) => comm_runtime::Source::Environment(NAME.to_owned()),
            None => comm_runtime::Source::Default,
        },
    });
    Ok(pulls)
}

/// The variable (such as `COMM_SHM_DISABLE`, or NCCL's) that switches a transport off, if one does.
#[cfg(any(test, feature = "p2p", all(feature = "shm", target_os = "linux")))]
fn switched_off(what: &str, lookup: impl Fn(&str) -> Option<String>) -> Result<Option<String>> {
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
