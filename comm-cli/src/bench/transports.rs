//! Which transports a benchmark can use: those compiled into the library, and examples of
//! transports of one's own that are compiled into this program.

use comm_api::{Builder, Communicator};
use comm_core::{Error, ErrorKind, Result};

/// Means any transport of the library, in the library's own order.
pub(super) const AUTO: &str = "auto";
/// The transport between threads of one process.
pub(super) const P2P: &str = "p2p";

/// The example's name.
#[cfg(all(feature = "uds", target_os = "linux"))]
const UDS: &str = transport_uds::NAME;

/// The names that can be asked for, except [`AUTO`].
pub(super) fn available() -> Vec<&'static str> {
    #[allow(unused_mut, reason = "there may be no example")]
    let mut names = comm_api::compiled_transports().to_vec();
    #[cfg(all(feature = "uds", target_os = "linux"))]
    names.push(UDS);
    names
}

/// Whether all of these can be used.
///
/// # Errors
///
/// [`ErrorKind::Unavailable`] that names those that can.
pub(super) fn check(names: &[String]) -> Result<()> {
    let available = available();
    for name in names {
        if !available.contains(&name.as_str()) {
            let there_is = match &available[..] {
                [] => "no transport is".to_owned(),
                names => format!("{} and {AUTO} are", names.join(", ")),
            };
            let message = format!("transport '{name}' is not compiled in; {there_is} available");
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
    }
    Ok(())
}

/// Whether the ranks have to be threads of one process to use these transports.
pub(super) fn need_threads(names: &[String]) -> bool {
    names.iter().any(|name| name == P2P)
}

/// Builds a communicator over these transports only; over any of the library's if there are none.
///
/// # Errors
///
/// As for [`Builder::build`].
pub(super) fn build(mut builder: Builder, names: &[String]) -> Result<Communicator> {
    // An example is no candidate unless it is asked for.
    #[cfg(all(feature = "uds", target_os = "linux"))]
    if names.iter().any(|name| name == UDS) {
        builder = builder.net_backend(UDS, |_| {
            Ok(std::sync::Arc::new(transport_uds::UdsBackend::new()?))
        });
    }
    if !names.is_empty() {
        builder = builder.only_transports(names.to_vec());
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transport_that_is_not_there_is_refused_with_those_that_are() {
        let error = check(&["carrier-pigeon".to_owned()]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let text = error.to_string();
        assert!(text.contains("'carrier-pigeon'") && text.contains(AUTO));
        for name in available() {
            assert!(text.contains(name), "{text}");
            assert!(check(&[name.to_owned()]).is_ok());
        }
    }
}
