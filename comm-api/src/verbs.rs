//! The network of InfiniBand and RoCE cards.
//!
//! # Contract
//!
//! * Connections are set up on the addresses on which the control plane listens, so
//!   `COMM_SOCKET_IFNAME` and the rule that nobody but this host gets in without a secret hold for
//!   them too.
//! * `COMM_IB_HCA` names the cards that may be used, best first; without it all may be.

use std::sync::Arc;

use comm_core::{Error, ErrorKind, Result, Transport};
use comm_runtime::{Setting, Settings, Source, TransportContext};
use comm_transport_net::verbs::{VerbsBackend, VerbsOptions};

use crate::network::{Networks, number, plain};
use crate::transports::{VERBS, switched_off};

/// The network's settings from the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VerbsSettings {
    /// The variable that switches it off.
    disabled: Option<String>,
    /// `COMM_IB_HCA`: names of cards.
    devices: Vec<String>,
    /// `COMM_IB_GID_INDEX`: entry of the port's address table.
    gid_index: Option<u8>,
}

static NETWORKS: Networks<VerbsOptions> = Networks::new();

impl VerbsSettings {
    /// Reads the environment, and adds what it finds to the table of `settings`.
    pub(crate) fn read(
        lookup: &dyn Fn(&str) -> Option<String>,
        settings: &mut Settings,
    ) -> Result<Self> {
        let gid_names = ["COMM_IB_GID_INDEX", "NCCL_IB_GID_INDEX"];
        let gid_index = number(
            &gid_names,
            (0, 255),
            "chosen by kind",
            plain,
            lookup,
            settings,
        )?;
        Ok(Self {
            disabled: switched_off("IB", lookup)?,
            devices: devices(lookup, settings)?,
            gid_index: gid_index.and_then(|index| u8::try_from(index).ok()),
        })
    }

    /// The transport of this process.
    pub(crate) fn transport(&self, context: &TransportContext) -> Result<Arc<dyn Transport>> {
        if let Some(variable) = &self.disabled {
            let text = format!("{variable}=1 is set");
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
        let options = VerbsOptions::new()
            .addresses(context.addresses.iter().copied())
            .devices(self.devices.iter().cloned())
            .gid_index(self.gid_index);
        NETWORKS.transport(VERBS, options, |options| {
            Ok(Arc::new(VerbsBackend::new(options)?))
        })
    }
}

/// The list of cards. Of NCCL's forms, that with exact names (`=mlx5_0,mlx5_1`) has the same
/// meaning; prefixes and exclusions are refused rather than misread.
fn devices(
    lookup: &dyn Fn(&str) -> Option<String>,
    settings: &mut Settings,
) -> Result<Vec<String>> {
    let names = ["COMM_IB_HCA", "NCCL_IB_HCA"];
    let set = names.iter().find_map(|name| Some((*name, lookup(name)?)));
    let list = match &set {
        None => Vec::new(),
        Some((name, text)) => {
            let text = text.trim();
            if text.contains(['^', ':']) {
                return Err(Error::new(
                    ErrorKind::InvalidConfiguration,
                    format!("{name}={text}: write a list of whole names, such as mlx5_0,mlx5_1"),
                ));
            }
            let list = text.strip_prefix('=').unwrap_or(text).split(',');
            let list = list.map(str::trim).filter(|name| !name.is_empty());
            list.map(ToOwned::to_owned).collect()
        }
    };
    settings.note(Setting {
        name: names[0],
        value: if list.is_empty() {
            "all".to_owned()
        } else {
            list.join(",")
        },
        source: set.map_or(Source::Default, |(name, _)| {
            Source::Environment(name.to_owned())
        }),
    });
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<(VerbsSettings, Settings)> {
        let mut settings = Settings::default();
        let lookup = |name: &str| {
            let set = variables.iter().find(|(key, _)| *key == name);
            set.map(|(_, value)| (*value).to_owned())
        };
        Ok((VerbsSettings::read(&lookup, &mut settings)?, settings))
    }

    #[test]
    fn the_variables_have_their_effect_and_are_listed() {
        let (verbs, settings) = of(&[
            ("NCCL_IB_HCA", "=mlx5_1, mlx5_0"),
            ("COMM_IB_GID_INDEX", "3"),
            ("COMM_IB_DISABLE", "1"),
        ])
        .unwrap();
        assert_eq!(verbs.devices, ["mlx5_1", "mlx5_0"]);
        assert_eq!(verbs.gid_index, Some(3));
        assert_eq!(verbs.disabled.as_deref(), Some("COMM_IB_DISABLE"));
        let listed: Vec<_> = settings.table().iter().map(|one| one.name).collect();
        assert_eq!(listed, ["COMM_IB_GID_INDEX", "COMM_IB_HCA"]);
    }

    #[test]
    fn values_that_make_no_sense_name_their_variable() {
        for (name, value) in [
            ("COMM_IB_GID_INDEX", "256"),
            ("COMM_IB_HCA", "^mlx5_0"),
            ("COMM_IB_HCA", "mlx5_0:1"),
            ("COMM_IB_DISABLE", "perhaps"),
        ] {
            let error = of(&[(name, value)]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}
