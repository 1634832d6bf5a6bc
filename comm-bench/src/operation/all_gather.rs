//! All-gather, in place and out of place. The size is that of the gathered buffer.

use comm_api::{Communicator, OperationKind, Result};

use super::blocks::Blocks;
use super::{Buffers, Calls, Case, Route, route};
use crate::number::Number;

#[derive(Debug)]
pub(super) struct AllGather<'a, T> {
    comm: &'a Communicator,
    buffers: Buffers<T>,
}

impl<'a, T: Number> AllGather<'a, T> {
    pub(super) fn new(comm: &'a Communicator, buffers: Buffers<T>) -> Self {
        Self { comm, buffers }
    }

    /// `input` and `output` are as long as all blocks together.
    fn call(comm: &Communicator, in_place: bool, input: &[T], output: &mut [T]) -> Result<()> {
        let block = output.len() / comm.world_size() as usize;
        if in_place {
            comm.all_gather(output)
        } else {
            comm.all_gather_into(&input[..block], output)
        }
    }
}

impl<T: Number> Calls for AllGather<'_, T> {
    fn prepare(&mut self, case: Case) -> Result<Route> {
        self.buffers.start(case, T::resting(None))?;
        route::<T>(self.comm, OperationKind::AllGather, None, case)
    }

    fn run(&mut self, calls: u64) -> Result<()> {
        let in_place = self.buffers.case.in_place;
        let comm = self.comm;
        let (input, output) = self.buffers.both()?;
        for _ in 0..calls {
            Self::call(comm, in_place, input, output)?;
        }
        Ok(())
    }

    fn check(&mut self, round: u64) -> Result<u64> {
        let Case { count, in_place } = self.buffers.case;
        let comm = self.comm;
        let blocks = Blocks::new(comm, count, round);
        let (input, output) = self.buffers.both_mut()?;
        blocks.spoil(output, |owner| blocks.moved::<T>(owner, 0));
        let own = blocks.moved::<T>(comm.rank(), 0);
        if in_place {
            own.fill(&mut output[blocks.range(comm.rank())]);
        } else {
            own.fill(&mut input[blocks.range(0)]);
        }
        Self::call(comm, in_place, input, output)?;
        Ok(blocks.count_wrong(output, |owner| blocks.moved(owner, 0)))
    }
}
