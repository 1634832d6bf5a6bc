//! What network the machine has on which a test runs.

use std::net::{IpAddr, UdpSocket};

/// An address of this machine under which others would see it; `None`, with a word of why the test is
/// skipped, where there is none.
///
/// Ranks of different hosts, which a test can pretend to have, never use loopback addresses.
///
/// ```
/// if let Some(own) = comm_testkit::network::address_for_other_hosts() {
///     assert!(!own.is_loopback());
/// }
/// ```
pub fn address_for_other_hosts() -> Option<IpAddr> {
    let own = UdpSocket::bind("0.0.0.0:0").and_then(|probe| {
        // Sends nothing: only asks for the address that would be used.
        probe.connect("198.51.100.1:1")?;
        Ok(probe.local_addr()?.ip())
    });
    match own {
        Ok(own) if !own.is_loopback() => Some(own),
        _ => {
            eprintln!("skipped: this machine has no network besides loopback");
            None
        }
    }
}
