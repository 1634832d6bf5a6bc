//! Carries out [programs](super::program): takes, combines, keeps and passes on.
//!
//! A plan's programs advance in turn, each as far as it comes, so one that waits for a peer does
//! not hold up the others.

use std::ops::Deref;
use std::sync::Arc;

use comm_core::{OperationKind, Result};

use super::carry_out::{Context, ONE_WAY_PULLS_BYTES, PULLED_FROM_BYTES};
use super::direct_blocks::DirectBlocks;
use super::offered_blocks::OfferedBlocks;
use super::program::Primitive;
use super::{BlockedOn, Buffers, Ends, Progress, Taking};
use crate::edge::ends::Identity;
use crate::plan::{Plan, Resolved};

/// A plan's programs under way.
///
/// `P` leads to the plan: a reference as long as the call only looks at its edges, a counted one if the
/// operation may be handed on.
#[derive(Debug)]
pub(crate) struct ProgramRun<P = Arc<Plan>> {
    plan: P,
    context: Context,
    first: Cursor,
    /// Of the programs after the first one; usually there are none, so nothing is allocated.
    others: Vec<Cursor>,
    /// The blocks that may need no steps, once the edges are known.
    blocks: Option<Blocks>,
}

/// Blocks that go in other ways than step by step.
#[derive(Debug)]
struct Blocks {
    direct: DirectBlocks,
    offered: OfferedBlocks,
}

impl Blocks {
    fn new(plan: &Plan, context: &Context, ends: &Ends) -> Self {
        let direct = DirectBlocks::new(plan, context.buffers, ends);
        let offered = OfferedBlocks::new(plan, context, direct.is_empty());
        Self { direct, offered }
    }

    #[inline]
    const fn is_done(&self) -> bool {
        self.direct.is_done() && self.offered.is_done()
    }

    #[inline]
    fn take(&self, primitive: &Primitive, resolved: &Resolved) -> Taking {
        match self.direct.take(primitive, resolved) {
            Taking::Not => self.offered.take(primitive, resolved),
            taking => taking,
        }
    }
}

/// How far one program has come.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    next: usize,
    blocked_on: Option<BlockedOn>,
}

impl<P: Deref<Target = Plan>> ProgramRun<P> {
    pub(crate) fn new(plan: P, identity: Identity, buffers: Buffers) -> Self {
        use OperationKind::{Broadcast, Gather, Reduce, Scatter};
        let one_way = matches!(plan.request().kind, Broadcast | Gather | Reduce | Scatter);
        let block_bytes = plan.count * plan.element_bytes;
        let in_place = plan.request().in_place;
        let may_offer = plan
            .programs()
            .all(|(program, _)| program.keeps_what_it_sends(in_place));
        let may_be_pulled = if one_way {
            ONE_WAY_PULLS_BYTES.contains(&block_bytes)
        } else {
            block_bytes >= PULLED_FROM_BYTES
        };
        let start = Cursor {
            next: 0,
            blocked_on: None,
        };
        Self {
            first: start,
            others: vec![start; plan.programs().count().saturating_sub(1)],
            blocks: None,
            context: Context {
                identity,
                buffers,
                may_offer,
                may_be_pulled,
                streams: plan.streams,
                offered: Vec::new(),
                mapped: Vec::new(),
            },
            plan,
        }
    }

    /// The same run, at the same point, with another way to the same plan.
    pub(crate) fn keeping<Q>(self, plan: Q) -> ProgramRun<Q> {
        ProgramRun {
            plan,
            context: self.context,
            first: self.first,
            others: self.others,
            blocks: self.blocks,
        }
    }

    /// The same run, of whose first program this many primitives were carried out already.
    pub(crate) fn starting_at(mut self, next: usize) -> Self {
        self.first.next = next;
        self
    }

    pub(crate) fn advance(&mut self, ends: &mut Ends, budget_bytes: usize) -> Result<Progress> {
        let mut budget = budget_bytes;
        let mut moved_at_all = false;
        let blocks = self
            .blocks
            .get_or_insert_with(|| Blocks::new(&self.plan, &self.context, ends));
        loop {
            let mut moved = false;
            let mut network_busy = false;
            if !blocks.is_done() {
                // What comes must not take the place of what has not gone.
                let keeps = self.context.may_offer;
                let may_receive = keeps || cursors_done(&self.plan, &self.first, &self.others);
                if !blocks.direct.is_done() {
                    let identity = &self.context.identity;
                    let direct = &mut blocks.direct;
                    moved = direct.advance(ends, identity, may_receive, &mut budget)?;
                    network_busy = moved && !direct.is_done();
                }
                if !blocks.offered.is_done() {
                    let (offered, edges) = (&mut blocks.offered, self.plan.edges(0));
                    moved |= offered.advance(
                        &mut self.context,
                        &self.plan,
                        edges,
                        ends,
                        may_receive,
                        &mut budget,
                    )?;
                }
            }
            let mut done = blocks.is_done();
            let steps_only = done;
            for (place, (program, resolved)) in self.plan.programs().enumerate() {
                let cursor = match place {
                    0 => &mut self.first,
                    other => &mut self.others[other - 1],
                };
                while cursor.next < program.len() {
                    let primitive = program.primitive(cursor.next);
                    if network_busy && primitive.is_local() {
                        // What is in the cache on its way to or from the network stays there.
                        break;
                    }
                    let bytes = primitive.count * self.plan.element_bytes;
                    cursor.blocked_on = match blocks.take(&primitive, resolved) {
                        Taking::Not => self
                            .context
                            .carry_out(&primitive, &self.plan, resolved, ends)?,
                        Taking::Whole => {
                            cursor.next += 1;
                            cursor.blocked_on = None;
                            continue;
                        }
                        Taking::Unknown(on) => Some(on),
                    };
                    if cursor.blocked_on.is_some() {
                        break;
                    }
                    cursor.next += 1;
                    moved = true;
                    if !steps_only {
                        // The blocks take their turn after each step.
                        break;
                    }
                    budget = budget.saturating_sub(bytes.max(64));
                    if budget == 0 {
                        break;
                    }
                }
                done &= cursor.next == program.len();
            }
            if done {
                return self.context.acknowledged(ends);
            }
            if budget == 0 {
                return Ok(Progress::Moved);
            }
            if !moved {
                return Ok(if moved_at_all {
                    Progress::Moved
                } else {
                    Progress::Blocked
                });
            }
            moved_at_all = true;
        }
    }

    pub(crate) fn blocked_on(&self, visit: &mut dyn FnMut(BlockedOn)) {
        let cursors = std::iter::once(&self.first).chain(&self.others);
        cursors
            .filter_map(|cursor| cursor.blocked_on)
            .for_each(&mut *visit);
        let all_done = cursors_done(&self.plan, &self.first, &self.others);
        if let Some(Blocks { direct, offered }) = &self.blocks {
            direct.blocked_on(self.context.may_offer || all_done, visit);
            offered.blocked_on(self.plan.edges(0), visit);
        }
        if all_done {
            for offered in &self.context.offered {
                visit(BlockedOn::Acknowledgement(offered.index));
            }
        }
    }
}

/// Whether all programs have come to their end.
fn cursors_done(plan: &Plan, first: &Cursor, others: &[Cursor]) -> bool {
    let cursors = std::iter::once(first).chain(others);
    plan.programs()
        .zip(cursors)
        .all(|((program, _), cursor)| cursor.next == program.len())
}
