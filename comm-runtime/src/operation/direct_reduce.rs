//! All-reduce of ranks that reach each other's memory: one read of every input, one write of every
//! output, nothing in between.
//!
//! # Algorithm
//!
//! 1. Every rank offers input and output to every other rank (one step per edge, without data).
//! 2. When all offers have come, rank `r` reduces the `r`-th share of the elements: it reads that
//!    share of all inputs, in rank order and in the accumulator type, and writes it to all outputs.
//! 3. It consumes the offers, which tells their owners that it will touch their memory no more, and
//!    is done when all its own offers are consumed: then all other shares stand in its output.
//!
//! A share of *any* buffer is touched by its rank alone, so input and output may be the same memory
//! on some ranks and different on others, and no step between reading and writing is needed.
//!
//! Before the first such operation of a communicator the ranks [vote](super::direct_vote) whether all
//! their edges lead to the peers' memory. If one does not, this and all later operations of the plan
//! go around the ring instead, with the same result.
//!
//! # Giving up
//!
//! The work on a share goes in slices; peers' memory is claimed for one slice at a time. A rank that
//! fails revokes its offers when the operation is dropped, and waits for at most one slice. A rank
//! that finds an offer revoked is blocked until it hears of the failure.

use std::sync::Arc;

use comm_core::Result;
use comm_core::fifo::{Claim, Offer, Offers};

use super::direct_vote::Vote;
use super::share::Share;
use super::{BlockedOn, Buffers, Ends, ProgramRun, Progress};
use crate::edge::ends::{Identity, no_offers};
use crate::plan::{Plan, Resolved};
use comm_kernels::{self as kernels, Reducer};

/// Bytes of one slice: all ranks' slices fit into the second cache level together, and the price of
/// the claims vanishes.
const SLICE_BYTES: usize = 64 << 10;

/// An all-reduce in place under way.
#[derive(Debug)]
pub(crate) struct DirectReduce {
    plan: Arc<Plan>,
    identity: Identity,
    buffers: Buffers,
    way: Way,
    /// Offers made so far, by edge.
    offers: Vec<Offers>,
    /// Which peers' offers have come, by edge.
    arrived: Vec<bool>,
    /// Elements of the own share, and how many of them are complete.
    share: Share,
    done: usize,
    /// The edge whose offer was found revoked.
    revoked: Option<usize>,
    consumed: bool,
    /// Which peers have consumed the own offer, by edge.
    acknowledged: Vec<bool>,
}

/// How the operation is carried out.
#[derive(Debug)]
enum Way {
    /// Nobody has looked yet.
    Open,
    /// That is being found out.
    Voting(Vote),
    /// On the peers' memory.
    Direct,
    /// By programs, because not all edges lead to the peers' memory.
    Instead(Box<ProgramRun>),
}

impl DirectReduce {
    pub(crate) fn new(plan: Arc<Plan>, identity: Identity, buffers: Buffers) -> Self {
        let peers = plan.receives_from(0).len();
        let share = Share::of(
            plan.rank as usize,
            plan.world_size as usize,
            plan.count,
            plan.element_bytes,
        );
        Self {
            plan,
            identity,
            buffers,
            way: Way::Open,
            offers: Vec::with_capacity(peers),
            arrived: vec![false; peers],
            share,
            done: 0,
            revoked: None,
            consumed: false,
            acknowledged: vec![false; peers],
        }
    }

    pub(crate) fn advance(&mut self, ends: &mut Ends, budget_bytes: usize) -> Result<Progress> {
        let plan = Arc::clone(&self.plan);
        let edges = plan.edges(0);
        loop {
            self.way = match &mut self.way {
                Way::Direct => break,
                Way::Instead(run) => return run.advance(ends, budget_bytes),
                Way::Open => match ends.share_memory {
                    Some(true) => Way::Direct,
                    Some(false) => Way::Instead(Box::new(self.instead(ends)?)),
                    None => Way::Voting(Vote::new(edges.recv.len())),
                },
                Way::Voting(vote) => match vote.advance(ends, edges, &self.identity)? {
                    None => return Ok(Progress::Blocked),
                    verdict => {
                        ends.share_memory = verdict;
                        Way::Open
                    }
                },
            };
        }
        if !self.consumed {
            if !self.offer(ends, edges)? | !self.gather(ends, edges)? {
                return Ok(Progress::Blocked);
            }
            let slice = (SLICE_BYTES / plan.element_bytes).max(1);
            let mut budget = budget_bytes;
            while self.done < self.share.count {
                let count = slice.min(self.share.count - self.done);
                if !self.reduce_slice(ends, edges, count) {
                    return Ok(Progress::Blocked);
                }
                self.done += count;
                budget = budget.saturating_sub(count * plan.element_bytes);
                if budget == 0 {
                    return Ok(Progress::Moved);
                }
            }
            for index in &edges.recv {
                ends.recv[*index].consume()?;
            }
            self.consumed = true;
        }
        let mut all = true;
        for (index, acknowledged) in edges.send.iter().zip(&mut self.acknowledged) {
            *acknowledged = *acknowledged || ends.send[*index].is_acknowledged()?;
            all &= *acknowledged;
        }
        Ok(if all {
            Progress::Done
        } else {
            Progress::Blocked
        })
    }

    /// The plan's other way, over edges that the plan has as well.
    fn instead(&self, ends: &Ends) -> Result<ProgramRun> {
        let known = self.plan.instead().is_some_and(|plan| plan.is_resolved());
        let plan = Arc::clone(self.plan.instead_over(ends)?);
        if !known {
            tracing::info!(
                rank = plan.rank,
                instead = %plan.algorithm(),
                "not all edges lead to the peers' memory; explain() tells which"
            );
        }
        Ok(ProgramRun::new(plan, self.identity, self.buffers))
    }

    /// Offers the buffers to all peers; whether all have the offer.
    fn offer(&mut self, ends: &mut Ends, edges: &Resolved) -> Result<bool> {
        let header = self
            .identity
            .header(self.plan.count * self.plan.element_bytes);
        let offer = Offer {
            source: self.buffers.input,
            target: self.buffers.output,
        };
        while let Some(index) = edges.send.get(self.offers.len()) {
            let end = &mut ends.send[*index];
            let peer = end.peer;
            let Some(fifo) = end.fifo() else {
                return Err(no_offers(peer));
            };
            let Some(mut offers) = fifo.carries_offers().then(|| fifo.offers()).flatten() else {
                return Err(no_offers(peer));
            };
            // SAFETY: the buffers hold the plan's elements and stay valid until this operation is
            // done, which needs the step to be consumed, or dropped, which revokes it. The peer
            // touches its share only, which nobody else does.
            let offered = unsafe { fifo.try_offer(&mut offers, offer, header) };
            if !offered.map_err(|error| error.with("peer", peer))? {
                return Ok(false);
            }
            self.offers.push(offers);
        }
        Ok(true)
    }

    /// Looks for the offers of all peers; whether all have come.
    fn gather(&mut self, ends: &mut Ends, edges: &Resolved) -> Result<bool> {
        let bytes = self.plan.count * self.plan.element_bytes;
        let mut all = true;
        for (index, arrived) in edges.recv.iter().zip(&mut self.arrived) {
            *arrived = *arrived || ends.recv[*index].try_offer(&self.identity, bytes)?;
            all &= *arrived;
        }
        Ok(all)
    }

    /// Reduces `count` elements behind those that are done; `false` if an offer was revoked.
    fn reduce_slice(&mut self, ends: &Ends, edges: &Resolved, count: usize) -> bool {
        let ranks = self.plan.world_size as usize;
        let mut claims: Vec<Claim<'_>> = Vec::with_capacity(edges.recv.len());
        let own = Offer {
            source: self.buffers.input,
            target: self.buffers.output,
        };
        let mut all = vec![own; ranks];
        for index in &edges.recv {
            let end = &ends.recv[*index];
            let Some(claim) = end.claim() else {
                self.revoked = Some(*index);
                return false;
            };
            all[end.peer as usize] = claim.offer();
            claims.push(claim);
        }
        let Some(reducer) = &self.plan.reducer else {
            return true;
        };
        let slice = Slice {
            offset_bytes: (self.share.start + self.done) * self.plan.element_bytes,
            bytes: count * self.plan.element_bytes,
            count,
        };
        // SAFETY: the own buffers are valid by the contract of operations, the peers' ones under
        // the claims, which live to the end of this function; the slice lies in the own share,
        // which nobody else touches.
        unsafe { slice.reduce(reducer, self.plan.average_of, own, &mut all) };
        drop(claims);
        true
    }

    pub(crate) fn blocked_on(&self, visit: &mut dyn FnMut(BlockedOn)) {
        let edges = self.plan.edges(0);
        match &self.way {
            Way::Open | Way::Direct => {}
            Way::Voting(vote) => return vote.blocked_on(edges, visit),
            Way::Instead(run) => return run.blocked_on(visit),
        }
        if let Some(index) = edges.send.get(self.offers.len()) {
            visit(BlockedOn::Credit(*index));
        }
        if let Some(index) = self.revoked {
            visit(BlockedOn::Step(index));
        }
        let missing = edges.recv.iter().zip(&self.arrived);
        for (index, _) in missing.filter(|(_, arrived)| !**arrived) {
            visit(BlockedOn::Step(*index));
        }
        if self.consumed {
            let missing = edges.send.iter().zip(&self.acknowledged);
            for (index, _) in missing.filter(|(_, acknowledged)| !**acknowledged) {
                visit(BlockedOn::Acknowledgement(*index));
            }
        }
    }
}

/// Some elements of all buffers.
struct Slice {
    offset_bytes: usize,
    bytes: usize,
    count: usize,
}

impl Slice {
    /// Reduces the slice of `all` sources, in order, to all targets; `own` is one of them.
    ///
    /// # Safety
    ///
    /// The slice of every source is valid for reading and that of every target for writing, and
    /// nobody else accesses them. A target is the source beside it, or overlaps nothing.
    unsafe fn reduce(&self, reducer: &Reducer, average_of: u32, own: Offer, all: &mut [Offer]) {
        let at = |offer: Offer| Offer {
            source: offer.source.wrapping_add(self.offset_bytes),
            target: offer.target.wrapping_add(self.offset_bytes),
        };
        let own = at(own);
        for offer in all.iter_mut() {
            *offer = at(*offer);
        }
        if let ([first, second], 0) = (&*all, average_of) {
            let (a, b) = (first.source, second.source);
            // SAFETY: the caller's promise.
            unsafe { reducer.reduce2(first.target, second.target, a, b, self.count) };
            return;
        }
        let sources: Vec<*const u8> = all.iter().map(|offer| offer.source).collect();
        // SAFETY: the caller's promise.
        unsafe { reducer.reduce_many_scaled(own.target, &sources, self.count, average_of.max(1)) };
        for offer in all.iter().filter(|offer| offer.target != own.target) {
            // SAFETY: the caller's promise; two ranks' targets do not overlap.
            unsafe { kernels::copy(offer.target, own.target, self.bytes) };
        }
    }
}
