//! What Open MPI tells its processes about where to meet.

use comm_core::{Error, ErrorKind, Result};

use super::{EXAMPLE, LOOPBACK, LaunchEnvironment};
use crate::control::rendezvous::OpenMpiJob;

/// The job, from its name and the address of `mpirun`.
///
/// Releases before 5.0 set `OMPI_MCA_orte_hnp_uri`, where `mpirun` listens, on all hosts. Later
/// ones only tell the address of the daemon of the own host (`PMIX_SERVER_URI*`), which is the same
/// for all ranks only if there is one host.
pub(super) fn job(
    found: &LaunchEnvironment,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<OpenMpiJob> {
    let one_host = found.local_world_size == Some(found.world_size);
    let namespace = variable("PMIX_NAMESPACE");
    let mpirun = variable("OMPI_MCA_orte_hnp_uri");
    let daemons = ["PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI2"];
    let daemon = || daemons.into_iter().find_map(variable);
    let identity = match &mpirun {
        Some(uri) => Some(uri.clone()),
        None if one_host => daemon(),
        None => None,
    };
    let hosts = if one_host {
        vec![LOOPBACK.to_owned()]
    } else {
        mpirun.as_deref().map(hosts_of_uri).unwrap_or_default()
    };
    match (namespace, identity) {
        (Some(namespace), Some(uri)) if !hosts.is_empty() => Ok(OpenMpiJob {
            hosts,
            identity: vec![namespace, uri],
        }),
        _ => Err(Error::new(
            ErrorKind::InvalidConfiguration,
            format!(
                "Open MPI tells its processes their ranks but no address to meet at; add one, as \
                 in `mpirun -x {EXAMPLE} ...`, or let a program that knows make a UniqueId and \
                 pass it as COMM_RENDEZVOUS"
            ),
        )),
    }
}

/// The addresses in a contact such as `12.0;tcp://10.0.0.1,10.1.0.1:4000;tcp6://[fd00::1]:4001`.
fn hosts_of_uri(uri: &str) -> Vec<String> {
    let mut hosts = Vec::new();
    for part in uri.split(';') {
        let Some((scheme, rest)) = part.trim().split_once("://") else {
            continue;
        };
        let Some((addresses, _port)) = rest.rsplit_once(':') else {
            continue;
        };
        if !scheme.starts_with("tcp") {
            continue;
        }
        let addresses = addresses.split(',').map(|address| {
            let address = address.trim().trim_start_matches('[');
            address.trim_end_matches(']')
        });
        for address in addresses.filter(|address| address.parse::<std::net::IpAddr>().is_ok()) {
            if !hosts.iter().any(|known| known == address) {
                hosts.push(address.to_owned());
            }
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_mpirun_are_read_whatever_their_kind() {
        let uri = "1249509376.0;tcp://192.0.2.2,10.0.0.1:39337;tcp6://[fd00::2,fd00::3]:59999";
        assert_eq!(
            hosts_of_uri(uri),
            ["192.0.2.2", "10.0.0.1", "fd00::2", "fd00::3"]
        );
        for nonsense in [
            "",
            ";",
            "12.0",
            "tcp://",
            "usock:/tmp/x",
            "tcp://a;rm -rf:1",
        ] {
            assert_eq!(hosts_of_uri(nonsense), [""; 0], "{nonsense}");
        }
    }
}
