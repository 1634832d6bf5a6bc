//! Runs one closure per rank, each rank a thread of this process, under a watchdog.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use comm_api::{Communicator, Result};

/// How long a test may take before it counts as stuck.
const WATCHDOG: Duration = Duration::from_secs(120);

/// Calls `body` on every communicator, each on a thread of its own; returns the results by rank.
pub(crate) fn on_every_rank<T: Send + 'static>(
    communicators: Vec<Communicator>,
    body: impl Fn(&Communicator) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let body = Arc::new(body);
    let (sender, receiver) = mpsc::channel();
    let ranks = communicators.len();
    for communicator in communicators {
        let (body, sender) = (Arc::clone(&body), sender.clone());
        thread::spawn(move || {
            let result = body(&communicator);
            // The receiver is gone when the test has failed already.
            let _ = sender.send((communicator.rank(), result));
        });
    }
    drop(sender);
    let mut results: Vec<_> = (0..ranks)
        .map(|_| {
            receiver
                .recv_timeout(WATCHDOG)
                .expect("a rank panicked or is stuck")
        })
        .collect();
    results.sort_by_key(|(rank, _)| *rank);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Starts `ranks` ranks over each transport that is compiled in, one after the other, and calls
/// `body` on each; the results of all of them.
#[allow(dead_code, reason = "not every test file needs it")]
pub(crate) fn with_ranks<T: Send + 'static>(
    ranks: u32,
    body: impl Fn(&Communicator) -> T + Send + Sync + 'static,
) -> Result<Vec<T>> {
    let body = Arc::new(body);
    let mut results = Vec::new();
    for name in comm_api::compiled_transports() {
        let communicators = comm_api::init_all_with(ranks, |builder| {
            builder.only_transports(vec![(*name).to_owned()])
        })?;
        let body = Arc::clone(&body);
        results.extend(on_every_rank(communicators, move |comm| body(comm)));
    }
    Ok(results)
}
