//! Collectives of a communicator, blocking and asynchronous.

use std::sync::Arc;

use comm_core::{
    DType, Element, Error, ErrorKind, OperationKind, Rank, ReduceOp, Result, Tensor, TensorMut,
    Work, WorkBuilder,
};

use super::Communicator;
use crate::call::{Active, Call};
use crate::drive::LaneDriver;
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

    /// Reduces all ranks' tensors; the handle yields the tensor with the result.
    ///
    /// Returns at once. The operation runs after all collectives submitted before it, also if the
    /// handle is dropped.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the tensor is not contiguous host memory,
    /// [`ErrorKind::Poisoned`] if the communicator has failed; what goes wrong later is the
    /// handle's result.
    pub fn all_reduce_async(&self, tensor: TensorMut, op: ReduceOp) -> Result<Work<TensorMut>> {
        self.tensor_collective(OperationKind::AllReduce, Some(op), 0, tensor)
    }

    /// Gives every rank the contents of the root's tensor; the handle yields the tensor.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce_async`]; [`ErrorKind::InvalidArgument`] if there is no
    /// such root.
    pub fn broadcast_async(&self, tensor: TensorMut, root: Rank) -> Result<Work<TensorMut>> {
        self.tensor_collective(OperationKind::Broadcast, None, root, tensor)
    }

    /// A handle that is done when every rank has come to this barrier.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Poisoned`] if the communicator has failed.
    pub fn barrier_async(&self) -> Result<Work<()>> {
        let dangling = std::ptr::NonNull::<u8>::dangling().as_ptr();
        let buffers = Buffers {
            input: dangling.cast_const(),
            output: dangling,
        };
        let plan = self.core.planner.plan(&BARRIER)?;
        self.submit_work(
            LaneKey::Collective,
            Call::Collective { plan, buffers },
            (),
            |()| (),
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

    #[inline]
    fn collective(&self, request: &Request, buffers: Buffers) -> Result<()> {
        let plan = self.core.planner.plan(request)?;
        self.core
            .run_blocking(LaneKey::Collective, Call::Collective { plan, buffers })
    }

    fn tensor_collective(
        &self,
        kind: OperationKind,
        op: Option<ReduceOp>,
        root: Rank,
        mut tensor: TensorMut,
    ) -> Result<Work<TensorMut>> {
        check_tensor(
            kind.as_str(),
            tensor.is_contiguous(),
            tensor.memory_kind().is_host(),
        )?;
        let request = Request {
            kind,
            dtype: Some(tensor.dtype()),
            op,
            root,
            count: tensor.element_count(),
            in_place: true,
        };
        let output = tensor.as_mut_ptr();
        let buffers = Buffers {
            input: output.cast_const(),
            output,
        };
        let plan = self.core.planner.plan(&request)?;
        self.submit_work(
            LaneKey::Collective,
            Call::Collective { plan, buffers },
            tensor,
            |tensor| tensor,
        )
    }

    /// Queues a call. `owned` holds the memory of the call's buffers until the operation is
    /// complete; `finish` turns it into what the handle yields.
    pub(super) fn submit_work<O: Send + 'static, T: Send + 'static>(
        &self,
        key: LaneKey,
        call: Call,
        owned: O,
        finish: impl FnOnce(O) -> T + Send + 'static,
    ) -> Result<Work<T>> {
        let lane = self
            .core
            .lane(key)
            .ok_or_else(|| super::no_such_rank(key, self.core.world_size()))?;
        let driver = Arc::new(LaneDriver {
            core: Arc::clone(&self.core),
            key,
        });
        let (work, completer) = WorkBuilder::new().driver(driver).channel();
        let active = Active::new(call, self.core.operation_timeout);
        self.core.submit(lane, active, move |result| {
            completer.complete(result.map(|()| finish(owned)));
        })?;
        Ok(work)
    }
}

const BARRIER: Request = Request {
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

/// Whether a tensor's memory can be handed to an operation.
pub(super) fn check_tensor(operation: &'static str, contiguous: bool, host: bool) -> Result<()> {
    let message = match (host, contiguous) {
        (true, true) => return Ok(()),
        (false, _) => "the tensor lies in device memory, which needs a device transport",
        (true, false) => "the tensor must be contiguous; pack() makes a contiguous copy",
    };
    Err(Error::new(ErrorKind::InvalidArgument, message).with("operation", operation))
}

/// The pointer and properties of a tensor that is only read.
pub(super) fn readable(tensor: &Tensor) -> (DType, usize, *const u8) {
    (tensor.dtype(), tensor.element_count(), tensor.as_ptr())
}
