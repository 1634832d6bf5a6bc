//! All-reduce of processes that have mapped each other's buffers: every rank reads all inputs and
//! writes to its own memory only.
//!
//! # Algorithm
//!
//! 1. Every rank tells every other one in one step whether all of them can read its input and output:
//!    it offers its input if they can, and else refuses. The same answer goes to everybody, so all
//!    ranks know the same answers and take the same way.
//! 2. If nobody refused, rank `r` reduces the `r`-th share of the elements straight from all inputs, in
//!    rank order and in the accumulator type, into its output. Then it gives the inputs back.
//! 3. It offers its share of its output to all others, copies theirs to its own output, and is done when
//!    everybody has its share.
//!
//! A share of a rank's *input* is read by its reducer alone, and is overwritten, where input and output
//! are the same memory, only by the reducer's result, which is offered when the share has been read. So
//! ranks may work in place or not, each as it likes.
//!
//! If anybody refuses, the operation is carried out by the plan's other way, with the result that it
//! would have had without this one. A rank that refuses itself need not wait for the others' answers:
//! it begins as soon as it has those that are before the data on the edges from which it receives. After
//! refusals the next operations take the other way without asking (module `asking`).
//!
//! # Giving up
//!
//! The work goes in slices. A reader looks after each slice whether what it read was still offered; a
//! rank that fails revokes its offers when the operation is dropped, and waits for nobody. A rank that
//! finds an offer revoked is blocked until it hears of the failure.

use std::sync::Arc;

use comm_core::Result;
use comm_core::fifo::Offers;
use comm_kernels as kernels;

use super::share::Share;
use super::{BlockedOn, Buffers, Ends, HostOperation, Progress};
use crate::edge::ends::{Identity, Outgoing, RecvEnd, no_offers};
use crate::plan::{Plan, Resolved};
use crate::region::PeerBytes;

/// Bytes of one slice: a few of them fit into the second cache level together, and the price of looking
/// whether the offers stand vanishes.
const SLICE_BYTES: usize = 64 << 10;

/// An all-reduce on mapped memory under way.
#[derive(Debug)]
pub(crate) struct MappedReduce {
    plan: Arc<Plan>,
    identity: Identity,
    buffers: Buffers,
    /// Elements of the own share, and how many of them are reduced.
    share: Share,
    reduced: usize,
    /// Whether the ranks are asked, once that was decided.
    asks: Option<bool>,
    /// Whether all peers can read both buffers, once that was looked up.
    readable: Option<bool>,
    /// Peers that got the own answer, and then the own share.
    answered: usize,
    published: usize,
    /// Offers made, by edge.
    offers: Vec<Offers>,
    /// By receiving edge.
    peers: Vec<Peer>,
    way: Way,
}

/// How the operation is carried out.
#[derive(Debug)]
enum Way {
    /// Not all answers are known.
    Open,
    /// The own share is being reduced.
    Reduce,
    /// The others' shares are being copied.
    Copy,
    /// By the plan's other way, which is complete if there is `None`.
    Instead(Option<Box<HostOperation>>),
}

/// What is known of a peer.
#[derive(Debug, Default)]
struct Peer {
    /// Whether it offered its input or refused.
    offered: Option<bool>,
    /// What it offers now and was not given back.
    memory: Option<PeerBytes>,
    /// Elements of its share.
    share: Share,
    /// How many of them were copied, and whether that is all.
    copied: usize,
    done: bool,
    /// Whether it has taken back what it offered.
    revoked: bool,
}

impl MappedReduce {
    pub(crate) fn new(plan: Arc<Plan>, identity: Identity, buffers: Buffers) -> Self {
        let (ranks, bytes) = (plan.world_size as usize, plan.element_bytes);
        let share = |rank: u32| Share::of(rank as usize, ranks, plan.count, bytes);
        let peer = |rank: &u32| Peer {
            share: share(*rank),
            ..Peer::default()
        };
        Self {
            share: share(plan.rank),
            peers: plan.receives_from(0).iter().map(peer).collect(),
            plan,
            identity,
            buffers,
            reduced: 0,
            asks: None,
            readable: None,
            answered: 0,
            published: 0,
            offers: Vec::new(),
            way: Way::Open,
        }
    }

    pub(crate) fn advance(&mut self, ends: &mut Ends, budget_bytes: usize) -> Result<Progress> {
        let plan = Arc::clone(&self.plan);
        let edges = plan.edges(0);
        let mut budget = budget_bytes;
        if self.asks.is_none() {
            self.begin(ends, edges)?;
        }
        loop {
            match &mut self.way {
                Way::Open => {
                    // Who has not told everybody cannot begin with anything.
                    if !self.answer(ends, edges)? || !self.listen(ends, edges)? {
                        return Ok(Progress::Blocked);
                    }
                }
                Way::Instead(_) => return self.advance_instead(ends, edges, budget),
                Way::Reduce => {
                    if !self.reduce(ends, edges, &mut budget)? {
                        return Ok(Progress::Blocked);
                    }
                }
                Way::Copy => {
                    let published = self.publish(ends, edges)?;
                    let copied = self.copy(ends, edges, &mut budget)?;
                    if published && copied && is_acknowledged(ends, edges)? {
                        return Ok(Progress::Done);
                    }
                    if budget > 0 {
                        return Ok(if budget < budget_bytes {
                            Progress::Moved
                        } else {
                            Progress::Blocked
                        });
                    }
                }
            }
            if budget == 0 {
                return Ok(Progress::Moved);
            }
        }
    }

    /// Bytes of both buffers.
    fn whole_bytes(&self) -> usize {
        self.plan.count * self.plan.element_bytes
    }

    fn output(&self, element: usize) -> *mut u8 {
        self.buffers
            .output
            .wrapping_add(element * self.plan.element_bytes)
    }

    /// Asks, or takes the plan's other way at once, as if all had refused.
    fn begin(&mut self, ends: &mut Ends, edges: &Resolved) -> Result<()> {
        let asks = ends.asking.begin(self.whole_bytes());
        self.asks = Some(asks);
        if !asks {
            self.answered = edges.send.len();
            for peer in &mut self.peers {
                peer.offered = Some(false);
            }
            self.way = self.instead(ends)?;
        }
        Ok(())
    }

    /// The plan's other way.
    fn instead(&self, ends: &Ends) -> Result<Way> {
        let plan = Arc::clone(self.plan.instead_over(ends)?);
        let instead = HostOperation::collective(plan, self.identity, self.buffers, ends);
        Ok(Way::Instead(Some(Box::new(instead))))
    }

    /// Offers the input to all peers, or refuses; whether all have the answer.
    fn answer(&mut self, ends: &mut Ends, edges: &Resolved) -> Result<bool> {
        let bytes = self.whole_bytes();
        let (input, output) = (self.buffers.input, self.buffers.output.cast_const());
        let readable = *self.readable.get_or_insert_with(|| {
            edges.send.iter().all(|index| {
                let end = &ends.send[*index];
                end.is_readable_by_peer(input, bytes) && end.is_readable_by_peer(output, bytes)
            })
        });
        while let Some(index) = edges.send.get(self.answered) {
            let end = &mut ends.send[*index];
            if readable {
                let offers = end.region_offers();
                let mut offers = offers.ok_or_else(|| no_offers(end.peer))?;
                // SAFETY: the input stays valid until this operation is done, which needs the step to
                // be consumed, or dropped, which revokes it. The peer reads its own share of it, where
                // nothing is written before the peer offers the result.
                if !unsafe { end.try_offer_readable(&mut offers, input, bytes, &self.identity) }? {
                    return Ok(false);
                }
                self.offers.push(offers);
            } else {
                let refusal = [0];
                match end.try_reserve(refusal.len())? {
                    None => return Ok(false),
                    Some(Outgoing::Small) => end.publish_small(&refusal, &self.identity)?,
                    Some(Outgoing::Slot(slot)) => {
                        // SAFETY: a slot has room for a byte, which is private memory here.
                        unsafe { kernels::copy(slot.data.as_ptr(), refusal.as_ptr(), 1) };
                        end.publish(refusal.len(), &self.identity)?;
                    }
                }
            }
            self.answered += 1;
        }
        Ok(true)
    }

    /// Listens to the peers' answers and decides as soon as they allow it; whether it did.
    fn listen(&mut self, ends: &mut Ends, edges: &Resolved) -> Result<bool> {
        self.hear(ends, edges)?;
        let mut answers = self.peers.iter().map(|peer| peer.offered);
        if self.readable == Some(false) || answers.any(|answer| answer == Some(false)) {
            self.way = self.instead(ends)?;
            ends.asking.note(self.whole_bytes(), false);
            for (peer, index) in self.peers.iter_mut().zip(&edges.recv) {
                if peer.memory.take().is_some() {
                    ends.recv[*index].consume()?;
                }
            }
            return Ok(true);
        }
        let all = self.peers.iter().all(|peer| peer.offered.is_some());
        if all {
            self.way = Way::Reduce;
            ends.asking.note(self.whole_bytes(), true);
        }
        Ok(all)
    }

    /// Takes the answers that have come. Offers stay in the hands of this rank unless nobody will use
    /// them.
    fn hear(&mut self, ends: &mut Ends, edges: &Resolved) -> Result<()> {
        let bytes = self.whole_bytes();
        let useless = matches!(self.way, Way::Instead(_));
        for (peer, index) in self.peers.iter_mut().zip(&edges.recv) {
            if peer.offered.is_some() {
                continue;
            }
            let end = &mut ends.recv[*index];
            let offered = end.try_offer_or_refusal(&self.identity, bytes)?;
            match offered {
                Some(true) if !useless => {
                    peer.memory = readable(end, bytes)?;
                    if peer.memory.is_none() {
                        continue;
                    }
                }
                Some(_) => end.consume()?,
                None => {}
            }
            peer.offered = offered;
        }
        Ok(())
    }

    /// Takes the plan's other way forward, as far as the answers have come that are before its data.
    fn advance_instead(
        &mut self,
        ends: &mut Ends,
        edges: &Resolved,
        budget_bytes: usize,
    ) -> Result<Progress> {
        self.hear(ends, edges)?;
        if self.is_before_data(edges) {
            return Ok(Progress::Blocked);
        }
        if let Way::Instead(way) = &mut self.way
            && let Some(instead) = way
        {
            match instead.advance(ends, budget_bytes)? {
                Progress::Done => *way = None,
                progress => return Ok(progress),
            }
        }
        let all = self.peers.iter().all(|peer| peer.offered.is_some());
        // An offer that is revoked would look to a peer that is late as if it had never been made.
        let done = all && (self.offers.is_empty() || is_acknowledged(ends, edges)?);
        Ok(if done {
            Progress::Done
        } else {
            Progress::Blocked
        })
    }

    /// Whether an answer has yet to come over an edge by which the other way receives.
    fn is_before_data(&self, edges: &Resolved) -> bool {
        let Some(instead) = self.plan.instead() else {
            return false;
        };
        let receives = |index: &usize| {
            let mut flows = 0..instead.flows().len();
            flows.any(|flow| instead.edges(flow).recv.contains(index))
        };
        let mut unheard = self.peers.iter().zip(&edges.recv);
        unheard.any(|(peer, index)| peer.offered.is_none() && receives(index))
    }

    /// Reduces the own share and gives the inputs back; `false` if one of them was revoked.
    fn reduce(&mut self, ends: &mut Ends, edges: &Resolved, budget: &mut usize) -> Result<bool> {
        let bytes = self.plan.element_bytes;
        let slice = (SLICE_BYTES / bytes).max(1);
        let mut sources = vec![self.buffers.input; self.plan.world_size as usize];
        for (peer, index) in self.peers.iter().zip(&edges.recv) {
            let end = &ends.recv[*index];
            let memory = peer.memory.as_ref().ok_or_else(|| no_offers(end.peer))?;
            sources[end.peer as usize] = memory.as_ptr();
        }
        while self.reduced < self.share.count && *budget > 0 {
            let count = slice.min(self.share.count - self.reduced);
            let start = self.share.start + self.reduced;
            let at = |source: &*const u8| source.wrapping_add(start * bytes);
            let sources: Vec<_> = sources.iter().map(at).collect();
            let target = self.output(start);
            match (&self.plan.reducer, &sources[..], self.plan.average_of) {
                // Of two sources, one step in the accumulator type is the whole fold.
                (Some(reducer), [first, second], 0) => {
                    // SAFETY: the own input and output hold the plan's elements, and so does what the
                    // peers offer; the output is the own input or overlaps nothing.
                    unsafe { reducer.reduce(target, *first, *second, count) };
                }
                (Some(reducer), all, average_of) => {
                    // SAFETY: as above.
                    unsafe { reducer.reduce_many_scaled(target, all, count, average_of.max(1)) };
                }
                (None, ..) => {}
            }
            for (peer, index) in self.peers.iter_mut().zip(&edges.recv) {
                peer.revoked = !ends.recv[*index].offer_stands();
                if peer.revoked {
                    return Ok(false);
                }
            }
            for index in &edges.recv {
                ends.recv[*index].note_read(count * bytes);
            }
            self.reduced += count;
            *budget = budget.saturating_sub(count * bytes);
        }
        if self.reduced == self.share.count {
            for (peer, index) in self.peers.iter_mut().zip(&edges.recv) {
                peer.memory = None;
                ends.recv[*index].consume()?;
            }
            self.way = Way::Copy;
        }
        Ok(true)
    }

    /// Offers the own share of the output to all peers; whether all have the offer.
    fn publish(&mut self, ends: &mut Ends, edges: &Resolved) -> Result<bool> {
        let bytes = self.share.count * self.plan.element_bytes;
        let source = self.output(self.share.start).cast_const();
        while let Some(index) = edges.send.get(self.published) {
            let offers = &mut self.offers[self.published];
            let end = &mut ends.send[*index];
            // SAFETY: the share of the output stays valid and as it is until this operation is done,
            // which needs the step to be consumed, or dropped, which revokes it.
            if !unsafe { end.try_offer_readable(offers, source, bytes, &self.identity) }? {
                return Ok(false);
            }
            self.published += 1;
        }
        Ok(true)
    }

    /// Copies what the peers have offered of the result; whether that is all.
    fn copy(&mut self, ends: &mut Ends, edges: &Resolved, budget: &mut usize) -> Result<bool> {
        let bytes = self.plan.element_bytes;
        let slice = (SLICE_BYTES / bytes).max(1);
        let from_bytes = if self.plan.streams { 0 } else { usize::MAX };
        let mut all = true;
        for place in 0..self.peers.len() {
            let end = &mut ends.recv[edges.recv[place]];
            let Share { start, count } = self.peers[place].share;
            if self.peers[place].done {
                continue;
            }
            all = false;
            if self.peers[place].memory.is_none() {
                if self.peers[place].revoked || !end.try_offer(&self.identity, count * bytes)? {
                    continue;
                }
                if count == 0 {
                    self.peers[place].done = true;
                    end.consume()?;
                    continue;
                }
                self.peers[place].memory = readable(end, count * bytes)?;
            }
            while let Some(memory) = &self.peers[place].memory
                && *budget > 0
            {
                let done = self.peers[place].copied;
                let now = slice.min(count - done);
                let from = memory.as_ptr().wrapping_add(done * bytes);
                let to = self.output(start + done);
                // SAFETY: the offer and the output hold these elements, which are not of the own share
                // and so are read by nobody any more; see the module.
                unsafe { kernels::copy_streaming(to, from, now * bytes, from_bytes) };
                let peer = &mut self.peers[place];
                if !end.offer_stands() {
                    peer.revoked = true;
                    peer.memory = None;
                    break;
                }
                end.note_read(now * bytes);
                peer.copied += now;
                *budget = budget.saturating_sub(now * bytes);
                if peer.copied == count {
                    peer.memory = None;
                    peer.done = true;
                    end.consume()?;
                }
            }
        }
        Ok(all || self.peers.iter().all(|peer| peer.done))
    }

    pub(crate) fn blocked_on(&self, visit: &mut dyn FnMut(BlockedOn)) {
        let edges = self.plan.edges(0);
        let peers = || self.peers.iter().zip(&edges.recv);
        let sent = match &self.way {
            Way::Copy => self.published,
            _ => self.answered,
        };
        if let Some(index) = edges.send.get(sent) {
            visit(BlockedOn::Credit(*index));
        }
        let mut waits_for_peers = false;
        for (peer, index) in peers() {
            let waits = match &self.way {
                Way::Open | Way::Instead(_) => peer.offered.is_none(),
                Way::Reduce => peer.revoked,
                Way::Copy => !peer.done,
            };
            if waits {
                waits_for_peers = true;
                visit(BlockedOn::Step(*index));
            }
        }
        match &self.way {
            Way::Instead(Some(instead)) if !self.is_before_data(edges) => instead.blocked_on(visit),
            Way::Instead(None) | Way::Copy
                if !waits_for_peers && sent == edges.send.len() && !self.offers.is_empty() =>
            {
                for index in &edges.send {
                    visit(BlockedOn::Acknowledgement(*index));
                }
            }
            _ => {}
        }
    }
}

/// Whether all peers have taken everything.
fn is_acknowledged(ends: &mut Ends, edges: &Resolved) -> Result<bool> {
    for index in &edges.send {
        if !ends.send[*index].is_acknowledged()? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Where what the step at hand offers can be read; `None` if it was revoked.
fn readable(end: &RecvEnd, bytes: usize) -> Result<Option<PeerBytes>> {
    let memory = end.offered_bytes(0, bytes)?;
    if memory.is_none() && end.offer_stands() {
        return Err(no_offers(end.peer));
    }
    Ok(memory)
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
