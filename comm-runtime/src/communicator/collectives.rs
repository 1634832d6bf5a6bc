//! Blocking collectives on one buffer that all ranks have alike: all-reduce, broadcast, barrier.
//!
//! Those that deal in blocks, or end at a root, are in [`blocks`](super::blocks), asynchronous forms
//! in [`tensors`](super::tensors).

use std::sync::Arc;

use comm_core::{Element, Error, ErrorKind, OperationKind, Rank, ReduceOp, Result};

use super::Communicator;
use crate::call::Call;
use crate::lane::LaneKey;
use crate::operation::Buffers;
use crate::plan::{Plan, Request};

impl Communicator {
    /// Reduces all ranks' buffers element by element; every rank gets the result in `buffer`.
    ///
    /// Blocks until the result is there. All ranks pass the same number of elements (which may be
    /// 0), element type and operator.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Mismatch`] if the ranks' calls do not belong together, and the communicator's
    /// failure otherwise; the contents of `buffer` are then unspecified.
    #[inline]
    pub fn all_reduce<T: Element>(&self, buffer: &mut [T], op: ReduceOp) -> Result<()> {
        let request = self.request::<T>(OperationKind::AllReduce, Some(op), 0, buffer.len(), true);
        let output = buffer.as_mut_ptr().cast::<u8>();
        self.collective(
            &request,
            Buffers {
                input: output.cast_const(),
                output,
            },
        )
    }

    /// Like [`Communicator::all_reduce`], from `input` to `output`, which are equally long.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce`]; [`ErrorKind::InvalidArgument`] if the lengths differ.
    pub fn all_reduce_into<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
    ) -> Result<()> {
        equally_long("all_reduce_into", input.len(), output.len())?;
        let request = self.request::<T>(OperationKind::AllReduce, Some(op), 0, input.len(), false);
        self.collective(
            &request,
            Buffers {
                input: input.as_ptr().cast(),
                output: output.as_mut_ptr().cast(),
            },
        )
    }

    /// Gives every rank the contents of the root's `buffer`.
    ///
    /// Blocks until the contents are there; on the root until its buffer is reusable. All ranks
    /// pass the same number of elements (which may be 0), element type and root.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce`]; [`ErrorKind::InvalidArgument`] if there is no such root.
    pub fn broadcast<T: Element>(&self, buffer: &mut [T], root: Rank) -> Result<()> {
        let request = self.request::<T>(OperationKind::Broadcast, None, root, buffer.len(), true);
        let output = buffer.as_mut_ptr().cast::<u8>();
        self.collective(
            &request,
            Buffers {
                input: output.cast_const(),
                output,
            },
        )
    }

    /// Like [`Communicator::broadcast`], from the root's `input` to every rank's `output`.
    ///
    /// Only the root's `input` is read; the others pass a slice of the same length or an empty one.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::broadcast`]; [`ErrorKind::InvalidArgument`] if the root's slices
    /// differ in length.
    pub fn broadcast_into<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        root: Rank,
    ) -> Result<()> {
        if self.rank() == root || !input.is_empty() {
            equally_long("broadcast_into", input.len(), output.len())?;
        }
        let request = self.request::<T>(OperationKind::Broadcast, None, root, output.len(), false);
        self.collective(
            &request,
            Buffers {
                input: input.as_ptr().cast(),
                output: output.as_mut_ptr().cast(),
            },
        )
    }

    /// Returns when every rank has called it.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce`].
    pub fn barrier(&self) -> Result<()> {
        let dangling = std::ptr::NonNull::<u8>::dangling().as_ptr();
        self.collective(
            &BARRIER,
            Buffers {
                input: dangling.cast_const(),
                output: dangling,
            },
        )
    }

    /// How a call with these properties is carried out.
    ///
    /// # Errors
    ///
    /// If no algorithm carries it out.
    pub fn plan(&self, request: &Request) -> Result<Arc<Plan>> {
        self.core.planner.plan(request)
    }

    #[inline]
    const fn request<T: Element>(
        &self,
        kind: OperationKind,
        op: Option<ReduceOp>,
        root: Rank,
        count: usize,
        in_place: bool,
    ) -> Request {
        Request {
            kind,
            dtype: Some(T::DTYPE),
            op,
            root,
            count,
            in_place,
        }
    }

    /// Carries a call out on the calling thread.
    #[inline]
    pub(super) fn collective(&self, request: &Request, buffers: Buffers) -> Result<()> {
        let plan = self.core.planner.cached(request)?;
        if let Some(result) = self.core.try_at_once(&plan, buffers) {
            return result;
        }
        let plan = Arc::clone(&plan);
        self.core
            .run_blocking(LaneKey::Collective, Call::Collective { plan, buffers })
    }
}

pub(super) const BARRIER: Request = Request {
    kind: OperationKind::Barrier,
    dtype: None,
    op: None,
    root: 0,
    count: 0,
    in_place: true,
};

fn equally_long(operation: &'static str, input: usize, output: usize) -> Result<()> {
    if input == output {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidArgument,
        "input and output must be equally long",
    )
    .with("operation", operation)
    .with("input", input)
    .with("output", output))
}
