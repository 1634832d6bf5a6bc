//! One rank of a benchmark, or all of them as threads of one process.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use comm_api::{Builder, LaunchEnvironment, LocalRendezvous, variable};
use comm_bench::{Printer, Suite};
use comm_core::{Error, ErrorKind, Result};
use rustix::thread::sched_setaffinity;
use serde::{Deserialize, Serialize};

use super::transports;
use crate::launch::{Pin, placement};

/// The hidden subcommand under which `commctl` is a worker; its argument is the order in JSON.
pub const WORKER_COMMAND: &str = "bench-worker";

/// What a worker is told by the process that starts it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) suite: Suite,
    /// Transports that may be used; empty for the library's choice.
    pub(super) transports: Vec<String>,
    /// Set if the worker is to be all ranks rather than the one that it was launched as.
    pub(super) threads: Option<Threads>,
    /// Where rank 0 appends the rows.
    pub(super) json: Option<PathBuf>,
    /// Whether somebody watches standard error.
    pub(super) progress: bool,
    /// Whether this is the first of several jobs.
    pub(super) is_first: bool,
}

/// Ranks that are threads of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Threads {
    pub(super) ranks: u32,
    /// What each of them is bound to.
    pub(super) pin: Option<Pin>,
}

/// Is a worker: carries out the order and returns the exit code for this process.
///
/// # Errors
///
/// When the order cannot be read; else as for [`comm_bench::run`].
pub fn run(order: &str) -> Result<u8> {
    let order: Order = serde_json::from_str(order).map_err(|error| {
        let message = "this command is for `commctl bench`, which starts its workers by it";
        Error::new(ErrorKind::InvalidArgument, message).with_source(error)
    })?;
    if let Some(threads) = order.threads {
        return measure_as_threads(&order, threads);
    }
    let launched = LaunchEnvironment::detect(&variable)?;
    measure(&order, launched.rank)
}

/// Carries out an order as the rank that this process was launched as.
pub(super) fn measure(order: &Order, rank: u32) -> Result<u8> {
    measure_over(order, rank, &Builder::from_env)
}

/// Carries out an order as all ranks, each a thread of this process.
fn measure_as_threads(order: &Order, Threads { ranks, pin }: Threads) -> Result<u8> {
    let places = placement::plan(pin, ranks)?;
    let rendezvous = Arc::new(LocalRendezvous::new());
    let measure = |rank: u32| {
        if let Some(places) = &places {
            sched_setaffinity(None, &places[rank as usize])
                .map_err(|errno| Error::system("binding a rank to its CPUs", errno))?;
        }
        measure_over(order, rank, &|| {
            let rendezvous = Arc::clone(&rendezvous) as _;
            Ok(Builder::from_settings()?
                .rank(rank, ranks)
                .rendezvous(rendezvous))
        })
    };
    let outcomes: Vec<_> = thread::scope(|scope| {
        let measure = &measure;
        let threads: Vec<_> = (0..ranks)
            .map(|rank| scope.spawn(move || measure(rank)))
            .collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let mut code = 0;
    for outcome in outcomes {
        // The thread's panic was printed where it happened.
        let panicked = |_| Error::new(ErrorKind::Internal, "a rank panicked");
        code = code.max(outcome.map_err(panicked)??);
    }
    Ok(code)
}

/// Carries out an order as this rank, over communicators that begin with `builder`.
fn measure_over(order: &Order, rank: u32, builder: &dyn Fn() -> Result<Builder>) -> Result<u8> {
    let is_reporter = rank == 0;
    // Only rank 0 is asked to report, but the others must not touch the file either.
    let json = order.json.as_deref().filter(|_| is_reporter);
    let mut printer = Printer::new(&order.suite, json, order.progress && is_reporter)?;
    if !order.is_first {
        printer = printer.continuing();
    }
    // All ranks connect in the same order, and so come to the same names.
    let connected = Cell::new(0);
    let connect = || {
        connected.set(connected.get() + 1);
        let builder = builder()?.name(format!("bench/{}", connected.get()));
        transports::build(builder, &order.transports)
    };
    let wrong = comm_bench::run(&order.suite, &connect, &mut printer)
        .map_err(|error| error.with("rank", rank))?;
    Ok(u8::from(wrong > 0))
}
