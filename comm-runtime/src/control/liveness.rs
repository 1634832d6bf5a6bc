//! How a silent peer is told from a dead one.
//!
//! # Contract
//!
//! * A process that ends closes its connections, and its peers learn that at once from the
//!   system. If it leaves children that inherited the connections (`fork` without `exec`, as in
//!   Python's data loaders), peers on the same host learn it from a process descriptor.
//! * Heartbeats are for what closes nothing: a host that lost power, a cable, a process
//!   that is stopped.
//! * Both ends of a link send a ping when they had nothing else to say for one interval, and
//!   count the peer as dead when nothing came for the time-out. Time in which the process that waits was
//!   stopped itself does not count.
//! * The same time-out bounds how long the system keeps unacknowledged data, so a sender does not
//!   wait for TCP's own quarter of an hour.

use std::time::Duration;

use comm_core::{Error, HostId, ProcessId, Result};
use serde::{Deserialize, Serialize};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// When links send pings and when they give a silent peer up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    timeout: Option<Duration>,
}

impl Default for Heartbeat {
    /// A peer is dead after 20 seconds of silence.
    fn default() -> Self {
        Self {
            timeout: Some(Duration::from_secs(20)),
        }
    }
}

impl Heartbeat {
    /// A peer is dead after `timeout` of silence (`COMM_HEARTBEAT_TIMEOUT_SECONDS`); pings go
    /// out ten times as often. Zero waits for ever, for work with a debugger.
    #[must_use]
    pub fn after(timeout: Duration) -> Self {
        Self {
            timeout: (!timeout.is_zero()).then_some(timeout),
        }
    }

    /// The silence after which a peer counts as dead, if there is a limit.
    #[must_use]
    pub const fn timeout(self) -> Option<Duration> {
        self.timeout
    }

    /// The silence after which a ping is sent.
    #[must_use]
    pub fn interval(self) -> Duration {
        self.timeout
            .map_or(Duration::from_secs(2), |timeout| timeout / 10)
    }

    /// Sets the system's own liveness checks of a link.
    pub(crate) fn apply(self, stream: &TcpStream) {
        let Some(timeout) = self.timeout else { return };
        let socket = SockRef::from(stream);
        let interval = self.interval().max(Duration::from_secs(1));
        let keepalive = TcpKeepalive::new()
            .with_time(interval)
            .with_interval(interval);
        // The pings above them do the same work, so a system without these options is no error.
        if let Err(error) = socket.set_tcp_keepalive(&keepalive) {
            tracing::debug!(%error, "no TCP keepalive on a control link");
        }
        #[cfg(target_os = "linux")]
        if let Err(error) = socket.set_tcp_user_timeout(Some(timeout)) {
            tracing::debug!(%error, "no TCP user time-out on a control link");
        }
        #[cfg(not(target_os = "linux"))]
        let _ = timeout;
    }
}

/// Which process is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessTag {
    pub(crate) id: ProcessId,
    pub(crate) host: HostId,
    pub(crate) pid: u32,
    /// Within which the process number means something; 0 if the system does not tell.
    pub(crate) pid_namespace: u64,
}

impl ProcessTag {
    /// Ends when the process has ended; never, if `own`, the calling process, cannot see that.
    pub(crate) async fn ended(&self, own: &Self) {
        let visible = self.host == own.host
            && self.pid_namespace == own.pid_namespace
            && own.pid_namespace != 0
            && self.id != own.id;
        #[cfg(target_os = "linux")]
        if visible {
            match super::ffi::process_end(self.pid).await {
                Ok(()) => return,
                // The connection's own end and the heartbeats are left.
                Err(error) => tracing::debug!(pid = self.pid, %error, "a process is not watched"),
            }
        }
        let _ = visible;
        std::future::pending::<()>().await;
    }
}

/// The namespace in which process numbers of this process count; 0 if the system does not tell.
pub(crate) fn pid_namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino())
}

/// Options that every control connection has from its first byte on.
pub(crate) fn prepare(stream: &TcpStream) -> Result<()> {
    stream
        .set_nodelay(true)
        .map_err(|error| Error::system("setting up a control connection", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_pings_every_two_seconds_and_gives_up_after_twenty() {
        let heartbeat = Heartbeat::default();
        assert_eq!(heartbeat.interval(), Duration::from_secs(2));
        assert_eq!(heartbeat.timeout(), Some(Duration::from_secs(20)));
    }

    #[test]
    fn zero_waits_for_ever() {
        assert_eq!(Heartbeat::after(Duration::ZERO).timeout(), None);
    }
}
