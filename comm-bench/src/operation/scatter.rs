//! Scatter from rank 0, in place and out of place. The size is that of the root's buffer.

use comm_api::{Communicator, OperationKind, Result};

use super::blocks::Blocks;
use super::{Buffers, Calls, Case, Route, route};
use crate::number::Number;

const ROOT: u32 = 0;

#[derive(Debug)]
pub(super) struct Scatter<'a, T> {
    comm: &'a Communicator,
    buffers: Buffers<T>,
}

impl<'a, T: Number> Scatter<'a, T> {
    pub(super) fn new(comm: &'a Communicator, buffers: Buffers<T>) -> Self {
        Self { comm, buffers }
    }

    /// `input` and `output` are as long as all blocks together.
    fn call(comm: &Communicator, in_place: bool, input: &[T], output: &mut [T]) -> Result<()> {
        let block = output.len() / comm.world_size() as usize;
        let is_root = comm.rank() == ROOT;
        if in_place {
            let len = if is_root { output.len() } else { block };
            comm.scatter(&mut output[..len], ROOT).map(drop)
        } else {
            comm.scatter_into(is_root.then_some(input), &mut output[..block], ROOT)
        }
    }
}

impl<T: Number> Calls for Scatter<'_, T> {
    fn prepare(&mut self, case: Case) -> Result<Route> {
        self.buffers.start(case, T::resting(None))?;
        route::<T>(self.comm, OperationKind::Scatter, None, case)
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
        let (comm, rank) = (self.comm, self.comm.rank());
        let blocks = Blocks::new(comm, count, round);
        let own = blocks.moved::<T>(ROOT, rank);
        let (input, output) = self.buffers.both_mut()?;
        own.spoiled().fill(&mut output[blocks.range(0)]);
        if rank == ROOT {
            let source = if in_place { &mut *output } else { &mut *input };
            blocks.fill(source, |receiver| blocks.moved::<T>(ROOT, receiver));
        }
        Self::call(comm, in_place, input, output)?;
        // The root's own block is block 0, the others have only one.
        Ok(own.count_wrong(&output[blocks.range(0)], None, comm.world_size()))
    }
}
