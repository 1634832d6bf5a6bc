//! Finds TCP ports of the loopback interface that are free.
//!
//! The launcher must not hold the ports it hands out, since the workers bind them. Between the
//! check and that bind another process may take one. Ports that the kernel gives to outgoing
//! connections are therefore avoided: those are taken all the time, the ones below hardly ever.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};

use comm_core::{Error, ErrorKind, Result};

/// Registered services crowd below this.
const LOWEST: u16 = 10_000;
const ATTEMPTS: usize = 100;

/// Returns `N` different ports that are free at this moment.
///
/// # Errors
///
/// When no free port is found or the loopback interface does not work.
pub(super) fn free_ports<const N: usize>() -> Result<[u16; N]> {
    // Held until all are found, so that they differ.
    let mut held = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = bind_one()?;
        let address = listener
            .local_addr()
            .map_err(|error| Error::system("reading the address of a listening socket", error))?;
        *port = address.port();
        held.push(listener);
    }
    Ok(ports)
}

fn bind_one() -> Result<TcpListener> {
    let end = first_ephemeral_port();
    if end > LOWEST {
        for _ in 0..ATTEMPTS {
            let port = LOWEST + random_below(end - LOWEST)?;
            if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
                return Ok(listener);
            }
        }
    }
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .map_err(|error| Error::system("looking for a free port on 127.0.0.1", error))
}

/// The first port that the kernel uses for outgoing connections.
fn first_ephemeral_port() -> u16 {
    fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok())
        .unwrap_or(32_768)
}

fn random_below(limit: u16) -> Result<u16> {
    let number = getrandom::u32().map_err(|error| {
        Error::new(ErrorKind::System, "the system gives no random numbers").with_source(error)
    })?;
    // The bias of the remainder does not matter here.
    Ok(u16::try_from(number % u32::from(limit)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_different() {
        let ports: [u16; 3] = free_ports().unwrap();
        assert!(ports[0] != ports[1] && ports[1] != ports[2] && ports[0] != ports[2]);
        for port in ports {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        }
    }

    #[test]
    fn ports_of_outgoing_connections_are_avoided() {
        let end = first_ephemeral_port();
        if end > LOWEST {
            let [port] = free_ports().unwrap();
            assert!(
                (LOWEST..end).contains(&port),
                "{port} is not in {LOWEST}..{end}"
            );
        }
    }
}
