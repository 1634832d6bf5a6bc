//! Carries out a suite on one rank.

use comm_api::{Communicator, Error, ErrorKind, PeerInfo, Result};

use crate::batches;
use crate::coordinator::Coordinator;
use crate::edges::{self, EdgeUse};
use crate::operation::{BufferOptions, Calls, Case, Operation, Route, init, repeatable};
use crate::row::Row;
use crate::size::Size;
use crate::statistics::TimeUs;
use crate::suite::{Series, Suite};

/// Checked calls before a case is timed: small ones often enough that every slot of an edge is
/// used more than once, large ones (of many slots) a few times.
const CHECKED_BYTES: usize = 4 << 20;
const MOST_CHECKED: usize = 12;

/// Gets to know what is measured, while it is; called on rank 0 only.
pub trait Report {
    /// A table begins.
    ///
    /// # Errors
    ///
    /// Any error ends the benchmark on this rank, and so on all.
    fn begins(&mut self, series: &Series, peers: &[PeerInfo]) -> Result<()> {
        let _ = (series, peers);
        Ok(())
    }

    /// The measurement of one size begins; it is number `done` (from 0) of `total` in the job.
    ///
    /// # Errors
    ///
    /// As for [`Report::begins`].
    fn measuring(&mut self, series: &Series, size: Size, done: usize, total: usize) -> Result<()> {
        let _ = (series, size, done, total);
        Ok(())
    }

    /// One size was measured: one row for each place.
    ///
    /// # Errors
    ///
    /// As for [`Report::begins`].
    fn measured(&mut self, rows: &[Row]) -> Result<()>;

    /// A table ends.
    ///
    /// `edges` are those that the operation connected, `wrong` the wrong elements of all its rows
    /// (`None` unchecked).
    ///
    /// # Errors
    ///
    /// As for [`Report::begins`].
    fn ends(&mut self, edges: &[EdgeUse], wrong: Option<u64>) -> Result<()> {
        let _ = (edges, wrong);
        Ok(())
    }
}

/// Collects the rows.
impl Report for Vec<Row> {
    fn measured(&mut self, rows: &[Row]) -> Result<()> {
        self.extend_from_slice(rows);
        Ok(())
    }
}

/// Measures a suite together with the other ranks and returns how many elements were wrong.
///
/// Every rank of the job calls this with the same suite. `connect` makes a communicator of all
/// ranks each time it is called: every table has one of its own, so that its edges are its own, and
/// a second one over which the ranks agree. Blocks until everything is measured.
///
/// # Errors
///
/// What `connect`, the library and `report` return, and [`Suite::validate`]'s errors.
pub fn run(
    suite: &Suite,
    connect: &dyn Fn() -> Result<Communicator>,
    report: &mut dyn Report,
) -> Result<u64> {
    let series = suite.series();
    let total = series.iter().map(|&series| suite.cases(series).len()).sum();
    let mut run = Run {
        suite,
        connect,
        report,
        done: 0,
        total,
        wrong: 0,
    };
    for series in series {
        match series.operation {
            Operation::Init => run.init(series)?,
            _ => run.repeatable(series)?,
        }
    }
    Ok(run.wrong)
}

struct Run<'a> {
    suite: &'a Suite,
    connect: &'a dyn Fn() -> Result<Communicator>,
    report: &'a mut dyn Report,
    /// Sizes that are measured.
    done: usize,
    total: usize,
    wrong: u64,
}

impl Run<'_> {
    fn repeatable(&mut self, series: Series) -> Result<()> {
        let Series {
            operation,
            dtype,
            redop,
        } = series;
        let control = (self.connect)()?;
        self.suite.validate(control.world_size())?;
        let comm = (self.connect)()?;
        let (rank, coordinator) = (comm.rank(), Coordinator::new(&control));
        if rank != control.rank() {
            let message = "this process had another rank in the first communicator";
            return Err(Error::new(ErrorKind::Internal, message));
        }
        if rank == 0 {
            self.report.begins(&series, comm.peers())?;
        }
        let ranks = comm.world_size();
        let largest = self.suite.sizes.largest_count(dtype.size_bytes());
        let largest = operation.whole_blocks(largest, ranks);
        let mut calls = repeatable(
            operation,
            &comm,
            dtype,
            redop,
            BufferOptions {
                largest_count: largest,
                mem_alloc: self.suite.mem_alloc,
                fresh: self.suite.fresh,
            },
        )?;

        let (mut edges, mut wrong) = (Vec::new(), 0);
        let mut last_count = None;
        for line in self.suite.cases(series) {
            let mut rows = Vec::with_capacity(line.len());
            for mut case in line {
                case.count = operation.whole_blocks(case.count, ranks);
                if rows.is_empty() && last_count.replace(case.count) == Some(case.count) {
                    // Rounded up to the size that was measured last.
                    break;
                }
                let bytes = case.count * dtype.size_bytes();
                if rank == 0 && rows.is_empty() {
                    self.report
                        .measuring(&series, Size(bytes as u64), self.done, self.total)?;
                }
                let measured = measure(
                    self.suite,
                    operation,
                    &mut *calls,
                    case,
                    bytes,
                    rank,
                    coordinator,
                )?;
                wrong += measured.wrong;
                edges = edges::gather(edges::of(&comm), coordinator)?;
                rows.push(self.row(series, ranks, bytes, case, &edges, measured));
            }
            self.done += 1;
            if rank == 0 && !rows.is_empty() {
                self.report.measured(&rows)?;
            }
        }
        self.wrong += wrong;
        if rank == 0 {
            self.report
                .ends(&edges, self.suite.check.then_some(wrong))?;
        }
        // Nobody leaves while others still use the communicators.
        coordinator.meet()
    }

    fn init(&mut self, series: Series) -> Result<()> {
        // The first connection tells who everybody is; it is gone before the clock starts.
        let rank = {
            let comm = (self.connect)()?;
            self.suite.validate(comm.world_size())?;
            if comm.rank() == 0 {
                self.report.begins(&series, comm.peers())?;
                self.report.measuring(
                    &series,
                    Size(init::bytes() as u64),
                    self.done,
                    self.total,
                )?;
            }
            comm.barrier()?;
            comm.rank()
        };
        let init::Measured {
            ranks,
            call_ns,
            wrong,
            route,
            edges,
        } = init::measure(self.connect, self.suite.time)?;
        self.done += 1;
        self.wrong += wrong;
        if rank == 0 {
            let measured = Measured {
                time: TimeUs::of_batches(&call_ns, 1, 1.0),
                wrong,
                route,
            };
            let row = self.row(series, ranks, init::bytes(), init::CASE, &edges, measured);
            self.report.measured(&[row])?;
            self.report
                .ends(&edges, self.suite.check.then_some(wrong))?;
        }
        Ok(())
    }

    fn row(
        &self,
        series: Series,
        ranks: u32,
        bytes: usize,
        case: Case,
        edges: &[EdgeUse],
        measured: Measured,
    ) -> Row {
        let bytes = bytes as u64;
        let (algbw_gbps, busbw_gbps) =
            Row::bandwidths(series.operation, ranks, bytes, measured.time.p50);
        Row {
            op: series.operation,
            transport: edges::transports(edges),
            ranks,
            bytes,
            dtype: series.dtype,
            redop: series.redop,
            in_place: case.in_place,
            time_us: measured.time,
            algbw_gbps,
            busbw_gbps,
            wrong: self.suite.check.then_some(measured.wrong),
            algorithm: measured.route.algorithm,
            channels: measured.route.channels,
        }
    }
}

/// The outcome of one case, equal on all ranks.
struct Measured {
    time: TimeUs,
    wrong: u64,
    route: Route,
}

fn measure(
    suite: &Suite,
    operation: Operation,
    calls: &mut dyn Calls,
    case: Case,
    bytes: usize,
    rank: u32,
    coordinator: Coordinator<'_>,
) -> Result<Measured> {
    let mut wrong = 0;
    let route = calls.prepare(case)?;
    if suite.check {
        let rounds = (CHECKED_BYTES / bytes.max(1)).clamp(1, MOST_CHECKED) as u64;
        for round in 0..rounds {
            wrong += calls.check(round)?;
        }
        calls.prepare(case)?;
    }
    let least_calls = operation.least_calls(bytes);
    let batches = batches::measure(operation, calls, least_calls, rank, coordinator, suite.time)?;
    if suite.check {
        // Once more, in whatever state the timed calls have left the edges.
        wrong += calls.check(MOST_CHECKED as u64)?;
    }
    Ok(Measured {
        time: TimeUs::of_batches(&batches.batch_ns, batches.calls, operation.share()),
        wrong: coordinator.total(wrong)?,
        route,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// An operation of which every checked call gets some elements wrong.
    struct Wrong {
        in_a_call: u64,
        checked: u64,
        timed: u64,
    }

    impl Calls for Wrong {
        fn prepare(&mut self, _: Case) -> Result<Route> {
            Ok(Route {
                algorithm: "none".to_owned(),
                channels: 1,
            })
        }

        fn run(&mut self, calls: u64) -> Result<()> {
            self.timed += calls;
            Ok(())
        }

        fn check(&mut self, _: u64) -> Result<u64> {
            self.checked += 1;
            Ok(self.in_a_call)
        }
    }

    fn measured(suite: &Suite, bytes: usize) -> (Measured, Wrong) {
        let comms = comm_api::init_all(1).unwrap();
        let mut calls = Wrong {
            in_a_call: 3,
            checked: 0,
            timed: 0,
        };
        let case = Case {
            count: bytes / 4,
            in_place: false,
        };
        let coordinator = Coordinator::new(&comms[0]);
        let operation = Operation::AllReduce;
        let measured = measure(suite, operation, &mut calls, case, bytes, 0, coordinator).unwrap();
        (measured, calls)
    }

    fn suite(check: bool) -> Suite {
        Suite {
            check,
            time: Duration::from_millis(1),
            ..Suite::default()
        }
    }

    #[test]
    fn wrong_elements_of_every_checked_call_count() {
        let (measured, calls) = measured(&suite(true), 8);
        assert_eq!(calls.checked, MOST_CHECKED as u64 + 1);
        assert_eq!(measured.wrong, 3 * calls.checked);
    }

    #[test]
    fn large_sizes_are_checked_before_and_after_they_are_timed() {
        assert_eq!(measured(&suite(true), 64 << 20).1.checked, 2);
    }

    #[test]
    fn without_checks_there_is_only_timing() {
        let (measured, calls) = measured(&suite(false), 8);
        assert_eq!((calls.checked, measured.wrong), (0, 0));
        assert!(calls.timed > 0 && measured.time.min <= measured.time.p99);
    }
}
