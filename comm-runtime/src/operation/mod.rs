//! Operations on host memory as resumable state machines.
//!
//! # Contract
//!
//! * [`HostOperation::advance`] moves as much as it can and returns; it never blocks and holds no
//!   lock afterwards. Blocking calls, waiting handles and worker threads are only different
//!   callers of it.
//! * After [`Progress::Blocked`], [`HostOperation::blocked_on`] names the edges that keep it from
//!   moving.
//! * After an error the operation must not be advanced again, and its edges are out of step: the
//!   caller poisons the communicator.
//! * The caller guarantees that the [`Buffers`] stay valid and are touched by nobody else until
//!   the operation is done or dropped. An operation that offers them to peers has taken them back
//!   when it is done, and takes them back when it is dropped.

mod asking;
mod carry_out;
mod data;
mod direct_blocks;
mod direct_fold;
mod direct_reduce;
mod direct_vote;
pub(crate) mod frame;
mod mapped_reduce;
mod offered_blocks;
mod one_shot;
mod pair_fold;
pub(crate) mod program;
mod round;
mod run;
mod share;
mod transfer;

pub(crate) use carry_out::OFFER_FROM_BYTES;
pub(crate) use direct_fold::DirectFold;
pub(crate) use direct_reduce::DirectReduce;
pub(crate) use mapped_reduce::MappedReduce;
pub(crate) use one_shot::{Fold, OneShotReduce};
pub(crate) use pair_fold::PairFold;
pub(crate) use round::RoundRun;
pub(crate) use run::ProgramRun;
pub(crate) use transfer::{RecvRun, SendRun};

use std::collections::HashMap;
use std::sync::Arc;

use comm_core::net::Transfer;
use comm_core::{Algorithm, Rank, Result};

use crate::edge::ends::{Identity, RecvEnd, SendEnd};
use crate::plan::Plan;

/// How far [`HostOperation::advance`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The operation is complete.
    Done,
    /// The budget is spent; more can be done at once.
    Moved,
    /// Nothing can be done before an edge moves.
    Blocked,
}

/// An edge that an operation waits for, as an index into [`Ends`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockedOn {
    /// Credit of a sending end.
    Credit(usize),
    /// The peer's consumption of everything that a sending end has published.
    Acknowledgement(usize),
    /// A step at a receiving end.
    Step(usize),
    /// Room for a direct transfer at a sending end.
    DirectSend(usize),
    /// More of a direct transfer at a receiving end.
    DirectRecv(usize),
}

/// Whether a primitive concerns a block that goes in another way than by its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taking {
    /// It is to be carried out.
    Not,
    /// It is not.
    Whole,
    /// That is not known before this edge moves.
    Unknown(BlockedOn),
}

/// Takes note of what a call of a direct transfer did: spends the budget, and puts what is done into
/// its stage; whether anything moved.
fn transferred<S>(transfer: Transfer, stage: &mut S, done: S, budget: &mut usize) -> bool {
    if transfer == Transfer::Done {
        *stage = done;
    }
    let moved = transfer != Transfer::Blocked;
    if moved {
        *budget = budget.saturating_sub(TRANSFER_BYTES);
    }
    moved
}

/// What one call of a direct transfer counts for: about what the network takes or has at a time.
const TRANSFER_BYTES: usize = 256 << 10;

/// The user's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffers {
    pub(crate) input: *const u8,
    pub(crate) output: *mut u8,
}

// SAFETY: the pointers are used by one thread at a time, under the contract of this module.
unsafe impl Send for Buffers {}

/// The connected ends of one lane.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    pub(crate) send: Vec<SendEnd>,
    pub(crate) recv: Vec<RecvEnd>,
    send_index: HashMap<(Rank, u32), usize>,
    recv_index: HashMap<(Rank, u32), usize>,
    /// Whether all ranks reach each other's memory over these edges, once they have voted.
    pub(crate) share_memory: Option<bool>,
    asking: asking::Asking,
}

impl Ends {
    pub(crate) fn add_send(&mut self, channel: u32, end: SendEnd) {
        self.send_index.insert((end.peer, channel), self.send.len());
        self.send.push(end);
    }

    pub(crate) fn add_recv(&mut self, channel: u32, end: RecvEnd) {
        self.recv_index.insert((end.peer, channel), self.recv.len());
        self.recv.push(end);
    }

    pub(crate) fn send_to(&self, peer: Rank, channel: u32) -> Option<usize> {
        self.send_index.get(&(peer, channel)).copied()
    }

    pub(crate) fn recv_from(&self, peer: Rank, channel: u32) -> Option<usize> {
        self.recv_index.get(&(peer, channel)).copied()
    }
}

/// One operation on host memory.
#[derive(Debug)]
pub(crate) enum HostOperation {
    Program(ProgramRun),
    OneShotReduce(OneShotReduce),
    DirectFold(DirectFold),
    DirectReduce(DirectReduce),
    MappedReduce(MappedReduce),
    Send(SendRun),
    Recv(RecvRun),
}

impl HostOperation {
    /// The state machine of a collective whose edges are connected.
    pub(crate) fn collective(
        plan: Arc<Plan>,
        identity: Identity,
        buffers: Buffers,
        ends: &Ends,
    ) -> Self {
        match (plan.algorithm(), plan.fold()) {
            (Algorithm::DirectShared, _) => {
                Self::DirectReduce(DirectReduce::new(plan, identity, buffers))
            }
            (Algorithm::DirectMapped, _) => {
                Self::MappedReduce(MappedReduce::new(plan, identity, buffers))
            }
            (_, Some(fold)) if DirectFold::suits(&plan, ends) => {
                Self::DirectFold(DirectFold::new(plan, fold, identity, buffers))
            }
            (_, Some(fold)) => {
                Self::OneShotReduce(OneShotReduce::new(plan, fold, identity, buffers))
            }
            _ => Self::Program(ProgramRun::new(plan, identity, buffers)),
        }
    }

    /// Moves on, by about `budget_bytes` at most.
    #[inline]
    pub(crate) fn advance(&mut self, ends: &mut Ends, budget_bytes: usize) -> Result<Progress> {
        match self {
            Self::Program(run) => run.advance(ends, budget_bytes),
            Self::OneShotReduce(run) => run.advance(ends, budget_bytes),
            Self::DirectFold(run) => run.advance(ends, budget_bytes),
            Self::DirectReduce(run) => run.advance(ends, budget_bytes),
            Self::MappedReduce(run) => run.advance(ends, budget_bytes),
            Self::Send(run) => run.advance(ends, budget_bytes),
            Self::Recv(run) => run.advance(ends, budget_bytes),
        }
    }

    /// Names the edges for which a blocked operation waits.
    pub(crate) fn blocked_on(&self, visit: &mut dyn FnMut(BlockedOn)) {
        match self {
            Self::Program(run) => run.blocked_on(visit),
            Self::OneShotReduce(run) => run.blocked_on(visit),
            Self::DirectFold(run) => run.blocked_on(visit),
            Self::DirectReduce(run) => run.blocked_on(visit),
            Self::MappedReduce(run) => run.blocked_on(visit),
            Self::Send(run) => visit(run.blocked_on()),
            Self::Recv(run) => visit(run.blocked_on()),
        }
    }
}
