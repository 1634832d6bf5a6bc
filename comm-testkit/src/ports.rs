//! Ports for jobs that a test starts.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below those that systems give to sockets that ask for any port.
const PORTS: Range<u32> = 20_000..32_000;

/// Ports that belong together.
const GIVEN_TOGETHER: u32 = 16;

/// A port of the loopback interface that is free now; it and the fifteen behind it are given to no other
/// caller in this process, as long as there are others.
///
/// It is none of those that systems give to sockets that ask for any port: another job could get such a
/// one before the job that it is meant for listens there.
///
/// ```
/// let (one, other) = (comm_testkit::ports::free_port(), comm_testkit::ports::free_port());
/// assert!(one.abs_diff(other) >= 16);
/// ```
pub fn free_port() -> u16 {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    loop {
        // Processes of other tests begin elsewhere.
        let turn = std::process::id().wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed));
        let place = turn.wrapping_mul(GIVEN_TOGETHER) % (PORTS.end - PORTS.start);
        // Always a port: `PORTS` are.
        let port = (PORTS.start + place) as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}
