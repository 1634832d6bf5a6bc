//! Reduce-scatter, in place and out of place. The size is that of all blocks of one rank.

use comm_api::{Communicator, OperationKind, ReduceOp, Result};

use super::blocks::Blocks;
use super::{Buffers, Calls, Case, Route, route};
use crate::number::Number;

#[derive(Debug)]
pub(super) struct ReduceScatter<'a, T> {
    comm: &'a Communicator,
    op: ReduceOp,
    buffers: Buffers<T>,
}

impl<'a, T: Number> ReduceScatter<'a, T> {
    pub(super) fn new(comm: &'a Communicator, op: ReduceOp, buffers: Buffers<T>) -> Self {
        Self { comm, op, buffers }
    }

    /// `input` and `output` are as long as all blocks together.
    fn call(
        comm: &Communicator,
        op: ReduceOp,
        in_place: bool,
        input: &[T],
        output: &mut [T],
    ) -> Result<()> {
        let block = output.len() / comm.world_size() as usize;
        if in_place {
            comm.reduce_scatter(output, op).map(drop)
        } else {
            comm.reduce_scatter_into(input, &mut output[..block], op)
        }
    }
}

impl<T: Number> Calls for ReduceScatter<'_, T> {
    fn prepare(&mut self, case: Case) -> Result<Route> {
        self.buffers.start(case, T::resting(Some(self.op)))?;
        route::<T>(self.comm, OperationKind::ReduceScatter, Some(self.op), case)
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
        let (comm, op, rank) = (self.comm, self.op, self.comm.rank());
        let blocks = Blocks::new(comm, count, round);
        let expected = blocks.reduced::<T>(op, rank);
        let (input, output) = self.buffers.both_mut()?;
        expected.spoiled().fill(&mut output[blocks.range(0)]);
        let source = if in_place { &mut *output } else { &mut *input };
        blocks.fill(source, |receiver| blocks.operand::<T>(op, rank, receiver));
        Self::call(comm, op, in_place, input, output)?;
        let own = if in_place {
            blocks.range(rank)
        } else {
            blocks.range(0)
        };
        Ok(expected.count_wrong(&output[own], Some(op), comm.world_size()))
    }
}
