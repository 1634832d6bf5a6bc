//! On which addresses a process listens and is found.
//!
//! # Contract
//!
//! * Every suitable address is published, best first, and peers try them all: no guess about the
//!   one right interface has to be correct. One that went between listing and listening is left out.
//! * Without a filter, interfaces of container bridges (`docker*`, `virbr*`, `veth*`, `br-*`,
//!   `cni*`) are used only if there is no other one.
//! * The filter is a comma-separated list of name prefixes; a leading `^` excludes what matches,
//!   a leading `=` asks for exact names (`^=` excludes exact names). A filter that leaves no
//!   interface is an error that lists what there is.
//! * An interface without a carrier comes after those that have one: systems learn of a carrier late, so
//!   that the one interface of a container that has just begun may seem to have none.
//! * Link-local IPv6 addresses are never used: they mean nothing without an interface number.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use comm_core::{Error, ErrorKind, Result};

/// Interfaces that usually lead nowhere: the inner networks of containers and virtual machines.
const BRIDGE_PREFIXES: [&str; 5] = ["docker", "virbr", "veth", "br-", "cni"];

/// One address of one interface that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    /// Whether something is at the other end of the link, as far as the system knows by now.
    pub(crate) running: bool,
}

/// Which interfaces may be used; the value of `COMM_SOCKET_IFNAME`.
///
/// ```
/// use comm_runtime::control::InterfaceFilter;
///
/// let filter: InterfaceFilter = "^docker,lo".parse()?;
/// assert!(filter.allows("eth0") && !filter.allows("docker0"));
/// # Ok::<(), comm_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceFilter {
    exclude: bool,
    exact: bool,
    names: Vec<String>,
}

impl InterfaceFilter {
    /// Whether the filter lets an interface of this name pass.
    #[must_use]
    pub fn allows(&self, name: &str) -> bool {
        let matches = self.names.iter().any(|pattern| {
            if self.exact {
                name == pattern
            } else {
                name.starts_with(pattern.as_str())
            }
        });
        matches != self.exclude
    }
}

impl FromStr for InterfaceFilter {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let rest = text.trim();
        let (exclude, rest) = rest
            .strip_prefix('^')
            .map_or((false, rest), |rest| (true, rest));
        let (exact, rest) = rest
            .strip_prefix('=')
            .map_or((false, rest), |rest| (true, rest));
        let names: Vec<String> = rest.split(',').map(|name| name.trim().to_owned()).collect();
        if names
            .iter()
            .any(|name| name.is_empty() || name.contains(['^', '=']))
        {
            return Err(Error::new(
                ErrorKind::InvalidConfiguration,
                "an interface filter is a list of name prefixes such as `eth,ib`, `^docker,lo` to \
                 exclude, `=eth0` for exact names",
            )
            .with("filter", text));
        }
        Ok(Self {
            exclude,
            exact,
            names,
        })
    }
}

impl fmt::Display for InterfaceFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exclude = if self.exclude { "^" } else { "" };
        let exact = if self.exact { "=" } else { "" };
        write!(f, "{exclude}{exact}{}", self.names.join(","))
    }
}

/// The addresses to publish, best first: what the filter allows without loopback addresses, or
/// loopback addresses if the filter allows nothing else.
pub(crate) fn select(
    interfaces: &[Interface],
    filter: Option<&InterfaceFilter>,
) -> Result<Vec<IpAddr>> {
    let mut usable: Vec<&Interface> = interfaces
        .iter()
        .filter(|interface| filter.is_none_or(|filter| filter.allows(&interface.name)))
        .filter(|interface| !is_link_local(interface.address))
        .collect();
    if usable.is_empty() {
        let names: Vec<String> = interfaces
            .iter()
            .map(|interface| format!("{} ({})", interface.name, interface.address))
            .collect();
        let error = Error::new(
            ErrorKind::InvalidConfiguration,
            format!(
                "no network interface can be used; this host has: {}",
                if names.is_empty() {
                    "none that is up".to_owned()
                } else {
                    names.join(", ")
                }
            ),
        );
        return Err(match filter {
            Some(filter) => error.with("COMM_SOCKET_IFNAME", filter),
            None => error,
        });
    }
    // A stable sort keeps the system's order among equals.
    usable.sort_by_key(|interface| rank(interface, filter.is_some()));
    let best = usable[0];
    let only_loopback = best.address.is_loopback();
    let only_bridges = is_bridge(&best.name);
    Ok(usable
        .into_iter()
        .filter(|interface| only_loopback || !interface.address.is_loopback())
        .filter(|interface| filter.is_some() || only_bridges || !is_bridge(&interface.name))
        .map(|interface| interface.address)
        .collect())
}

/// Smaller is better.
fn rank(interface: &Interface, chosen_by_user: bool) -> (bool, bool, bool, bool) {
    (
        interface.address.is_loopback(),
        !interface.running,
        !chosen_by_user && is_bridge(&interface.name),
        interface.address.is_ipv6(),
    )
}

fn is_bridge(name: &str) -> bool {
    BRIDGE_PREFIXES
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => Ipv4Addr::is_link_local(&address),
        IpAddr::V6(address) => Ipv6Addr::is_unicast_link_local(&address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::ffi::enumerate;

    fn interfaces() -> Vec<Interface> {
        [
            ("lo", "127.0.0.1"),
            ("docker0", "172.17.0.1"),
            ("eth0", "fd00::5"),
            ("eth0", "fe80::1"),
            ("eth0", "10.0.0.5"),
            ("ib0", "10.1.0.5"),
        ]
        .map(|(name, address)| Interface {
            name: name.into(),
            address: address.parse().unwrap(),
            running: true,
        })
        .to_vec()
    }

    fn chosen(filter: Option<&str>) -> Vec<String> {
        let filter = filter.map(|text| text.parse::<InterfaceFilter>().unwrap());
        let addresses = select(&interfaces(), filter.as_ref()).unwrap();
        addresses.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn without_a_filter_bridges_loopback_and_link_local_addresses_are_left_out() {
        assert_eq!(chosen(None), ["10.0.0.5", "10.1.0.5", "fd00::5"]);
    }

    #[test]
    fn a_bridge_is_used_when_there_is_nothing_else() {
        let few = &interfaces()[..2];
        assert_eq!(
            select(few, None).unwrap(),
            ["172.17.0.1".parse::<IpAddr>().unwrap()]
        );
    }

    #[test]
    fn an_interface_without_a_carrier_is_used_after_the_others_and_before_none() {
        let mut some = interfaces();
        for interface in &mut some {
            interface.running = interface.name == "ib0";
        }
        let chosen = select(&some, None).unwrap();
        let expected = ["10.1.0.5", "10.0.0.5", "fd00::5"];
        assert_eq!(chosen, expected.map(|text| text.parse::<IpAddr>().unwrap()));
        some.retain(|interface| interface.name == "eth0" || interface.name == "lo");
        assert_eq!(select(&some, None).unwrap(), chosen[1..]);
    }

    #[test]
    fn prefixes_exclusions_and_exact_names_select_as_documented() {
        assert_eq!(chosen(Some("ib,docker")), ["172.17.0.1", "10.1.0.5"]);
        assert_eq!(chosen(Some("^eth,lo")), ["172.17.0.1", "10.1.0.5"]);
        assert_eq!(chosen(Some("=ib0")), ["10.1.0.5"]);
        assert_eq!(chosen(Some("^=ib0,eth0,docker0")), ["127.0.0.1"]);
    }

    #[test]
    fn a_filter_that_matches_nothing_is_an_error_that_lists_the_interfaces() {
        let filter = "=eth".parse().unwrap();
        let error = select(&interfaces(), Some(&filter)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
        assert!(error.message().contains("ib0 (10.1.0.5)"), "{error}");
        assert!(
            error.to_string().contains("COMM_SOCKET_IFNAME==eth"),
            "{error}"
        );
    }

    #[test]
    fn a_malformed_filter_is_refused() {
        for text in ["", "^", "eth,,ib", "eth,^ib", "=^eth"] {
            assert!(
                text.parse::<InterfaceFilter>().is_err(),
                "{text:?} was accepted"
            );
        }
    }

    #[test]
    fn this_host_has_a_loopback_interface() {
        assert!(
            enumerate()
                .unwrap()
                .iter()
                .any(|interface| interface.address.is_loopback())
        );
    }
}
