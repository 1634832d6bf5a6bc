//! Broadcast from rank 0, in place and out of place.

use comm_api::{Communicator, OperationKind, Result};

use super::{Buffers, Calls, Case, Route, route};
use crate::number::Number;
use crate::pattern::Pattern;

const ROOT: u32 = 0;

#[derive(Debug)]
pub(super) struct Broadcast<'a, T> {
    comm: &'a Communicator,
    buffers: Buffers<T>,
}

impl<'a, T: Number> Broadcast<'a, T> {
    pub(super) fn new(comm: &'a Communicator, buffers: Buffers<T>) -> Self {
        Self { comm, buffers }
    }
}

impl<T: Number> Calls for Broadcast<'_, T> {
    fn prepare(&mut self, case: Case) -> Result<Route> {
        self.buffers.start(case, T::resting(None))?;
        route::<T>(self.comm, OperationKind::Broadcast, None, case)
    }

    fn run(&mut self, calls: u64) -> Result<()> {
        let in_place = self.buffers.case.in_place;
        let (input, output) = self.buffers.both()?;
        for _ in 0..calls {
            if in_place {
                self.comm.broadcast(output, ROOT)?;
            } else {
                self.comm.broadcast_into(input, output, ROOT)?;
            }
        }
        Ok(())
    }

    fn check(&mut self, round: u64) -> Result<u64> {
        let Case { count, in_place } = self.buffers.case;
        let (rank, ranks) = (self.comm.rank(), self.comm.world_size());
        let expected = Pattern::<T>::of_rank(None, ranks, ROOT, round, count);

        let (input, output) = self.buffers.both_mut()?;
        // Everybody but the root holds what must not appear anywhere.
        let source = if in_place { &mut *output } else { &mut *input };
        if rank == ROOT {
            expected.fill(source);
        } else {
            expected.spoiled().fill(source);
        }
        if in_place {
            self.comm.broadcast(output, ROOT)?;
        } else {
            expected.spoiled().fill(output);
            self.comm.broadcast_into(input, output, ROOT)?;
        }
        Ok(expected.count_wrong(output, None, ranks))
    }
}
