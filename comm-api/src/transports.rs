//! The transports compiled in, in the canonical order in which all ranks try them.

use comm_core::Result;
use comm_runtime::CommunicatorBuilder;

/// The names of the transports whose Cargo features are on, in the order in which they are tried.
///
/// A communicator can have more, registered by [`Builder::transport`](crate::Builder::transport).
#[must_use]
pub const fn compiled_transports() -> &'static [&'static str] {
    &[
        #[cfg(feature = "p2p")]
        comm_transport_p2p::NAME,
        #[cfg(all(feature = "shm", target_os = "linux"))]
        comm_transport_shm::NAME,
    ]
}

/// Registers every transport whose Cargo feature is on.
///
/// # Errors
///
/// [`ErrorKind::InvalidConfiguration`](comm_core::ErrorKind) for a switch that cannot be parsed.
pub(crate) fn register(builder: CommunicatorBuilder) -> Result<CommunicatorBuilder> {
    #[cfg(feature = "p2p")]
    let builder = p2p(builder)?;
    #[cfg(all(feature = "shm", target_os = "linux"))]
    let builder = shm(builder)?;
    Ok(builder)
}

#[cfg(feature = "p2p")]
fn p2p(builder: CommunicatorBuilder) -> Result<CommunicatorBuilder> {
    use std::sync::Arc;

    use comm_transport_p2p::P2pTransport;

    let disabled = switched_off("P2P", |name| std::env::var(name).ok())?;
    Ok(builder.transport(comm_transport_p2p::NAME, move |context| {
        Ok(Arc::new(match disabled {
            Some(variable) => P2pTransport::disabled(format!("{variable}=1 is set")),
            None => P2pTransport::new(Arc::clone(&context.doorbells)),
        }))
    }))
}

#[cfg(all(feature = "shm", target_os = "linux"))]
fn shm(builder: CommunicatorBuilder) -> Result<CommunicatorBuilder> {
    use std::sync::Arc;

    use comm_transport_shm::ShmTransport;

    let disabled = switched_off("SHM", |name| std::env::var(name).ok())?;
    Ok(builder.transport(comm_transport_shm::NAME, move |context| {
        Ok(Arc::new(match disabled {
            Some(variable) => ShmTransport::disabled(format!("{variable}=1 is set")),
            None => ShmTransport::new(Arc::clone(&context.doorbells)),
        }))
    }))
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
