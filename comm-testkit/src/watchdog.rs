//! A test that is stuck must not hold up everything else.

use std::io::Write;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Runs `body`; ends the whole process with a message if it has not returned within `limit`.
///
/// The process is aborted since a thread cannot be. The limit is no assertion about speed: choose
/// one that only a stuck test reaches. A panic of `body` goes on to the caller.
///
/// ```
/// use std::time::Duration;
///
/// let sum = comm_testkit::watchdog::with_watchdog(Duration::from_secs(60), || 1 + 1);
/// assert_eq!(sum, 2);
/// ```
pub fn with_watchdog<T>(limit: Duration, body: impl FnOnce() -> T) -> T {
    let name = thread::current().name().unwrap_or("a test").to_owned();
    let (alive, watched) = mpsc::channel::<()>();
    let watchdog = thread::spawn(move || {
        // Nothing is ever sent: the channel closes when `body` has returned or panicked.
        if watched.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            // Not `eprintln`: what a test prints is captured, and would be lost with the process.
            let message = format!("watchdog: {name} is stuck: not ended within {limit:?}\n");
            let _ = std::io::stderr().write_all(message.as_bytes());
            std::process::abort();
        }
    });
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    drop(alive);
    // The watchdog's only ways to end are a return and an abort.
    let _ = watchdog.join();
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_body_reaches_the_caller() {
        let caught = std::panic::catch_unwind(|| {
            with_watchdog(Duration::from_secs(60), || {
                std::panic::resume_unwind(Box::new("boom"))
            })
        });
        assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"boom"));
    }
}
