//! How the ranks agree on what to do next and put their results together.
//!
//! Runs over a communicator of its own, so that the edges of the measured one are exactly those
//! that the measured operation uses. Nothing here is called while something is timed.

use comm_api::{Communicator, ReduceOp, Result};

/// Agreement among all ranks of a communicator; all ranks make the same calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coordinator<'a> {
    comm: &'a Communicator,
}

impl<'a> Coordinator<'a> {
    pub(crate) const fn new(comm: &'a Communicator) -> Self {
        Self { comm }
    }

    /// The number that rank 0 passes.
    pub(crate) fn decide(&self, number: u64) -> Result<u64> {
        let mut number = [number];
        self.comm.broadcast(&mut number, 0)?;
        Ok(number[0])
    }

    /// Replaces each number by the largest of all ranks.
    pub(crate) fn largest(&self, numbers: &mut [u64]) -> Result<()> {
        self.comm.all_reduce(numbers, ReduceOp::Max)
    }

    /// The sum of the numbers of all ranks.
    pub(crate) fn total(&self, number: u64) -> Result<u64> {
        let mut number = [number];
        self.comm.all_reduce(&mut number, ReduceOp::Sum)?;
        Ok(number[0])
    }

    /// Returns when all ranks have come.
    pub(crate) fn meet(&self) -> Result<()> {
        self.comm.barrier()
    }

    /// Brings the texts of all ranks to rank 0, in rank order; the others get nothing.
    pub(crate) fn gather(&self, text: String) -> Result<Vec<Vec<u8>>> {
        let own = text.into_bytes();
        if self.comm.rank() != 0 {
            self.comm.send(&[own.len() as u64], 0)?;
            self.comm.send(&own, 0)?;
            return Ok(Vec::new());
        }
        let mut all = vec![own];
        for peer in 1..self.comm.world_size() {
            let mut length = [0_u64];
            self.comm.recv(&mut length, peer)?;
            let mut text = vec![0_u8; usize::try_from(length[0]).unwrap_or(0)];
            self.comm.recv(&mut text, peer)?;
            all.push(text);
        }
        Ok(all)
    }
}
