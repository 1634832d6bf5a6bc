//! All-to-all, in place and out of place. The size is that of all blocks of one rank.

use comm_api::{Communicator, OperationKind, Result};

use super::blocks::Blocks;
use super::{Buffers, Calls, Case, Route, route};
use crate::number::Number;

#[derive(Debug)]
pub(super) struct AllToAll<'a, T> {
    comm: &'a Communicator,
    buffers: Buffers<T>,
}

impl<'a, T: Number> AllToAll<'a, T> {
    pub(super) fn new(comm: &'a Communicator, buffers: Buffers<T>) -> Self {
        Self { comm, buffers }
    }

    /// `input` and `output` are as long as all blocks together.
    fn call(comm: &Communicator, in_place: bool, input: &[T], output: &mut [T]) -> Result<()> {
        if in_place {
            comm.all_to_all(output)
        } else {
            comm.all_to_all_into(input, output)
        }
    }
}

impl<T: Number> Calls for AllToAll<'_, T> {
    fn prepare(&mut self, case: Case) -> Result<Route> {
        self.buffers.start(case, T::resting(None))?;
        route::<T>(self.comm, OperationKind::AllToAll, None, case)
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
        let (input, output) = self.buffers.both_mut()?;
        let source = if in_place {
            &mut *output
        } else {
            blocks.spoil(output, |owner| blocks.moved::<T>(owner, rank));
            &mut *input
        };
        blocks.fill(source, |receiver| blocks.moved::<T>(rank, receiver));
        Self::call(comm, in_place, input, output)?;
        Ok(blocks.count_wrong(output, |owner| blocks.moved(owner, rank)))
    }
}
