//! Waiting for the end of a process that is no child, with `pidfd_open(2)`.

use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Ends when the process of this number has ended, or if there is none.
///
/// Cancellation safe.
///
/// # Errors
///
/// If the kernel has no process descriptors or this process may not have one.
pub(crate) async fn process_end(pid: u32) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(Errno::SRCH) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    // SAFETY: an `OwnedFd` stays the same open descriptor until it is dropped, and the `AsyncFd`
    // owns it until then.
    let registered = unsafe { AsyncFd::register_with_interest(process, Interest::READABLE) };
    registered?.readable().await.map(drop)
}
