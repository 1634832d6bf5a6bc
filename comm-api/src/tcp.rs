//! The built-in network: TCP.
//!
//! # Contract
//!
//! * All ranks of a process with equal options share one backend with its sockets' event set and
//!   its thread.
//! * It listens on the addresses on which the control plane does and within the same range of ports,
//!   so `COMM_SOCKET_IFNAME`, `COMM_PORT_RANGE` and the rule that nobody but this host gets in
//!   without a secret hold for both.

use std::sync::Arc;

use comm_core::{Result, Transport};
use comm_runtime::control::Ports;
use comm_runtime::{Settings, TransportContext};
use comm_transport_net::tcp::{TcpBackend, TcpOptions};

use crate::environment::size;
use crate::network::{Networks, number, plain};
use crate::transports::NET;

/// The network's settings from the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TcpSettings {
    /// `COMM_NET_SOCKETS`: sockets for each connection.
    sockets: Option<usize>,
    /// `COMM_NET_SOCKET_BUFFER_BYTES`: size of each socket's buffers.
    buffer_bytes: Option<usize>,
}

static NETWORKS: Networks<TcpOptions> = Networks::new();

impl TcpSettings {
    /// Reads the environment, and adds what it finds to the table of `settings`.
    pub(crate) fn read(
        lookup: &dyn Fn(&str) -> Option<String>,
        settings: &mut Settings,
    ) -> Result<Self> {
        Ok(Self {
            sockets: number(&["COMM_NET_SOCKETS"], (1, 16), "2", plain, lookup, settings)?,
            buffer_bytes: number(
                &["COMM_NET_SOCKET_BUFFER_BYTES"],
                (1, 1 << 30),
                "the system's choice",
                size,
                lookup,
                settings,
            )?,
        })
    }

    fn options(&self, context: &TransportContext) -> TcpOptions {
        let options = TcpOptions::new()
            .addresses(context.addresses.iter().copied())
            .buffer_bytes(self.buffer_bytes);
        let options = match &context.ports {
            Ports::Any => options,
            Ports::Range(ports) => options.ports(ports.clone()),
        };
        match self.sockets {
            Some(sockets) => options.sockets(sockets),
            None => options,
        }
    }

    /// The transport of this process.
    pub(crate) fn transport(&self, context: &TransportContext) -> Result<Arc<dyn Transport>> {
        NETWORKS.transport(NET, self.options(context), |options| {
            Ok(Arc::new(TcpBackend::new(options)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use comm_core::ErrorKind;
    use comm_runtime::Source;

    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<(TcpSettings, Settings)> {
        let mut settings = Settings::default();
        let lookup = |name: &str| {
            variables
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        };
        Ok((TcpSettings::read(&lookup, &mut settings)?, settings))
    }

    #[test]
    fn the_variables_have_their_effect_and_are_listed() {
        let (tcp, settings) = of(&[
            ("COMM_NET_SOCKETS", "4"),
            ("COMM_NET_SOCKET_BUFFER_BYTES", "65536"),
        ])
        .unwrap();
        assert_eq!((tcp.sockets, tcp.buffer_bytes), (Some(4), Some(65536)));
        let sockets = &settings.table()[0];
        assert_eq!((sockets.name, &*sockets.value), ("COMM_NET_SOCKETS", "4"));
        let (tcp, settings) = of(&[]).unwrap();
        assert_eq!((tcp.sockets, tcp.buffer_bytes), (None, None));
        assert_eq!(settings.table()[1].source, Source::Default);
    }

    #[test]
    fn values_that_make_no_sense_name_their_variable() {
        for (name, value) in [
            ("COMM_NET_SOCKETS", "0"),
            ("COMM_NET_SOCKETS", "17"),
            ("COMM_NET_SOCKET_BUFFER_BYTES", "large"),
        ] {
            let error = of(&[(name, value)]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}
