//! Reduce to rank 0, in place and out of place.

use comm_api::{Communicator, OperationKind, ReduceOp, Result};

use super::{Buffers, Calls, Case, Route, route};
use crate::number::Number;
use crate::pattern::Pattern;

const ROOT: u32 = 0;

#[derive(Debug)]
pub(super) struct Reduce<'a, T> {
    comm: &'a Communicator,
    op: ReduceOp,
    buffers: Buffers<T>,
}

impl<'a, T: Number> Reduce<'a, T> {
    pub(super) fn new(comm: &'a Communicator, op: ReduceOp, buffers: Buffers<T>) -> Self {
        Self { comm, op, buffers }
    }

    fn call(
        comm: &Communicator,
        op: ReduceOp,
        in_place: bool,
        input: &[T],
        output: &mut [T],
    ) -> Result<()> {
        let is_root = comm.rank() == ROOT;
        if in_place {
            comm.reduce(output, op, ROOT)
        } else {
            comm.reduce_into(input, is_root.then_some(output), op, ROOT)
        }
    }
}

impl<T: Number> Calls for Reduce<'_, T> {
    fn prepare(&mut self, case: Case) -> Result<Route> {
        self.buffers.start(case, T::resting(Some(self.op)))?;
        route::<T>(self.comm, OperationKind::Reduce, Some(self.op), case)
    }

    fn run(&mut self, calls: u64) -> Result<()> {
        let in_place = self.buffers.case.in_place;
        let (comm, op) = (self.comm, self.op);
        let (input, output) = self.buffers.both()?;
        for _ in 0..calls {
            Self::call(comm, op, in_place, input, output)?;
        }
        Ok(())
    }

    fn check(&mut self, round: u64) -> Result<u64> {
        let Case { count, in_place } = self.buffers.case;
        let (comm, op) = (self.comm, self.op);
        let (rank, ranks) = (comm.rank(), comm.world_size());
        let own = Pattern::of_rank(Some(op), ranks, rank, round, count);
        let expected = Pattern::<T>::reduced(op, ranks, round, count);
        let (input, output) = self.buffers.both_mut()?;
        expected.spoiled().fill(output);
        own.fill(if in_place { &mut *output } else { &mut *input });
        Self::call(comm, op, in_place, input, output)?;
        if rank == ROOT {
            return Ok(expected.count_wrong(output, Some(op), ranks));
        }
        // What is only read must be as it was.
        let read = if in_place { &*output } else { &*input };
        Ok(own.count_wrong(read, None, ranks))
    }
}
