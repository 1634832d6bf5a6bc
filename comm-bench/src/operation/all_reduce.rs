//! All-reduce, in place and out of place.

use comm_api::{Communicator, OperationKind, ReduceOp, Result};

use super::{Buffers, Calls, Case, Route, route};
use crate::number::Number;
use crate::pattern::Pattern;

#[derive(Debug)]
pub(super) struct AllReduce<'a, T> {
    comm: &'a Communicator,
    op: ReduceOp,
    buffers: Buffers<T>,
}

impl<'a, T: Number> AllReduce<'a, T> {
    pub(super) fn new(comm: &'a Communicator, op: ReduceOp, buffers: Buffers<T>) -> Self {
        Self { comm, op, buffers }
    }
}

impl<T: Number> Calls for AllReduce<'_, T> {
    fn prepare(&mut self, case: Case) -> Result<Route> {
        self.buffers.start(case, T::resting(Some(self.op)))?;
        route::<T>(self.comm, OperationKind::AllReduce, Some(self.op), case)
    }

    fn run(&mut self, calls: u64) -> Result<()> {
        let in_place = self.buffers.case.in_place;
        let (input, output) = self.buffers.both()?;
        for _ in 0..calls {
            if in_place {
                self.comm.all_reduce(output, self.op)?;
            } else {
                self.comm.all_reduce_into(input, output, self.op)?;
            }
        }
        Ok(())
    }

    fn check(&mut self, round: u64) -> Result<u64> {
        let Case { count, in_place } = self.buffers.case;
        let (rank, ranks, op) = (self.comm.rank(), self.comm.world_size(), Some(self.op));
        let own = Pattern::of_rank(op, ranks, rank, round, count);
        let expected = Pattern::<T>::reduced(self.op, ranks, round, count);

        let (input, output) = self.buffers.both_mut()?;
        let mut wrong = 0;
        if in_place {
            own.fill(output);
            self.comm.all_reduce(output, self.op)?;
        } else {
            own.fill(input);
            expected.spoiled().fill(output);
            self.comm.all_reduce_into(input, output, self.op)?;
            // The input must be as it was.
            wrong += own.count_wrong(input, None, ranks);
        }
        Ok(wrong + expected.count_wrong(output, op, ranks))
    }
}
