//! Carries out [programs](super::program): takes, combines, keeps and passes on.
//!
//! A plan's programs advance in turn, each as far as it comes, so one that waits for a peer does
//! not hold up the others.

use std::sync::Arc;

use comm_core::{OperationKind, Result};

use super::carry_out::{Context, ONE_WAY_OFFER_BYTES};
use super::direct_blocks::{DirectBlocks, Taking};
use super::{BlockedOn, Buffers, Ends, Progress};
use crate::edge::ends::Identity;
use crate::plan::Plan;

/// A plan's programs under way.
#[derive(Debug)]
pub(crate) struct ProgramRun {
    plan: Arc<Plan>,
    context: Context,
    first: Cursor,
    /// Of the programs after the first one; usually there are none, so nothing is allocated.
    others: Vec<Cursor>,
    /// The blocks that need no steps, once the edges are known.
    direct: Option<DirectBlocks>,
}

/// How far one program has come.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    next: usize,
    blocked_on: Option<BlockedOn>,
}

impl ProgramRun {
    pub(crate) fn new(plan: Arc<Plan>, identity: Identity, buffers: Buffers) -> Self {
        use OperationKind::{Broadcast, Gather, Reduce, Scatter};
        let one_way = matches!(plan.request().kind, Broadcast | Gather | Reduce | Scatter);
        let block_bytes = plan.count * plan.element_bytes;
        let in_place = plan.request().in_place;
        let may_offer = plan
            .programs()
            .all(|(program, _)| program.keeps_what_it_sends(in_place));
        let start = Cursor {
            next: 0,
            blocked_on: None,
        };
        Self {
            first: start,
            others: vec![start; plan.programs().count().saturating_sub(1)],
            direct: None,
            context: Context {
                identity,
                buffers,
                may_offer,
                may_be_pulled: !one_way || block_bytes <= ONE_WAY_OFFER_BYTES,
                streams: plan.streams,
                offered: Vec::new(),
                mapped: Vec::new(),
            },
            plan,
        }
    }

    /// The same run, of whose first program this many primitives were carried out already.
    pub(crate) const fn starting_at(mut self, next: usize) -> Self {
        self.first.next = next;
        self
    }

    pub(crate) fn advance(&mut self, ends: &mut Ends, budget_bytes: usize) -> Result<Progress> {
        let mut budget = budget_bytes;
        let mut moved_at_all = false;
        let (identity, buffers) = (self.context.identity, self.context.buffers);
        let direct = self
            .direct
            .get_or_insert_with(|| DirectBlocks::new(&self.plan, buffers, ends));
        loop {
            let mut moved = false;
            if !direct.is_done() {
                // What comes must not take the place of what has not gone.
                let keeps = self.context.may_offer;
                let may_receive = keeps || cursors_done(&self.plan, &self.first, &self.others);
                moved = direct.advance(ends, &identity, may_receive, &mut budget)?;
            }
            let network_done = direct.is_done();
            let network_busy = moved && !network_done;
            let mut done = network_done;
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
                    cursor.blocked_on = match direct.take(&primitive, resolved) {
                        Taking::Not => self
                            .context
                            .carry_out(&primitive, &self.plan, resolved, ends)?,
                        Taking::Whole => {
                            cursor.next += 1;
                            cursor.blocked_on = None;
                            continue;
                        }
                        Taking::Unknown(index) => Some(BlockedOn::Step(index)),
                    };
                    if cursor.blocked_on.is_some() {
                        break;
                    }
                    cursor.next += 1;
                    moved = true;
                    if !network_done {
                        // The network comes first.
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
        if let Some(direct) = &self.direct {
            direct.blocked_on(self.context.may_offer || all_done, visit);
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
