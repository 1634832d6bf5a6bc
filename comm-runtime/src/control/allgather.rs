//! Allgather and barrier of the control plane.
//!
//! # Contract
//!
//! * Every rank calls with the same tag; each gets the values of all ranks, in rank order.
//!   Different tags are independent of each other and may be under way at the same time; calls
//!   with one tag pair up in the order in which they are made.
//! * Dissemination (Bruck et al., 1997; for the barrier Hensgen, Finkel and Manber, 1988): in
//!   round k a rank sends everything it has to rank + 2^k and receives as much from rank - 2^k.
//!   After ceil(log2 n) rounds everybody has everything, and no rank is special.
//! * A call ends by its deadline, and when it waits for a rank after the communicator failed; one
//!   that starts after the failure ends at once. A call that ends early
//!   leaves what was received under its tag, so the tag must not be used again.

use std::sync::Arc;

use bytes::Bytes;
use comm_core::{Error, ErrorKind, Rank, Result};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::frame::{self, FrameKind};
use super::link::Outgoing;
use super::member::Member;

/// What a tag belongs to: calls of different users of the control plane never mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Use {
    /// The exchange of facts at the end of the join.
    Facts,
    /// An allgather of the caller.
    Allgather,
    /// A barrier of the caller.
    Barrier,
}

/// One round of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Round {
    usage: Use,
    tag: u64,
    number: u8,
}

/// What travels in one round.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WireRound {
    round: Round,
    blocks: Vec<Bytes>,
}

/// The distances of the rounds, 1, 2, 4, ...: also those over which a rank keeps its links.
pub(crate) fn distances(world_size: u32) -> impl Iterator<Item = u32> {
    (0..u32::BITS)
        .map(|k| 1_u32 << k)
        .take_while(move |distance| *distance < world_size)
}

/// The rank that is `distance` further round the circle.
pub(crate) fn neighbour(rank: Rank, distance: u32, world_size: u32) -> Rank {
    let sum = u64::from(rank) + u64::from(distance);
    // The remainder is smaller than a u32.
    (sum % u64::from(world_size)) as Rank
}

impl Member {
    /// Gathers one value of every rank.
    pub(crate) async fn allgather(
        self: Arc<Self>,
        usage: Use,
        tag: u64,
        value: Bytes,
        deadline: Instant,
    ) -> Result<Vec<Bytes>> {
        if let Some(error) = self.failure() {
            return Err(error);
        }
        let (rank, world_size) = (self.rank(), self.world_size());
        // Block i is the value of rank - i.
        let mut blocks = vec![value];
        for (number, distance) in (0_u8..).zip(distances(world_size)) {
            let round = Round { usage, tag, number };
            // The last round of a world that is no power of two needs only the rest.
            let wanted = blocks.len().min(world_size as usize - blocks.len());
            let frame = frame::encode(
                FrameKind::Gather,
                &WireRound {
                    round,
                    blocks: blocks[..wanted].to_vec(),
                },
            )?;
            let to = neighbour(rank, distance, world_size);
            // A failure is the better reason: others may have left because of it.
            self.queue(to, Outgoing::Frame(frame))
                .map_err(|error| self.failure().unwrap_or(error))?;
            let from = neighbour(rank, world_size - distance, world_size);
            let received = self.receive_round(round, from, deadline).await?;
            if received.len() != wanted {
                return Err(Error::new(
                    ErrorKind::Protocol,
                    "a rank sent another number of values than the world size asks for",
                )
                .with("from_rank", from)
                .with("values", received.len())
                .with("expected", wanted));
            }
            blocks.extend(received);
        }
        let mut values = vec![Bytes::new(); world_size as usize];
        for (distance, block) in (0_u32..).zip(blocks) {
            values[neighbour(rank, world_size - distance, world_size) as usize] = block;
        }
        Ok(values)
    }

    async fn receive_round(
        &self,
        round: Round,
        from: Rank,
        deadline: Instant,
    ) -> Result<Vec<Bytes>> {
        loop {
            let changed = self.changed().notified();
            if let Some(blocks) = self.take_round(round) {
                return Ok(blocks);
            }
            if let Some(error) = self.failure() {
                return Err(error);
            }
            if self.has_left(from) {
                // It may have sent its part, and left, since the look above.
                if let Some(blocks) = self.take_round(round) {
                    return Ok(blocks);
                }
                return Err(Error::new(
                    ErrorKind::PeerFailed,
                    format!(
                        "{} has left the communicator and takes no part in this exchange",
                        self.name_of(from)
                    ),
                )
                .with("rank", self.rank()));
            }
            if tokio::time::timeout_at(deadline, changed).await.is_err() {
                // A thread that did not run for a while finds the deadline passed first.
                if let Some(blocks) = self.take_round(round) {
                    return Ok(blocks);
                }
                return Err(Error::new(
                    ErrorKind::Timeout,
                    format!(
                        "nothing came from {}; it has not called this exchange, or waits for \
                         another rank that has not",
                        self.name_of(from)
                    ),
                )
                .with("rank", self.rank())
                .with("exchange", format!("{:?} {}", round.usage, round.tag)));
            }
        }
    }

    /// Takes a round that a peer sent.
    pub(crate) fn on_gather(&self, from: Rank, wire: WireRound) -> Result<()> {
        let distance = 1_u32
            .checked_shl(u32::from(wire.round.number))
            .unwrap_or(u32::MAX);
        if distance >= self.world_size()
            || neighbour(from, distance, self.world_size()) != self.rank()
        {
            return Err(Error::new(
                ErrorKind::Protocol,
                "a rank sent a round of an exchange that is not its own",
            ));
        }
        self.store_round(wire.round, wire.blocks);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_world_of_one_has_no_rounds_and_one_of_64_has_six() {
        assert_eq!(distances(1).count(), 0);
        assert_eq!(distances(64).collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32]);
        assert_eq!(distances(65).count(), 7);
    }

    /// The ranks that a failure noticed by `origin` reaches over the links of those alive.
    fn reached(world_size: u32, dead: &HashSet<Rank>, origin: Rank) -> HashSet<Rank> {
        let mut reached = HashSet::from([origin]);
        let mut queue = vec![origin];
        while let Some(rank) = queue.pop() {
            for distance in distances(world_size) {
                for next in [distance, world_size - distance] {
                    let next = neighbour(rank, next, world_size);
                    if !dead.contains(&next) && reached.insert(next) {
                        queue.push(next);
                    }
                }
            }
        }
        reached
    }

    proptest! {
        #[test]
        fn the_links_stay_connected_after_any_three_deaths(
            world_size in 8_u32..200,
            deaths in proptest::collection::hash_set(any::<u32>(), 3),
            origin in any::<u32>(),
        ) {
            let dead: HashSet<Rank> = deaths.iter().map(|rank| rank % world_size).collect();
            let origin = origin % world_size;
            prop_assume!(!dead.contains(&origin));
            let alive = world_size as usize - dead.len();
            prop_assert_eq!(reached(world_size, &dead, origin).len(), alive);
        }

        #[test]
        fn neighbours_forth_and_back_meet(rank in any::<u32>(), distance in any::<u32>(), world_size in 1_u32..) {
            let (rank, distance) = (rank % world_size, distance % world_size);
            let there = neighbour(rank, distance, world_size);
            prop_assert_eq!(neighbour(there, world_size - distance, world_size), rank);
        }
    }
}
