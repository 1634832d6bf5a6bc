//! The names of the operations, and what tells them apart.

use std::fmt;

use comm_api::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

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
    /// Rank 0 gets the reduction of all ranks' buffers; a pipeline like broadcast.
    Reduce,
    /// Every rank gets all ranks' blocks.
    AllGather,
    /// Every rank gets its block of the reduction of all ranks' buffers.
    ReduceScatter,
    /// Every rank exchanges a block with every rank.
    AllToAll,
    /// Rank 0 gets all ranks' blocks.
    Gather,
    /// Every rank gets its block of the buffer of rank 0.
    Scatter,
    /// A message from rank 0 to the last rank and one back; the time is half of the round trip.
    Pingpong,
    /// A stream of messages from rank 0 to the last rank, which acknowledges the last of each
    /// batch.
    Bandwidth,
    /// An object from rank 0 to the last rank and one back, as messages of a group; the time is half
    /// of the round trip. Up to 256 bytes it is plain, beyond that it is a dictionary of 12 tensors.
    Object,
    /// A stream of such objects from rank 0 to the last rank, of which 8 are in flight.
    Object8,
    /// A tensor from rank 0 to the last rank and one back, with `send_tensor` and `recv_tensor`; the
    /// time is half of the round trip.
    Tensor,
    /// A stream of such tensors from rank 0 to the last rank, of which 8 are in flight.
    Tensor8,
    /// From the start of a communicator to the end of its first all-reduce.
    Init,
}

impl Operation {
    /// Every operation, in the order in which they are measured by default.
    pub const ALL: [Self; 15] = [
        Self::AllReduce,
        Self::Broadcast,
        Self::Reduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::AllToAll,
        Self::Gather,
        Self::Scatter,
        Self::Pingpong,
        Self::Bandwidth,
        Self::Object,
        Self::Object8,
        Self::Tensor,
        Self::Tensor8,
        Self::Init,
    ];

    /// The name as printed and as accepted by [`Operation::from_str`](std::str::FromStr).
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllToAll => "all_to_all",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::Pingpong => "pingpong",
            Self::Bandwidth => "bandwidth",
            Self::Object => "object",
            Self::Object8 => "object8",
            Self::Tensor => "tensor",
            Self::Tensor8 => "tensor8",
            Self::Init => "init",
        }
    }

    /// The smallest number of ranks with which it can be measured.
    #[must_use]
    pub const fn least_ranks(self) -> u32 {
        if self.is_message() { 2 } else { 1 }
    }

    /// Whether it moves messages from one rank to another.
    #[must_use]
    pub const fn is_message(self) -> bool {
        matches!(
            self,
            Self::Pingpong
                | Self::Bandwidth
                | Self::Object
                | Self::Object8
                | Self::Tensor
                | Self::Tensor8
        )
    }

    /// Whether it reduces, so that a reduction operator belongs to it.
    #[must_use]
    pub const fn reduces(self) -> bool {
        matches!(
            self,
            Self::AllReduce | Self::Reduce | Self::ReduceScatter | Self::Init
        )
    }

    /// Whether it is a collective, which can work in place and out of place.
    #[must_use]
    pub const fn is_collective(self) -> bool {
        !self.is_message() && !matches!(self, Self::Init)
    }

    /// Whether a buffer holds a block for each rank, so that its length is a multiple of their
    /// number.
    #[must_use]
    pub const fn deals_in_blocks(self) -> bool {
        matches!(
            self,
            Self::AllGather | Self::ReduceScatter | Self::AllToAll | Self::Gather | Self::Scatter
        )
    }

    /// The ratio of the bandwidth that the slowest link must have to the size divided by the time:
    /// the "bus bandwidth" of nccl-tests, which does not depend on the number of ranks.
    ///
    /// An all-reduce has to move 2(n-1)/n of the buffer through each rank's link (Patarasuk and
    /// Yuan 2009); where the buffer holds a block for each rank, all but the own block have to move
    /// through some link; the other operations move the buffer once.
    #[must_use]
    pub fn bus_factor(self, ranks: u32) -> f64 {
        let ranks = f64::from(ranks.max(1));
        match self {
            Self::AllReduce => 2.0 * (ranks - 1.0) / ranks,
            Self::AllGather
            | Self::ReduceScatter
            | Self::AllToAll
            | Self::Gather
            | Self::Scatter => (ranks - 1.0) / ranks,
            Self::Broadcast
            | Self::Reduce
            | Self::Pingpong
            | Self::Bandwidth
            | Self::Object
            | Self::Object8
            | Self::Tensor
            | Self::Tensor8 => 1.0,
            Self::Init => 0.0,
        }
    }

    /// Which part of a measured call counts as its time.
    pub(crate) const fn share(self) -> f64 {
        match self {
            Self::Pingpong | Self::Object | Self::Tensor => 0.5,
            _ => 1.0,
        }
    }

    /// Whether the clock of this rank counts: of collectives the slowest rank's does, of messages
    /// that of the rank that starts and is answered.
    pub(crate) const fn is_timed_on(self, rank: u32) -> bool {
        !self.is_message() || rank == 0
    }

    /// The number of elements that is measured instead of `count`: the next one that divides into
    /// blocks.
    pub(crate) const fn whole_blocks(self, count: usize, ranks: u32) -> usize {
        if self.deals_in_blocks() {
            count.next_multiple_of(ranks as usize)
        } else {
            count
        }
    }

    /// The least number of calls in one batch.
    pub(crate) fn least_calls(self, bytes: usize) -> u64 {
        match self {
            // A stream, not one message and its acknowledgement; but no more than 256 MiB of it.
            Self::Bandwidth | Self::Object8 | Self::Tensor8 => {
                ((256 << 20) / bytes.max(1) as u64).clamp(4, 16)
            }
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
        for operation in [
            Operation::AllGather,
            Operation::ReduceScatter,
            Operation::AllToAll,
            Operation::Gather,
            Operation::Scatter,
        ] {
            assert_eq!(operation.bus_factor(1), 0.0);
            assert_eq!(operation.bus_factor(4), 0.75);
        }
        assert_eq!(Operation::Reduce.bus_factor(4), 1.0);
    }

    #[test]
    fn a_stream_has_several_messages_but_not_too_many_bytes() {
        assert_eq!(Operation::Bandwidth.least_calls(0), 16);
        assert_eq!(Operation::Bandwidth.least_calls(64 << 20), 4);
        assert_eq!(Operation::AllReduce.least_calls(8), 1);
    }

    #[test]
    fn sizes_that_do_not_divide_into_blocks_are_rounded_up() {
        assert_eq!(Operation::AllGather.whole_blocks(2, 4), 4);
        assert_eq!(Operation::AllGather.whole_blocks(0, 4), 0);
        assert_eq!(Operation::AllReduce.whole_blocks(2, 4), 2);
    }
}
