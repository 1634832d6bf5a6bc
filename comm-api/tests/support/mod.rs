//! Runs tests over every transport that is compiled in, and one closure per rank, each rank a
//! thread of this process, under a watchdog.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use comm_api::{Builder, Communicator, Result};

/// How long a test may take before it counts as stuck.
const WATCHDOG: Duration = Duration::from_secs(300);

thread_local! {
    /// The transport over which the test of this thread runs.
    static TRANSPORT: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Makes tests of functions: each of them once for every transport that is compiled in.
#[allow(unused_macros, reason = "not every test file needs it")]
macro_rules! on_every_transport {
    ($($test:ident),* $(,)?) => {
        // Also where no transport is compiled in.
        const _: &[fn()] = &[$($test),*];

        #[cfg(all(feature = "shm", target_os = "linux"))]
        mod over_shm {
            $(#[test] fn $test() { crate::support::over("shm", super::$test) })*
        }

        #[cfg(feature = "p2p")]
        mod over_p2p {
            $(#[test] fn $test() { crate::support::over("p2p", super::$test) })*
        }

        #[cfg(feature = "tcp")]
        mod over_net {
            $(#[test] fn $test() { crate::support::over("net", super::$test) })*
        }
    };
}
#[allow(unused_imports, reason = "not every test file needs it")]
pub(crate) use on_every_transport;

/// Runs a test whose communicators use this transport only.
#[allow(dead_code, reason = "there may be no transport")]
pub(crate) fn over(transport: &'static str, test: fn()) {
    TRANSPORT.set(Some(transport));
    test();
}

/// The transport of the test, if it is one of many.
#[allow(dead_code, reason = "not every test file needs it")]
pub(crate) fn transport() -> Option<&'static str> {
    TRANSPORT.get()
}

/// As [`comm_api::init_all_with`], over the transport of the test.
pub(crate) fn init_all_with(
    ranks: u32,
    configure: impl Fn(Builder) -> Builder,
) -> Result<Vec<Communicator>> {
    let transport = TRANSPORT.get();
    comm_api::init_all_with(ranks, |builder| {
        configure(match transport {
            Some(name) => builder.only_transports(vec![name.to_owned()]),
            None => builder,
        })
    })
}

/// Builders of the ranks of one communicator over the transport of the test, for threads that build
/// and use it themselves.
#[allow(dead_code, reason = "not every test file needs it")]
pub(crate) fn builders(ranks: u32) -> Vec<Builder> {
    let rendezvous = Arc::new(comm_runtime::control::rendezvous::LocalRendezvous::new());
    (0..ranks)
        .map(|rank| {
            let builder = Builder::from_settings().unwrap().rank(rank, ranks);
            let builder = builder.rendezvous(Arc::clone(&rendezvous) as _);
            match TRANSPORT.get() {
                Some(name) => builder.only_transports(vec![name.to_owned()]),
                None => builder,
            }
        })
        .collect()
}

/// Two ranks, each built and used by one thread only; the results by rank. Nobody leaves before both
/// are through.
#[allow(dead_code, reason = "not every test file needs it")]
pub(crate) fn single_threaded<T: Send + 'static>(
    body: impl Fn(&Communicator) -> T + Send + Sync + 'static,
) -> Vec<T> {
    single_threaded_with(builders(2), body)
}

/// As [`single_threaded`], of any number of ranks, with these builders.
#[allow(dead_code, reason = "not every test file needs it")]
pub(crate) fn single_threaded_with<T: Send + 'static>(
    builders: Vec<Builder>,
    body: impl Fn(&Communicator) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let results = on_threads(builders, move |builder| {
        let communicator = builder.build().unwrap();
        let result = body(&communicator);
        ((communicator, result), ())
    });
    results.into_iter().map(|(_, result)| result).collect()
}

/// As [`comm_api::init_all`], over the transport of the test.
pub(crate) fn init_all(ranks: u32) -> Result<Vec<Communicator>> {
    init_all_with(ranks, |builder| builder)
}

/// Calls `body` on every communicator, each on a thread of its own; returns the results by rank.
pub(crate) fn on_every_rank<T: Send + 'static>(
    communicators: Vec<Communicator>,
    body: impl Fn(&Communicator) -> T + Send + Sync + 'static,
) -> Vec<T> {
    on_threads(communicators, move |communicator| {
        (body(&communicator), communicator)
    })
}

/// Calls `body` with each of these, on a thread of its own; the results in their order. What comes with a
/// result is dropped on that thread afterwards.
fn on_threads<I: Send + 'static, T: Send + 'static, K>(
    items: Vec<I>,
    body: impl Fn(I) -> (T, K) + Send + Sync + 'static,
) -> Vec<T> {
    let body = Arc::new(body);
    let (sender, receiver) = mpsc::channel();
    let count = items.len();
    for (place, item) in items.into_iter().enumerate() {
        let (body, sender) = (Arc::clone(&body), sender.clone());
        thread::spawn(move || {
            let (result, _kept) = body(item);
            // The receiver is gone when the test has failed already.
            let _ = sender.send((place, result));
        });
    }
    drop(sender);
    let mut results: Vec<_> = (0..count)
        .map(|_| {
            receiver
                .recv_timeout(WATCHDOG)
                .expect("a rank panicked or is stuck")
        })
        .collect();
    results.sort_by_key(|(place, _)| *place);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Starts `ranks` ranks over each transport that is compiled in, one after the other, and calls
/// `body` on each; the results of all of them.
#[allow(dead_code, reason = "not every test file needs it")]
pub(crate) fn with_ranks<T: Send + 'static>(
    ranks: u32,
    body: impl Fn(&Communicator) -> T + Send + Sync + 'static,
) -> Result<Vec<T>> {
    Ok(on_every_rank(init_all(ranks)?, body))
}
