//! What can be measured: one module per operation, all behind [`Operation`].
//!
//! # Contract
//!
//! * [`Calls`] is an operation that can be called again and again on one communicator: it prepares
//!   its buffers for a case, makes calls back to back, and makes single calls of which it checks
//!   the result. How many calls are made when is decided by [`batches`](crate::batches).
//! * [`init`] is the operation that is not: each call makes a communicator.
//! * All ranks do the same: they prepare, call and check in the same order with equal arguments.

mod all_reduce;
mod bandwidth;
mod broadcast;
pub(crate) mod init;
mod pingpong;

use std::fmt;

use comm_api::{
    Communicator, DType, Error, ErrorKind, OperationKind, ReduceOp, Request, Result, TensorMut,
};
use half::{bf16, f16};
use serde::{Deserialize, Serialize};

use crate::number::Number;

/// An operation of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Operation {
    /// Every rank gets the reduction of all ranks' buffers.
    AllReduce,
    /// Every rank gets the buffer of rank 0. Calls follow each other without a barrier, so what is
    /// measured is a pipeline, as in nccl-tests.
    Broadcast,
    /// A message from rank 0 to the last rank and one back; the time is half of the round trip.
    Pingpong,
    /// A stream of messages from rank 0 to the last rank, which acknowledges the last of each
    /// batch.
    Bandwidth,
    /// From the start of a communicator to the end of its first all-reduce.
    Init,
}

impl Operation {
    /// Every operation, in the order in which they are measured by default.
    pub const ALL: [Self; 5] = [
        Self::AllReduce,
        Self::Broadcast,
        Self::Pingpong,
        Self::Bandwidth,
        Self::Init,
    ];

    /// The name as printed and as accepted by [`Operation::from_str`](std::str::FromStr).
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::Broadcast => "broadcast",
            Self::Pingpong => "pingpong",
            Self::Bandwidth => "bandwidth",
            Self::Init => "init",
        }
    }

    /// The smallest number of ranks with which it can be measured.
    #[must_use]
    pub const fn least_ranks(self) -> u32 {
        match self {
            Self::Pingpong | Self::Bandwidth => 2,
            _ => 1,
        }
    }

    /// Whether it reduces, so that a reduction operator belongs to it.
    #[must_use]
    pub const fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::Init)
    }

    /// Whether it is a collective, which can work in place and out of place.
    #[must_use]
    pub const fn is_collective(self) -> bool {
        matches!(self, Self::AllReduce | Self::Broadcast)
    }

    /// The ratio of the bandwidth that the slowest link must have to the size divided by the time:
    /// the "bus bandwidth" of nccl-tests, which does not depend on the number of ranks.
    ///
    /// An all-reduce has to move 2(n-1)/n of the buffer through each rank's link (Patarasuk and
    /// Yuan 2009); the other operations move the buffer once.
    #[must_use]
    pub fn bus_factor(self, ranks: u32) -> f64 {
        match self {
            Self::AllReduce => {
                let ranks = f64::from(ranks.max(1));
                2.0 * (ranks - 1.0) / ranks
            }
            Self::Broadcast | Self::Pingpong | Self::Bandwidth => 1.0,
            Self::Init => 0.0,
        }
    }

    /// Which part of a measured call counts as its time.
    pub(crate) const fn share(self) -> f64 {
        match self {
            Self::Pingpong => 0.5,
            _ => 1.0,
        }
    }

    /// Whether the clock of this rank counts: of collectives the slowest rank's does, of messages
    /// that of the rank that starts and is answered.
    pub(crate) const fn is_timed_on(self, rank: u32) -> bool {
        match self {
            Self::Pingpong | Self::Bandwidth => rank == 0,
            _ => true,
        }
    }

    /// The least number of calls in one batch.
    pub(crate) fn least_calls(self, bytes: usize) -> u64 {
        match self {
            // A stream, not one message and its acknowledgement; but no more than 256 MiB of it.
            Self::Bandwidth => ((256 << 20) / bytes.max(1) as u64).clamp(4, 16),
            _ => 1,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Operation {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|operation| operation.as_str() == name)
            .ok_or_else(|| {
                let names: Vec<_> = Self::ALL
                    .iter()
                    .map(|operation| operation.as_str())
                    .collect();
                let message = format!("unknown operation; use one of {} or all", names.join(", "));
                Error::new(ErrorKind::InvalidArgument, message).with("op", name)
            })
    }
}

/// One size in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    /// Number of elements.
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

/// The repeatable operation of this name with buffers for up to `largest_count` elements.
///
/// # Errors
///
/// When there is no memory, or `dtype` cannot be reduced.
pub(crate) fn repeatable<'a>(
    operation: Operation,
    comm: &'a Communicator,
    dtype: DType,
    op: Option<ReduceOp>,
    largest_count: usize,
) -> Result<Box<dyn Calls + 'a>> {
    match dtype {
        DType::F32 => typed::<f32>(operation, comm, op, largest_count),
        DType::F64 => typed::<f64>(operation, comm, op, largest_count),
        DType::F16 => typed::<f16>(operation, comm, op, largest_count),
        DType::Bf16 => typed::<bf16>(operation, comm, op, largest_count),
        DType::I8 => typed::<i8>(operation, comm, op, largest_count),
        DType::U8 => typed::<u8>(operation, comm, op, largest_count),
        DType::I32 => typed::<i32>(operation, comm, op, largest_count),
        DType::U32 => typed::<u32>(operation, comm, op, largest_count),
        DType::I64 => typed::<i64>(operation, comm, op, largest_count),
        DType::U64 => typed::<u64>(operation, comm, op, largest_count),
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
    largest_count: usize,
) -> Result<Box<dyn Calls + 'a>> {
    let buffers = Buffers::<T>::new(largest_count)?;
    Ok(match operation {
        Operation::AllReduce => {
            let op = op.unwrap_or(ReduceOp::Sum);
            Box::new(all_reduce::AllReduce::new(comm, op, buffers))
        }
        Operation::Broadcast => Box::new(broadcast::Broadcast::new(comm, buffers)),
        Operation::Pingpong => Box::new(pingpong::Pingpong::new(comm, buffers)),
        Operation::Bandwidth => Box::new(bandwidth::Bandwidth::new(comm, buffers)),
        Operation::Init => {
            let message = "init makes a communicator with each call";
            return Err(Error::new(ErrorKind::Internal, message));
        }
    })
}

/// What the plan of a collective says.
fn route<T: Number>(
    comm: &Communicator,
    kind: OperationKind,
    op: Option<ReduceOp>,
    case: Case,
) -> Result<Route> {
    let plan = comm.plan(&Request {
        kind,
        dtype: Some(T::DTYPE),
        op,
        root: 0,
        count: case.count,
        in_place: case.in_place,
    })?;
    Ok(Route {
        algorithm: plan.algorithm().to_string(),
        channels: plan.channel_count(),
    })
}

/// Two buffers and which part of them is in use.
#[derive(Debug)]
struct Buffers<T> {
    input: TensorMut,
    output: TensorMut,
    case: Case,
    element: std::marker::PhantomData<T>,
}

impl<T: Number> Buffers<T> {
    fn new(largest_count: usize) -> Result<Self> {
        Ok(Self {
            input: TensorMut::zeros(T::DTYPE, &[largest_count])?,
            output: TensorMut::zeros(T::DTYPE, &[largest_count])?,
            case: Case {
                count: 0,
                in_place: false,
            },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_unknown_ones_are_listed() {
        for operation in Operation::ALL {
            assert_eq!(operation.as_str().parse::<Operation>().unwrap(), operation);
        }
        let error = "allreduce".parse::<Operation>().unwrap_err().to_string();
        assert!(
            error.contains("all_reduce") && error.contains("pingpong"),
            "{error}"
        );
    }

    #[test]
    fn bus_bandwidth_is_that_of_the_slowest_link() {
        for (ranks, factor) in [(1, 0.0), (2, 1.0), (4, 1.5), (8, 1.75)] {
            assert_eq!(Operation::AllReduce.bus_factor(ranks), factor);
            assert_eq!(Operation::Broadcast.bus_factor(ranks), 1.0);
        }
        assert_eq!(Operation::Pingpong.bus_factor(2), 1.0);
    }

    #[test]
    fn a_stream_has_several_messages_but_not_too_many_bytes() {
        assert_eq!(Operation::Bandwidth.least_calls(0), 16);
        assert_eq!(Operation::Bandwidth.least_calls(64 << 20), 4);
        assert_eq!(Operation::AllReduce.least_calls(8), 1);
    }
}
