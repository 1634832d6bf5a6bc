//! One rank of a benchmark.

use std::cell::Cell;
use std::path::PathBuf;

use comm_api::{Builder, Communicator, LaunchEnvironment};
use comm_bench::{Printer, Suite};
use comm_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// The hidden subcommand under which `commctl` is a worker; its argument is the order in JSON.
pub const WORKER_COMMAND: &str = "bench-worker";

/// What a worker is told by the process that starts it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) suite: Suite,
    /// Transports that may be used; empty for the library's choice.
    pub(super) transports: Vec<String>,
    /// Where rank 0 appends the rows.
    pub(super) json: Option<PathBuf>,
    /// Whether somebody watches standard error.
    pub(super) progress: bool,
    /// Whether this is the first of several jobs.
    pub(super) is_first: bool,
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
    let launched = LaunchEnvironment::detect(&|name| std::env::var(name).ok())?;
    measure(&order, launched.rank)
}

/// Carries out an order as this rank.
pub(super) fn measure(order: &Order, rank: u32) -> Result<u8> {
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
        connect(&order.transports, connected.get())
    };
    let wrong = comm_bench::run(&order.suite, &connect, &mut printer)
        .map_err(|error| error.with("rank", rank))?;
    Ok(u8::from(wrong > 0))
}

/// The communicator of this number, over the given transports.
fn connect(transports: &[String], number: u64) -> Result<Communicator> {
    let mut builder = Builder::from_env()?.name(format!("bench/{number}"));
    if !transports.is_empty() {
        builder = builder.only_transports(transports.to_vec());
    }
    builder.build()
}
