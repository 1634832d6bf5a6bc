//! Whether all ranks really reach each other's memory: asked once, before it is first relied on.
//!
//! # Contract
//!
//! Planning goes by the facts, which all ranks have; over which transport an edge was connected in
//! the end, because an earlier one failed to [prove](crate::edge::prove) itself, only its two ends
//! know. So before the first operation that works on peers' memory every rank tells every other one
//! whether all its own edges give access to it, and all of them come to the same verdict: yes if all
//! said yes. A vote is one byte in a step of the operation, over whatever the edge is made of.

use comm_core::Result;
use comm_core::fifo::SMALL_BYTES;

use super::{BlockedOn, Ends};
use crate::edge::ends::{Identity, Outgoing};
use crate::plan::Resolved;
use comm_kernels as kernels;

/// A vote under way.
#[derive(Debug)]
pub(super) struct Vote {
    /// How many peers have got the own vote.
    sent: usize,
    /// What the peers said, by edge.
    heard: Vec<Option<bool>>,
}

impl Vote {
    pub(super) fn new(peers: usize) -> Self {
        Self {
            sent: 0,
            heard: vec![None; peers],
        }
    }

    /// The verdict, as soon as all votes are there.
    pub(super) fn advance(
        &mut self,
        ends: &mut Ends,
        edges: &Resolved,
        identity: &Identity,
    ) -> Result<Option<bool>> {
        let own = Self::own(ends, edges);
        while let Some(index) = edges.send.get(self.sent) {
            let end = &mut ends.send[*index];
            let ballot = [u8::from(own)];
            match end.try_reserve(ballot.len())? {
                None => break,
                Some(Outgoing::Small) => end.publish_small(&ballot, identity)?,
                Some(Outgoing::Slot(slot)) => {
                    // SAFETY: a slot has room for a byte, and the ballot is private memory.
                    unsafe { kernels::copy(slot.data.as_ptr(), ballot.as_ptr(), ballot.len()) };
                    end.publish(ballot.len(), identity)?;
                }
            }
            self.sent += 1;
        }
        for (index, heard) in edges.recv.iter().zip(&mut self.heard) {
            let end = &mut ends.recv[*index];
            if heard.is_none()
                && let Some(payload) = end.try_take(identity, 1)?
            {
                let mut ballot = [0; SMALL_BYTES];
                // SAFETY: the step was checked to hold one byte.
                unsafe { kernels::copy(ballot.as_mut_ptr(), payload, 1) };
                end.consume()?;
                *heard = Some(ballot[0] == 1);
            }
        }
        let all: Option<Vec<bool>> = self.heard.iter().copied().collect();
        Ok(match all {
            Some(all) if self.sent == edges.send.len() => {
                Some(own && all.into_iter().all(|yes| yes))
            }
            _ => None,
        })
    }

    /// Whether all edges of this rank give access to their peers' memory.
    fn own(ends: &mut Ends, edges: &Resolved) -> bool {
        let mut sends = edges.send.iter();
        let sends = sends.all(|index| ends.send[*index].offers_memory());
        let mut receives = edges.recv.iter();
        sends && receives.all(|index| ends.recv[*index].takes_offers())
    }

    pub(super) fn blocked_on(&self, edges: &Resolved, visit: &mut dyn FnMut(BlockedOn)) {
        if let Some(index) = edges.send.get(self.sent) {
            visit(BlockedOn::Credit(*index));
        }
        let unheard = edges.recv.iter().zip(&self.heard);
        for (index, _) in unheard.filter(|(_, heard)| heard.is_none()) {
            visit(BlockedOn::Step(*index));
        }
    }
}
