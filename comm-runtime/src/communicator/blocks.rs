//! Blocking collectives that deal in blocks or end at a root.
//!
//! # Contract
//!
//! * In a buffer that holds a block for each rank, block `r` is that of rank `r`, and all blocks
//!   are equally long (which may be 0 elements).
//! * `x` works in place, on the larger of the two buffers; the smaller one is this rank's block in
//!   it. `x_into` goes from an input, which is not changed, to an output. Ranks may mix both.
//! * Only buffers that a rank needs are passed: `None` elsewhere, and `Some` where it is not used
//!   is an error, so nobody looks for a result where there is none.
//! * All ranks pass the same block length, element type, operator and root. Lengths that do not
//!   belong together on one rank are refused before anything is sent; what differs between ranks
//!   is a [`Mismatch`](comm_core::ErrorKind::Mismatch) on all of them.
//! * Each call blocks until this rank's part is done, which does not mean that other ranks are.
//! * An averaging operator sums first and divides once.

use comm_core::{Element, OperationKind, Rank, ReduceOp, Result};

use super::Communicator;
use super::memory::{Readable, Wish, Writable};

impl Communicator {
    /// Reduces all ranks' buffers element by element into the root's `buffer`.
    ///
    /// The other ranks' buffers are left as they are.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce`];
    /// [`ErrorKind::InvalidArgument`](comm_core::ErrorKind) if there is no such root.
    pub fn reduce<T: Element>(&self, buffer: &mut [T], op: ReduceOp, root: Rank) -> Result<()> {
        let wish = Wish::new(OperationKind::Reduce).op(op).root(root);
        self.run_in_place(wish, buffer)
    }

    /// Reduces all ranks' `input` element by element into the root's `output`.
    ///
    /// The root passes `Some` output of the input's length, the others `None`.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::reduce`]; [`ErrorKind::InvalidArgument`](comm_core::ErrorKind) if the
    /// lengths differ, the root's output is missing, or another rank passes one.
    pub fn reduce_into<T: Element>(
        &self,
        input: &[T],
        output: Option<&mut [T]>,
        op: ReduceOp,
        root: Rank,
    ) -> Result<()> {
        let wish = Wish::new(OperationKind::Reduce).op(op).root(root);
        self.run_into(wish, Some(input), output)
    }

    /// Gives every rank all ranks' blocks, in place.
    ///
    /// `buffer` holds a block for each rank, of which this rank has filled its own (elements
    /// `rank * count` to `(rank + 1) * count`); the others are overwritten.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce`]; [`ErrorKind::InvalidArgument`](comm_core::ErrorKind) if
    /// the length is no multiple of the number of ranks.
    pub fn all_gather<T: Element>(&self, buffer: &mut [T]) -> Result<()> {
        self.run_in_place(Wish::new(OperationKind::AllGather), buffer)
    }

    /// Gives every rank all ranks' `input`, one after the other in rank order.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce`]; [`ErrorKind::InvalidArgument`](comm_core::ErrorKind) if
    /// `output` does not hold exactly one input for each rank.
    pub fn all_gather_into<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        self.run_into(
            Wish::new(OperationKind::AllGather),
            Some(input),
            Some(output),
        )
    }

    /// Reduces all ranks' buffers element by element and leaves each rank its block of the result.
    ///
    /// `buffer` holds a block for each rank. Returns this rank's block (elements `rank * count` to
    /// `(rank + 1) * count`); the contents of the rest of the buffer are unspecified.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce`]; [`ErrorKind::InvalidArgument`](comm_core::ErrorKind) if
    /// the length is no multiple of the number of ranks.
    pub fn reduce_scatter<'a, T: Element>(
        &self,
        buffer: &'a mut [T],
        op: ReduceOp,
    ) -> Result<&'a mut [T]> {
        let wish = Wish::new(OperationKind::ReduceScatter).op(op);
        self.run_in_place(wish, buffer)?;
        Ok(self.own_block(buffer))
    }

    /// Reduces all ranks' `input` element by element and gives each rank its block of the result.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce`]; [`ErrorKind::InvalidArgument`](comm_core::ErrorKind) if
    /// `input` does not hold exactly one output for each rank.
    pub fn reduce_scatter_into<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
    ) -> Result<()> {
        let wish = Wish::new(OperationKind::ReduceScatter).op(op);
        self.run_into(wish, Some(input), Some(output))
    }

    /// Sends block `r` of `buffer` to rank `r`, for all ranks, and replaces it by what rank `r`
    /// sends to this one.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce`]; [`ErrorKind::InvalidArgument`](comm_core::ErrorKind) if
    /// the length is no multiple of the number of ranks.
    pub fn all_to_all<T: Element>(&self, buffer: &mut [T]) -> Result<()> {
        self.run_in_place(Wish::new(OperationKind::AllToAll), buffer)
    }

    /// Sends block `r` of `input` to rank `r`, for all ranks; block `r` of `output` is what rank `r`
    /// sends to this one.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce`]; [`ErrorKind::InvalidArgument`](comm_core::ErrorKind) if
    /// the lengths differ or are no multiple of the number of ranks.
    pub fn all_to_all_into<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        self.run_into(
            Wish::new(OperationKind::AllToAll),
            Some(input),
            Some(output),
        )
    }

    /// Brings all ranks' blocks into the root's `buffer`.
    ///
    /// On the root `buffer` holds a block for each rank, of which it has filled its own (elements
    /// `root * count` to `(root + 1) * count`). On the other ranks it is the rank's block, which is
    /// left as it is.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce`]; [`ErrorKind::InvalidArgument`](comm_core::ErrorKind) if
    /// there is no such root, or the root's length is no multiple of the number of ranks.
    pub fn gather<T: Element>(&self, buffer: &mut [T], root: Rank) -> Result<()> {
        self.run_in_place(Wish::new(OperationKind::Gather).root(root), buffer)
    }

    /// Brings all ranks' `input` into the root's `output`, one after the other in rank order.
    ///
    /// The root passes `Some` output with a block of the input's length for each rank, the others
    /// `None`.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce`]; [`ErrorKind::InvalidArgument`](comm_core::ErrorKind) if
    /// there is no such root, the root's output is missing or has another length, or another rank
    /// passes one.
    pub fn gather_into<T: Element>(
        &self,
        input: &[T],
        output: Option<&mut [T]>,
        root: Rank,
    ) -> Result<()> {
        let wish = Wish::new(OperationKind::Gather).root(root);
        self.run_into(wish, Some(input), output)
    }

    /// Gives every rank its block of the root's `buffer`.
    ///
    /// On the root `buffer` holds a block for each rank and is left as it is; on the other ranks it
    /// is overwritten with the rank's block. Returns this rank's block: all of the buffer, and on
    /// the root the elements `root * count` to `(root + 1) * count`.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce`]; [`ErrorKind::InvalidArgument`](comm_core::ErrorKind) if
    /// there is no such root, or the root's length is no multiple of the number of ranks.
    pub fn scatter<'a, T: Element>(&self, buffer: &'a mut [T], root: Rank) -> Result<&'a mut [T]> {
        self.run_in_place(Wish::new(OperationKind::Scatter).root(root), buffer)?;
        Ok(if self.rank() == root {
            self.own_block(buffer)
        } else {
            buffer
        })
    }

    /// Gives every rank its block of the root's `input` in `output`.
    ///
    /// The root passes `Some` input with a block of the output's length for each rank, the others
    /// `None`.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce`]; [`ErrorKind::InvalidArgument`](comm_core::ErrorKind) if
    /// there is no such root, the root's input is missing or has another length, or another rank
    /// passes one.
    pub fn scatter_into<T: Element>(
        &self,
        input: Option<&[T]>,
        output: &mut [T],
        root: Rank,
    ) -> Result<()> {
        let wish = Wish::new(OperationKind::Scatter).root(root);
        self.run_into(wish, input, Some(output))
    }

    fn run_in_place<T: Element>(&self, wish: Wish, buffer: &mut [T]) -> Result<()> {
        let (request, buffers) = self.in_place(wish, Writable::from(buffer))?;
        self.collective(&request, buffers)
    }

    fn run_into<T: Element>(
        &self,
        wish: Wish,
        input: Option<&[T]>,
        output: Option<&mut [T]>,
    ) -> Result<()> {
        let (input, output) = (input.map(Readable::from), output.map(Writable::from));
        let (request, buffers) = self.out_of_place(wish, input, output)?;
        self.collective(&request, buffers)
    }

    /// This rank's block of a buffer that holds one for each rank.
    fn own_block<'a, T>(&self, buffer: &'a mut [T]) -> &'a mut [T] {
        let count = buffer.len() / self.world_size() as usize;
        let start = self.rank() as usize * count;
        &mut buffer[start..start + count]
    }
}
