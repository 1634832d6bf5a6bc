//! A program of plain steps, carried out without asking it for them.
//!
//! # Contract
//!
//! * As for every [operation](super). The steps are the program's primitives, so
//!   [`ProgramRun`] can go on from any of them.

use std::sync::Arc;

use comm_core::Result;
use comm_kernels as kernels;

use super::{Buffers, Ends, HostOperation, ProgramRun, Progress};
use crate::edge::ends::Identity;
use crate::plan::{Plan, Resolved, Round, StepKind};

/// A round under way.
#[derive(Debug)]
pub(crate) struct RoundRun<'a> {
    round: &'a Round,
    edges: &'a Resolved,
    identity: &'a Identity,
    buffers: Buffers,
    next: usize,
}

impl<'a> RoundRun<'a> {
    #[inline]
    pub(crate) const fn new(
        round: &'a Round,
        edges: &'a Resolved,
        identity: &'a Identity,
        buffers: Buffers,
    ) -> Self {
        Self {
            round,
            edges,
            identity,
            buffers,
            next: 0,
        }
    }

    #[inline]
    pub(crate) fn advance(&mut self, ends: &mut Ends) -> Result<Progress> {
        let edges = self.edges;
        let Buffers { input, output } = self.buffers;
        while let Some(step) = self.round.steps.get(self.next) {
            let bytes = step.bytes;
            let moved = match step.kind {
                StepKind::Send { edge, from } => {
                    let from = input.wrapping_add(from);
                    // SAFETY: programs stay within the input, whose length the call checked.
                    unsafe { ends.send[edges.send[edge]].try_send(from, bytes, self.identity) }?
                }
                StepKind::Receive { edge, to } => {
                    let to = output.wrapping_add(to);
                    // SAFETY: as above, for the output.
                    unsafe { ends.recv[edges.recv[edge]].try_recv(to, bytes, self.identity) }?
                }
                StepKind::Copy { from, to } => {
                    let (from, to) = (input.wrapping_add(from), output.wrapping_add(to));
                    if !std::ptr::eq(from, to) {
                        // SAFETY: as above; the two are equal (excluded here) or disjoint.
                        unsafe { kernels::copy(to, from, bytes) };
                    }
                    true
                }
            };
            if !moved {
                return Ok(Progress::Blocked);
            }
            self.next += 1;
        }
        Ok(Progress::Done)
    }

    /// The same operation, at the same point, as one that can be handed on.
    pub(crate) fn keeping(self, plan: Arc<Plan>) -> HostOperation {
        let run = ProgramRun::new(plan, *self.identity, self.buffers);
        HostOperation::Program(run.starting_at(self.next))
    }
}
