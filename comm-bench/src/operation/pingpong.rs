//! A message to the last rank and one back, between separate buffers for sending and receiving.

use comm_api::{Algorithm, Communicator, Result};

use super::{Buffers, Calls, Case, Route};
use crate::number::Number;
use crate::pattern::Pattern;

#[derive(Debug)]
pub(super) struct Pingpong<'a, T> {
    comm: &'a Communicator,
    buffers: Buffers<T>,
}

impl<'a, T: Number> Pingpong<'a, T> {
    pub(super) fn new(comm: &'a Communicator, buffers: Buffers<T>) -> Self {
        Self { comm, buffers }
    }

    /// One message each way; ranks between the first and the last have none.
    fn exchange(comm: &Communicator, sent: &[T], received: &mut [T]) -> Result<()> {
        let last = comm.world_size() - 1;
        match comm.rank() {
            0 => {
                comm.send(sent, last)?;
                comm.recv(received, last)
            }
            rank if rank == last => {
                comm.recv(received, 0)?;
                comm.send(sent, 0)
            }
            _ => Ok(()),
        }
    }
}

impl<T: Number> Calls for Pingpong<'_, T> {
    fn prepare(&mut self, case: Case) -> Result<Route> {
        self.buffers.start(case, T::resting(None))?;
        Ok(direct())
    }

    fn run(&mut self, calls: u64) -> Result<()> {
        let comm = self.comm;
        let (sent, received) = self.buffers.both()?;
        for _ in 0..calls {
            Self::exchange(comm, sent, received)?;
        }
        Ok(())
    }

    fn check(&mut self, round: u64) -> Result<u64> {
        let (rank, ranks) = (self.comm.rank(), self.comm.world_size());
        let peer = match rank {
            0 => ranks - 1,
            rank if rank == ranks - 1 => 0,
            _ => return Ok(0),
        };
        let count = self.buffers.case.count;
        let expected = Pattern::<T>::of_rank(None, ranks, peer, round, count);
        let comm = self.comm;
        let (sent, received) = self.buffers.both_mut()?;
        Pattern::of_rank(None, ranks, rank, round, count).fill(sent);
        expected.spoiled().fill(received);
        Self::exchange(comm, sent, received)?;
        Ok(expected.count_wrong(received, None, ranks))
    }
}

/// The route of every message.
pub(super) fn direct() -> Route {
    Route {
        algorithm: Algorithm::Direct.to_string(),
        channels: 1,
    }
}
