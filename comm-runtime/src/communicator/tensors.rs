//! Asynchronous collectives on tensors.
//!
//! # Contract
//!
//! * Every call returns at once. The operation runs after all collectives submitted before it,
//!   also if the handle is dropped, and owns its tensors until it is complete.
//! * `x_async` works in place and yields the tensor that it took; `x_into_async` shares its input,
//!   which nobody can write to, and yields its output. What lies where is as for the blocking
//!   forms, whose elements are those of the tensors in row-major order, whatever their shapes.
//! * Errors that can be known at once are returned at once, and nothing is submitted:
//!   [`ErrorKind::InvalidArgument`](comm_core::ErrorKind) if a tensor is not contiguous host memory
//!   or the arguments make no sense, and [`ErrorKind::Poisoned`](comm_core::ErrorKind) if the
//!   communicator has failed. What goes wrong later is the handle's result.

use std::sync::Arc;

use comm_core::{OperationKind, Rank, ReduceOp, Result, Tensor, TensorMut, Work, WorkBuilder};

use super::Communicator;
use super::collectives::BARRIER;
use super::memory::{Readable, Wish, Writable};
use crate::call::{Active, Call};
use crate::drive::LaneDriver;
use crate::lane::LaneKey;
use crate::operation::Buffers;

impl Communicator {
    /// Reduces all ranks' tensors; the handle yields the tensor with the result.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](comm_core::ErrorKind::InvalidArgument) if the tensor is not contiguous
    /// host memory, [`Unsupported`](comm_core::ErrorKind::Unsupported) if its elements cannot be
    /// reduced, [`Poisoned`](comm_core::ErrorKind::Poisoned) if the communicator has failed; what
    /// goes wrong later is the handle's result.
    pub fn all_reduce_async(&self, tensor: TensorMut, op: ReduceOp) -> Result<Work<TensorMut>> {
        self.submit_in_place(Wish::new(OperationKind::AllReduce).op(op), tensor)
    }

    /// Reduces all ranks' inputs into every rank's output, as [`Communicator::all_reduce_into`] does.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce_async`] and [`Communicator::all_reduce_into`].
    pub fn all_reduce_into_async(
        &self,
        input: &Tensor,
        output: TensorMut,
        op: ReduceOp,
    ) -> Result<Work<TensorMut>> {
        let wish = Wish::new(OperationKind::AllReduce).op(op);
        self.submit_into(wish, Some(input), output)
    }

    /// Gives every rank the contents of the root's tensor; the handle yields the tensor.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce_async`], and if there is no such root.
    pub fn broadcast_async(&self, tensor: TensorMut, root: Rank) -> Result<Work<TensorMut>> {
        self.submit_in_place(Wish::new(OperationKind::Broadcast).root(root), tensor)
    }

    /// A handle that is done when every rank has come to this barrier.
    ///
    /// # Errors
    ///
    /// [`Poisoned`](comm_core::ErrorKind::Poisoned) if the communicator has failed.
    pub fn barrier_async(&self) -> Result<Work<()>> {
        let dangling = std::ptr::NonNull::<u8>::dangling().as_ptr();
        let buffers = Buffers {
            input: dangling.cast_const(),
            output: dangling,
        };
        let plan = self.plan(&BARRIER)?;
        self.submit_work(
            LaneKey::Collective,
            Call::Collective { plan, buffers },
            (),
            |()| (),
        )
    }

    /// Reduces all ranks' tensors into the root's, as [`Communicator::reduce`] does.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce_async`], and if there is no such root.
    pub fn reduce_async(
        &self,
        tensor: TensorMut,
        op: ReduceOp,
        root: Rank,
    ) -> Result<Work<TensorMut>> {
        let wish = Wish::new(OperationKind::Reduce).op(op).root(root);
        self.submit_in_place(wish, tensor)
    }

    /// Reduces all ranks' inputs into the root's output, as [`Communicator::reduce_into`] does.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce_async`] and [`Communicator::reduce_into`].
    pub fn reduce_into_async(
        &self,
        input: &Tensor,
        output: Option<TensorMut>,
        op: ReduceOp,
        root: Rank,
    ) -> Result<Work<Option<TensorMut>>> {
        let wish = Wish::new(OperationKind::Reduce).op(op).root(root);
        self.submit_to_root(wish, input, output)
    }

    /// Gives every rank all ranks' blocks in place, as [`Communicator::all_gather`] does.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce_async`] and [`Communicator::all_gather`].
    pub fn all_gather_async(&self, tensor: TensorMut) -> Result<Work<TensorMut>> {
        self.submit_in_place(Wish::new(OperationKind::AllGather), tensor)
    }

    /// Gives every rank all ranks' inputs, as [`Communicator::all_gather_into`] does.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce_async`] and [`Communicator::all_gather_into`].
    pub fn all_gather_into_async(
        &self,
        input: &Tensor,
        output: TensorMut,
    ) -> Result<Work<TensorMut>> {
        let wish = Wish::new(OperationKind::AllGather);
        self.submit_into(wish, Some(input), output)
    }

    /// Reduces all ranks' tensors and leaves each rank its block of the result in place, as
    /// [`Communicator::reduce_scatter`] does; the rest of the tensor is unspecified.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce_async`] and [`Communicator::reduce_scatter`].
    pub fn reduce_scatter_async(&self, tensor: TensorMut, op: ReduceOp) -> Result<Work<TensorMut>> {
        self.submit_in_place(Wish::new(OperationKind::ReduceScatter).op(op), tensor)
    }

    /// Reduces all ranks' inputs and gives each rank its block of the result, as
    /// [`Communicator::reduce_scatter_into`] does.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce_async`] and [`Communicator::reduce_scatter_into`].
    pub fn reduce_scatter_into_async(
        &self,
        input: &Tensor,
        output: TensorMut,
        op: ReduceOp,
    ) -> Result<Work<TensorMut>> {
        let wish = Wish::new(OperationKind::ReduceScatter).op(op);
        self.submit_into(wish, Some(input), output)
    }

    /// Exchanges a block with every rank in place, as [`Communicator::all_to_all`] does.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce_async`] and [`Communicator::all_to_all`].
    pub fn all_to_all_async(&self, tensor: TensorMut) -> Result<Work<TensorMut>> {
        self.submit_in_place(Wish::new(OperationKind::AllToAll), tensor)
    }

    /// Exchanges a block with every rank, as [`Communicator::all_to_all_into`] does.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce_async`] and [`Communicator::all_to_all_into`].
    pub fn all_to_all_into_async(
        &self,
        input: &Tensor,
        output: TensorMut,
    ) -> Result<Work<TensorMut>> {
        let wish = Wish::new(OperationKind::AllToAll);
        self.submit_into(wish, Some(input), output)
    }

    /// Brings all ranks' blocks into the root's tensor in place, as [`Communicator::gather`] does.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce_async`] and [`Communicator::gather`].
    pub fn gather_async(&self, tensor: TensorMut, root: Rank) -> Result<Work<TensorMut>> {
        self.submit_in_place(Wish::new(OperationKind::Gather).root(root), tensor)
    }

    /// Brings all ranks' inputs into the root's output, as [`Communicator::gather_into`] does.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce_async`] and [`Communicator::gather_into`].
    pub fn gather_into_async(
        &self,
        input: &Tensor,
        output: Option<TensorMut>,
        root: Rank,
    ) -> Result<Work<Option<TensorMut>>> {
        let wish = Wish::new(OperationKind::Gather).root(root);
        self.submit_to_root(wish, input, output)
    }

    /// Gives every rank its block of the root's tensor in place, as [`Communicator::scatter`] does.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce_async`] and [`Communicator::scatter`].
    pub fn scatter_async(&self, tensor: TensorMut, root: Rank) -> Result<Work<TensorMut>> {
        self.submit_in_place(Wish::new(OperationKind::Scatter).root(root), tensor)
    }

    /// Gives every rank its block of the root's input, as [`Communicator::scatter_into`] does.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::all_reduce_async`] and [`Communicator::scatter_into`].
    pub fn scatter_into_async(
        &self,
        input: Option<&Tensor>,
        output: TensorMut,
        root: Rank,
    ) -> Result<Work<TensorMut>> {
        let wish = Wish::new(OperationKind::Scatter).root(root);
        self.submit_into(wish, input, output)
    }

    fn submit_in_place(&self, wish: Wish, mut tensor: TensorMut) -> Result<Work<TensorMut>> {
        let buffer = Writable::tensor(wish.kind, &mut tensor)?;
        let (request, buffers) = self.in_place(wish, buffer)?;
        let plan = self.plan(&request)?;
        let call = Call::Collective { plan, buffers };
        self.submit_work(LaneKey::Collective, call, tensor, |tensor| tensor)
    }

    /// Every rank has an output.
    fn submit_into(
        &self,
        wish: Wish,
        input: Option<&Tensor>,
        mut output: TensorMut,
    ) -> Result<Work<TensorMut>> {
        let call = self.call_into(wish, input, Some(&mut output))?;
        // The clone keeps the memory alive; nobody can write to a shared tensor.
        let owned = (input.cloned(), output);
        self.submit_work(LaneKey::Collective, call, owned, |(_, output)| output)
    }

    /// Only the root has an output.
    fn submit_to_root(
        &self,
        wish: Wish,
        input: &Tensor,
        mut output: Option<TensorMut>,
    ) -> Result<Work<Option<TensorMut>>> {
        let call = self.call_into(wish, Some(input), output.as_mut())?;
        let owned = (input.clone(), output);
        self.submit_work(LaneKey::Collective, call, owned, |(_, output)| output)
    }

    /// The call on these tensors, which the caller keeps alive until it is complete.
    fn call_into(
        &self,
        wish: Wish,
        input: Option<&Tensor>,
        output: Option<&mut TensorMut>,
    ) -> Result<Call> {
        let input = input.map(|input| Readable::tensor(wish.kind, input));
        let output = output.map(|output| Writable::tensor(wish.kind, output));
        let (request, buffers) =
            self.out_of_place(wish, input.transpose()?, output.transpose()?)?;
        let plan = self.plan(&request)?;
        Ok(Call::Collective { plan, buffers })
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
