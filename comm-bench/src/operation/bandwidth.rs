//! A stream of messages to the last rank, which acknowledges the last of each batch.

use comm_api::{Communicator, Result};

use super::pingpong::direct;
use super::{Buffers, Calls, Case, Route};
use crate::number::Number;
use crate::pattern::Pattern;

/// Messages of a checked stream: more than an edge has slots, so that slots are used again.
const CHECKED_MESSAGES: u64 = 10;

#[derive(Debug)]
pub(super) struct Bandwidth<'a, T> {
    comm: &'a Communicator,
    buffers: Buffers<T>,
}

impl<'a, T: Number> Bandwidth<'a, T> {
    pub(super) fn new(comm: &'a Communicator, buffers: Buffers<T>) -> Self {
        Self { comm, buffers }
    }

    /// Ends a stream: the last rank tells rank 0 that it has received all of it.
    fn acknowledge(comm: &Communicator) -> Result<()> {
        let last = comm.world_size() - 1;
        match comm.rank() {
            0 => comm.recv(&mut [T::default()], last),
            rank if rank == last => comm.send(&[T::default()], 0),
            _ => Ok(()),
        }
    }
}

impl<T: Number> Calls for Bandwidth<'_, T> {
    fn prepare(&mut self, case: Case) -> Result<Route> {
        self.buffers.start(case, T::resting(None))?;
        Ok(direct())
    }

    fn run(&mut self, calls: u64) -> Result<()> {
        let comm = self.comm;
        let last = comm.world_size() - 1;
        let (sent, received) = self.buffers.both()?;
        if comm.rank() == 0 {
            for _ in 0..calls {
                comm.send(sent, last)?;
            }
        } else if comm.rank() == last {
            for _ in 0..calls {
                comm.recv(received, 0)?;
            }
        }
        Self::acknowledge(comm)
    }

    fn check(&mut self, round: u64) -> Result<u64> {
        let comm = self.comm;
        let (rank, ranks) = (comm.rank(), comm.world_size());
        let count = self.buffers.case.count;
        let (sent, received) = self.buffers.both_mut()?;
        let mut wrong = 0;
        for message in 0..CHECKED_MESSAGES {
            let pattern =
                Pattern::<T>::of_rank(None, ranks, 0, round * CHECKED_MESSAGES + message, count);
            if rank == 0 {
                pattern.fill(sent);
                comm.send(sent, ranks - 1)?;
            } else if rank == ranks - 1 {
                pattern.spoiled().fill(received);
                comm.recv(received, 0)?;
                wrong += pattern.count_wrong(received, None, ranks);
            }
        }
        Self::acknowledge(comm)?;
        Ok(wrong)
    }
}
