//! What can be measured: one module per operation, all behind [`Operation`].
//!
//! # Contract
//!
//! * [`Calls`] is an operation that can be called again and again on one communicator: it prepares
//!   its buffers for a case, makes calls back to back, and makes single calls of which it checks
//!   the result. How many calls are made when is decided by [`batches`](crate::batches).
//! * [`init`] is the operation that is not: each call makes a communicator.
//! * All ranks do the same: they prepare, call and check in the same order with equal arguments.

mod all_gather;
mod all_reduce;
mod all_to_all;
mod bandwidth;
mod blocks;
mod broadcast;
mod collective;
mod gather;
pub(crate) mod init;
mod messages;
mod name;
mod pingpong;
mod reduce;
mod reduce_scatter;
mod scatter;

use comm_api::{
    Communicator, DType, Error, ErrorKind, OperationKind, ReduceOp, Request, Result, TensorMut,
};
use half::{bf16, f16};

use crate::number::Number;

use all_gather::AllGather;
use all_reduce::AllReduce;
use all_to_all::AllToAll;
use broadcast::Broadcast;
use collective::{Collective, Kind};
use gather::Gather;
use messages::{Form, Messages};
pub use name::Operation;
use reduce::Reduce;
use reduce_scatter::ReduceScatter;
use scatter::Scatter;

/// One size in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    /// Number of elements; of all blocks together where a buffer holds a block for each rank.
    pub(crate) count: usize,
    /// Whether input and output are one buffer.
    pub(crate) in_place: bool,
}

/// How the library carries out a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) algorithm: String,
    pub(crate) channels: usize,
}

/// An operation that can be repeated on one communicator; see the [module](self).
pub(crate) trait Calls {
    /// Fills the buffers for [`Calls::run`] with values that any number of calls leaves as they
    /// are, and touches all of their pages.
    fn prepare(&mut self, case: Case) -> Result<Route>;

    /// Makes `calls` calls of the prepared case back to back; returns when this rank is done.
    fn run(&mut self, calls: u64) -> Result<()>;

    /// Makes one call of the prepared case with the values of `round` and returns how many elements
    /// of this rank are wrong. The case has to be prepared again before it is timed.
    fn check(&mut self, round: u64) -> Result<u64>;
}

/// What buffers are made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BufferOptions {
    /// The most elements of one buffer.
    pub(crate) largest_count: usize,
    /// Whether they come from [`Communicator::mem_alloc`].
    pub(crate) mem_alloc: bool,
    /// Whether collectives have their input written before each call and their result read after it.
    pub(crate) fresh: bool,
}

/// The repeatable operation of this name with its buffers.
///
/// # Errors
///
/// When there is no memory, or `dtype` cannot be reduced.
pub(crate) fn repeatable<'a>(
    operation: Operation,
    comm: &'a Communicator,
    dtype: DType,
    op: Option<ReduceOp>,
    options: BufferOptions,
) -> Result<Box<dyn Calls + 'a>> {
    match dtype {
        DType::F32 => typed::<f32>(operation, comm, op, options),
        DType::F64 => typed::<f64>(operation, comm, op, options),
        DType::F16 => typed::<f16>(operation, comm, op, options),
        DType::Bf16 => typed::<bf16>(operation, comm, op, options),
        DType::I8 => typed::<i8>(operation, comm, op, options),
        DType::U8 => typed::<u8>(operation, comm, op, options),
        DType::I32 => typed::<i32>(operation, comm, op, options),
        DType::U32 => typed::<u32>(operation, comm, op, options),
        DType::I64 => typed::<i64>(operation, comm, op, options),
        DType::U64 => typed::<u64>(operation, comm, op, options),
        other => Err(Error::new(
            ErrorKind::Unsupported,
            "the benchmark measures the types that can be reduced: f32, f64, f16, bf16, i8, u8, \
             i32, u32, i64, u64",
        )
        .with("dtype", other)),
    }
}

fn typed<'a, T: Number>(
    operation: Operation,
    comm: &'a Communicator,
    op: Option<ReduceOp>,
    options: BufferOptions,
) -> Result<Box<dyn Calls + 'a>> {
    let buffers = Buffers::<T>::new(comm, options)?;
    let op = op.unwrap_or(ReduceOp::Sum);
    Ok(match operation {
        Operation::AllReduce => collective::<T, AllReduce>(comm, op, buffers),
        Operation::Broadcast => collective::<T, Broadcast>(comm, op, buffers),
        Operation::Reduce => collective::<T, Reduce>(comm, op, buffers),
        Operation::AllGather => collective::<T, AllGather>(comm, op, buffers),
        Operation::ReduceScatter => collective::<T, ReduceScatter>(comm, op, buffers),
        Operation::AllToAll => collective::<T, AllToAll>(comm, op, buffers),
        Operation::Gather => collective::<T, Gather>(comm, op, buffers),
        Operation::Scatter => collective::<T, Scatter>(comm, op, buffers),
        Operation::Pingpong => Box::new(pingpong::Pingpong::new(comm, buffers)),
        Operation::Bandwidth => Box::new(bandwidth::Bandwidth::new(comm, buffers)),
        Operation::Object => Box::new(Messages::new(comm, buffers, Form::Object, 1)?),
        Operation::Object8 => Box::new(Messages::new(comm, buffers, Form::Object, 8)?),
        Operation::Tensor => Box::new(Messages::new(comm, buffers, Form::Tensor, 1)?),
        Operation::Tensor8 => Box::new(Messages::new(comm, buffers, Form::Tensor, 8)?),
        Operation::Init => {
            let message = "init makes a communicator with each call";
            return Err(Error::new(ErrorKind::Internal, message));
        }
    })
}

fn collective<'a, T: Number, K: Kind + 'a>(
    comm: &'a Communicator,
    op: ReduceOp,
    buffers: Buffers<T>,
) -> Box<dyn Calls + 'a> {
    Box::new(Collective::<T, K>::new(comm, op, buffers))
}

/// Two buffers and which part of them is in use.
#[derive(Debug)]
struct Buffers<T> {
    input: TensorMut,
    output: TensorMut,
    case: Case,
    fresh: bool,
    element: std::marker::PhantomData<T>,
}

impl<T: Number> Buffers<T> {
    fn new(comm: &Communicator, options: BufferOptions) -> Result<Self> {
        let shape = [options.largest_count];
        let allocate = || {
            if options.mem_alloc {
                comm.mem_alloc(T::DTYPE, &shape)
            } else {
                TensorMut::zeros(T::DTYPE, &shape)
            }
        };
        Ok(Self {
            input: allocate()?,
            output: allocate()?,
            case: Case {
                count: 0,
                in_place: false,
            },
            fresh: options.fresh,
            element: std::marker::PhantomData,
        })
    }

    /// The parts of input and output that are in use.
    fn both(&mut self) -> Result<(&[T], &mut [T])> {
        let count = self.case.count;
        let input = &self.input.as_slice::<T>()?[..count];
        let output = &mut self.output.as_mut_slice::<T>()?[..count];
        Ok((input, output))
    }

    /// The same, for filling both.
    fn both_mut(&mut self) -> Result<(&mut [T], &mut [T])> {
        let count = self.case.count;
        let input = &mut self.input.as_mut_slice::<T>()?[..count];
        let output = &mut self.output.as_mut_slice::<T>()?[..count];
        Ok((input, output))
    }

    /// Takes a new case into use and fills both buffers with `value`.
    fn start(&mut self, case: Case, value: T) -> Result<()> {
        self.case = case;
        let (input, output) = self.both_mut()?;
        input.fill(value);
        output.fill(value);
        Ok(())
    }
}

/// What the plan of a collective says.
fn route<T: Number>(
    comm: &Communicator,
    kind: OperationKind,
    op: Option<ReduceOp>,
    case: Case,
) -> Result<Route> {
    let blocks = match kind {
        OperationKind::AllReduce | OperationKind::Broadcast | OperationKind::Reduce => 1,
        _ => comm.world_size() as usize,
    };
    let plan = comm.plan(&Request {
        kind,
        dtype: Some(T::DTYPE),
        op,
        root: 0,
        count: case.count / blocks,
        in_place: case.in_place,
    })?;
    Ok(Route {
        algorithm: plan.algorithm().to_string(),
        channels: plan.channel_count(),
    })
}
