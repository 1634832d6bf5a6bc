//! The variables that steer paths and search, as a value.
//!
//! Names and meanings are NCCL's; every variable may also be written with the prefix `COMM_`,
//! which wins. Nothing in this crate reads the process environment: the caller passes a lookup.

use comm_core::{Error, ErrorKind};

use crate::path::PathKind;

/// Whether a ring may enter a host on one network card and leave it on another (`NCCL_CROSS_NIC`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CrossNic {
    /// Same rail only (0).
    Never,
    /// Any pair (1).
    Always,
    /// Only where it gives more bandwidth; rings alternate in pairs (2).
    #[default]
    Try,
}

/// How many network ports one device uses (`NCCL_NETDEVS_POLICY`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NetDevsPolicy {
    /// The devices that are nearest to the same ports share them out.
    #[default]
    Auto,
    /// Every device uses all of its nearest ports.
    All,
    /// At most this many ports per device.
    Max(usize),
}

/// What steers path computation and search.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Options {
    /// `NCCL_CROSS_NIC`.
    pub cross_nic: CrossNic,
    /// `NCCL_P2P_LEVEL`: the farthest path over which devices access each other directly; `None`
    /// leaves the choice to the rules (PXB, or SYS on AMD hosts with at most two devices).
    pub p2p_level: Option<PathKind>,
    /// `NCCL_SHM_DISABLE`: devices without direct access use the network inside the host.
    pub shm_disable: bool,
    /// `NCCL_NET_DISABLE_INTRA`: never prefer the network inside a host.
    pub net_disable_intra: bool,
    /// `NCCL_PXN_DISABLE`: no relay of network traffic through another GPU.
    pub pxn_disable: bool,
    /// `NCCL_NVB_DISABLE`: no path through an intermediate GPU.
    pub nvb_disable: bool,
    /// `NCCL_NET_GDR_LEVEL`: how far a network card may be from the device whose memory it uses.
    pub net_gdr_level: PathKind,
    /// `NCCL_MIN_NCHANNELS`: duplicate channels until there are this many.
    pub min_channels: Option<usize>,
    /// `NCCL_MAX_NCHANNELS`: use at most this many channels.
    pub max_channels: Option<usize>,
    /// `NCCL_NETDEVS_POLICY`.
    pub netdevs_policy: NetDevsPolicy,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cross_nic: CrossNic::Try,
            p2p_level: None,
            shm_disable: false,
            net_disable_intra: false,
            pxn_disable: false,
            nvb_disable: false,
            net_gdr_level: PathKind::P2c,
            min_channels: None,
            max_channels: None,
            netdevs_policy: NetDevsPolicy::Auto,
        }
    }
}

impl Options {
    /// Reads the options from a lookup by variable name.
    ///
    /// For each variable `COMM_<NAME>` is asked first and `NCCL_<NAME>` second; an empty text
    /// counts as unset.
    ///
    /// ```
    /// use comm_graph::{CrossNic, Options};
    ///
    /// let variables = [("NCCL_CROSS_NIC", "0"), ("NCCL_NETDEVS_POLICY", "MAX:2")];
    /// let options = Options::from_variables(|name| {
    ///     let found = variables.iter().find(|(key, _)| *key == name);
    ///     found.map(|(_, value)| (*value).to_owned())
    /// })?;
    /// assert_eq!(options.cross_nic, CrossNic::Never);
    /// # Ok::<(), comm_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidConfiguration` naming the variable, its value and the values it accepts.
    pub fn from_variables(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let find = |name: &str| {
            ["COMM_", "NCCL_"].iter().find_map(|prefix| {
                let name = format!("{prefix}{name}");
                let value = lookup(&name).filter(|value| !value.trim().is_empty())?;
                Some((name, value.trim().to_owned()))
            })
        };
        let flag = |name: &str| match find(name) {
            None => Ok(false),
            Some((name, value)) => match value.parse::<i64>() {
                Ok(number) => Ok(number != 0),
                Err(_) => Err(refuse(&name, &value, "0 or 1")),
            },
        };
        let level = |name: &str| match find(name) {
            None => Ok(None),
            Some((name, value)) => match parse_level(&value) {
                Some(level) => Ok(Some(level)),
                None => Err(refuse(
                    &name,
                    &value,
                    "LOC, NVL, PIX, PXB, P2C, PXN, PHB, SYS or 0-5",
                )),
            },
        };
        let count = |name: &str| match find(name) {
            None => Ok(None),
            Some((name, value)) => match value.parse::<i64>() {
                Ok(number) if number > 0 => Ok(usize::try_from(number).ok()),
                Ok(_) => Ok(None),
                Err(_) => Err(refuse(&name, &value, "a number of channels")),
            },
        };
        let mut options = Self::default();
        if let Some((name, value)) = find("CROSS_NIC") {
            options.cross_nic = match value.as_str() {
                "0" => CrossNic::Never,
                "1" => CrossNic::Always,
                "2" => CrossNic::Try,
                _ => return Err(refuse(&name, &value, "0, 1 or 2")),
            };
        }
        options.p2p_level = level("P2P_LEVEL")?;
        if flag("P2P_DISABLE")? {
            options.p2p_level = Some(PathKind::Local);
        }
        options.shm_disable = flag("SHM_DISABLE")?;
        options.net_disable_intra = flag("NET_DISABLE_INTRA")?;
        options.pxn_disable = flag("PXN_DISABLE")?;
        options.nvb_disable = flag("NVB_DISABLE")?;
        options.net_gdr_level = level("NET_GDR_LEVEL")?.unwrap_or(options.net_gdr_level);
        options.min_channels = count("MIN_NCHANNELS")?;
        options.max_channels = count("MAX_NCHANNELS")?;
        if let Some((name, value)) = find("NETDEVS_POLICY") {
            options.netdevs_policy = match value.to_ascii_uppercase().as_str() {
                "AUTO" => NetDevsPolicy::Auto,
                "ALL" => NetDevsPolicy::All,
                other => match other.strip_prefix("MAX:").map(str::parse::<usize>) {
                    Some(Ok(most)) if most > 0 => NetDevsPolicy::Max(most),
                    _ => return Err(refuse(&name, &value, "AUTO, ALL or MAX:<ports>")),
                },
            };
        }
        Ok(options)
    }
}

fn parse_level(text: &str) -> Option<PathKind> {
    Some(match text.to_ascii_uppercase().as_str() {
        "LOC" | "0" => PathKind::Local,
        "NVL" => PathKind::NvLink,
        "NVB" => PathKind::NvLinkRelay,
        "C2C" => PathKind::C2c,
        "PIX" | "1" => PathKind::Pix,
        "PXB" | "2" => PathKind::Pxb,
        "P2C" => PathKind::P2c,
        "PXN" => PathKind::Pxn,
        "PHB" | "3" => PathKind::HostBridge,
        "SYS" | "4" | "5" => PathKind::System,
        _ => return None,
    })
}

fn refuse(name: &str, value: &str, accepted: &'static str) -> Error {
    Error::new(
        ErrorKind::InvalidConfiguration,
        "the variable has an unknown value",
    )
    .with("variable", name)
    .with("value", value)
    .with("accepted", accepted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(variables: &[(&str, &str)]) -> Result<Options, Error> {
        Options::from_variables(|name| {
            variables
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn unset_variables_give_the_defaults() {
        assert_eq!(options(&[]).unwrap(), Options::default());
        assert_eq!(
            options(&[("NCCL_CROSS_NIC", " ")]).unwrap(),
            Options::default()
        );
    }

    #[test]
    fn the_own_prefix_wins() {
        let read = options(&[("NCCL_P2P_LEVEL", "NVL"), ("COMM_P2P_LEVEL", "SYS")]).unwrap();
        assert_eq!(read.p2p_level, Some(PathKind::System));
    }

    #[test]
    fn old_numeric_levels_are_understood() {
        assert_eq!(
            options(&[("NCCL_P2P_LEVEL", "2")]).unwrap().p2p_level,
            Some(PathKind::Pxb)
        );
        let disabled = options(&[("NCCL_P2P_DISABLE", "1"), ("NCCL_P2P_LEVEL", "SYS")]).unwrap();
        assert_eq!(disabled.p2p_level, Some(PathKind::Local));
    }

    #[test]
    fn unknown_values_are_refused_by_name() {
        for (name, value) in [
            ("NCCL_CROSS_NIC", "3"),
            ("NCCL_NETDEVS_POLICY", "MAX:0"),
            ("NCCL_MIN_NCHANNELS", "many"),
            ("NCCL_NET_GDR_LEVEL", "FAR"),
            ("NCCL_PXN_DISABLE", "yes"),
        ] {
            let error = options(&[(name, value)]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}
