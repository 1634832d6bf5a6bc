//! From the start of a communicator to the end of its first all-reduce.
//!
//! The ranks have no other communicator meanwhile, so the control plane of each process starts and
//! ends with every call, as in a program that has just begun (loading the program is not part of
//! it). What the ranks have to agree on travels over the communicators that are measured, after
//! the clock has stopped. The slowest rank's time counts; the ranks begin together up to the
//! differences with which they got the end of the call before.

use std::time::{Duration, Instant};

use comm_api::{Communicator, DType, Element, OperationKind, ReduceOp, Result};

use super::{Case, Route, route};
use crate::batches::in_nanoseconds;
use crate::coordinator::Coordinator;
use crate::edges::{self, EdgeUse};
use crate::pattern::Pattern;

/// The element type of the first all-reduce.
type First = f32;
/// The first all-reduce: of 8 bytes.
pub(crate) const CASE: Case = Case {
    count: COUNT,
    in_place: true,
};
const COUNT: usize = 2;
/// The operator of the first all-reduce.
pub(crate) const OP: ReduceOp = ReduceOp::Sum;
const LEAST_CALLS: u64 = 5;
const MOST_CALLS: u64 = 1000;

/// What was measured; times and counts are equal on all ranks, edges are known to rank 0.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) ranks: u32,
    pub(crate) call_ns: Vec<u64>,
    pub(crate) wrong: u64,
    pub(crate) route: Route,
    pub(crate) edges: Vec<EdgeUse>,
}

/// The size of the first all-reduce.
pub(crate) const fn bytes() -> usize {
    COUNT * size_of::<First>()
}

/// The element type of the first all-reduce.
pub(crate) const fn dtype() -> DType {
    First::DTYPE
}

/// Makes communicators for about `time`, at least 5, beside one for warming up.
pub(crate) fn measure(
    connect: &dyn Fn() -> Result<Communicator>,
    time: Duration,
) -> Result<Measured> {
    let (first, took, mut wrong) = call(connect, 0)?;
    let mut slowest = [in_nanoseconds(took)];
    Coordinator::new(&first).largest(&mut slowest)?;
    let calls = in_nanoseconds(time) / slowest[0].max(1);
    let calls = Coordinator::new(&first).decide(calls.clamp(LEAST_CALLS, MOST_CALLS))?;
    drop(first);

    let mut call_ns = Vec::new();
    let mut round = 1;
    loop {
        let (comm, took, wrong_now) = call(connect, round)?;
        call_ns.push(in_nanoseconds(took));
        wrong += wrong_now;
        if round < calls {
            round += 1;
            continue;
        }
        let coordinator = Coordinator::new(&comm);
        let own_edges = edges::of(&comm);
        coordinator.largest(&mut call_ns)?;
        return Ok(Measured {
            ranks: comm.world_size(),
            call_ns,
            wrong: coordinator.total(wrong)?,
            route: route::<First>(&comm, OperationKind::AllReduce, Some(OP), CASE)?,
            edges: edges::gather(own_edges, coordinator)?,
        });
    }
}

/// One communicator with its first all-reduce, how long both took, and how many elements are wrong.
fn call(
    connect: &dyn Fn() -> Result<Communicator>,
    round: u64,
) -> Result<(Communicator, Duration, u64)> {
    let start = Instant::now();
    let comm = connect()?;
    let (rank, ranks) = (comm.rank(), comm.world_size());
    let mut buffer = [First::default(); COUNT];
    Pattern::of_rank(Some(OP), ranks, rank, round, COUNT).fill(&mut buffer);
    comm.all_reduce(&mut buffer, OP)?;
    let took = start.elapsed();
    let expected = Pattern::<First>::reduced(OP, ranks, round, COUNT);
    let wrong = expected.count_wrong(&buffer, Some(OP), ranks);
    Ok((comm, took, wrong))
}
