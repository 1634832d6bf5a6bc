//! Benchmarks of the `comm` library: operations, their checks, timing and tables.
//!
//! A [`Suite`] says what is measured. Every rank of a job calls [`run`] with the same suite; rank 0
//! is told the [`Row`]s through a [`Report`], of which [`Printer`] is the one for users and
//! `Vec<Row>` the one for programs. `commctl bench` starts the ranks.
//!
//! ```no_run
//! use comm_api::Communicator;
//! use comm_bench::{Operation, Row, Suite};
//!
//! let suite = Suite { operations: vec![Operation::AllReduce], ..Suite::default() };
//! let mut rows: Vec<Row> = Vec::new();
//! let wrong = comm_bench::run(&suite, &Communicator::from_env, &mut rows)?;
//! assert_eq!(wrong, 0);
//! # Ok::<(), comm_api::Error>(())
//! ```
//!
//! # How to read the figures
//!
//! The timing rule: calls are made in batches of at least 20 us; medians and 99th percentiles are
//! over batches; of collectives the slowest rank counts; the time of a ping-pong is half of its
//! round trip. `algbw` is the size of one rank's buffer divided by the median time, `busbw` what
//! the slowest link had to carry ([`Operation::bus_factor`]), both in 10^9 bytes per second, as
//! nccl-tests has them.
//!
//! Results are checked before and after an operation is timed, not in between: timed calls work on
//! values that stay as they are however often they are reduced, so that sums neither overflow nor
//! products become denormal numbers, which are slow.

#![forbid(unsafe_code)]

pub mod against;
mod batches;
mod coordinator;
mod edges;
mod host;
mod number;
mod operation;
mod pattern;
mod printer;
mod row;
mod run;
mod size;
mod statistics;
mod suite;
mod table;

pub use edges::EdgeUse;
pub use operation::Operation;
pub use printer::Printer;
pub use row::Row;
pub use run::{Report, run};
pub use size::{Size, Sweep};
pub use statistics::TimeUs;
pub use suite::{Places, Series, Suite};
