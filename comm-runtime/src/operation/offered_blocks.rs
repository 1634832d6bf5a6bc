//! The blocks of an [`Exchange`](super::program::Exchange) that peers copy from where they are, each for
//! one offer.
//!
//! A block of [`OFFER_FROM_BYTES`] or more, whose receiver reaches this rank's memory, is offered whole
//! and copied straight to where it belongs, in slices that concern nobody but the receiver. The rest of
//! the program stays as it is, with the primitives of such blocks left out.
//!
//! # Contract
//!
//! * **The sender decides**, edge by edge, and the block's first step tells: it offers the whole block, or
//!   it is the first of the block's steps. An offer carries the signature, so a mismatch is found before a
//!   byte is written to the output.
//! * All offers are made before anything is copied. Then slices of the rank's own block and of every block
//!   that has come take turns, so a rank copies its own block while it waits for a peer, and reads two
//!   streams at a time.
//! * A block that may be overwritten before the peer has it (in an all-to-all in place) goes in steps.
//!   Nothing is copied from a peer before everything has left that it may overwrite; peers whose blocks
//!   are offered take what comes in steps meanwhile, so nobody waits in a circle.
//! * After each slice the receiver looks whether the offer stood while it read. If not, the block counts as
//!   one that has not come, and now never will.

use comm_core::Result;
use comm_kernels as kernels;

use super::carry_out::{Context, OFFER_FROM_BYTES};
use super::program::{Primitive, Program};
use super::{BlockedOn, Ends, Taking};
use crate::plan::{Plan, Resolved};

/// Bytes that are copied at a time where nobody is asked for them: two slices and what they become are
/// in the second-level cache together.
const SLICE_BYTES: usize = 64 << 10;

/// Bytes for which the system is asked at a time: it looks at every page either way, and once at the
/// processes.
const PULL_BYTES: usize = 256 << 10;

/// The blocks of one operation that are offered whole, and those of which that is not known yet.
#[derive(Debug)]
pub(super) struct OfferedBlocks {
    /// Bytes of each block.
    bytes: usize,
    /// By sending edge.
    outgoing: Vec<Outgoing>,
    /// By receiving edge.
    incoming: Vec<Incoming>,
    own: Option<Own>,
    /// Blocks that are not done, the own one included.
    left: usize,
}

/// A block that goes to a peer, by its offset in the input.
#[derive(Debug)]
struct Outgoing {
    source: usize,
    stage: Stage,
}

/// A block that comes from a peer, by its offset in the output.
#[derive(Debug)]
struct Incoming {
    target: usize,
    copied: usize,
    stage: Stage,
}

/// The rank's own block.
#[derive(Debug)]
struct Own {
    source: usize,
    target: usize,
    copied: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It is to be offered, or its first step to be looked at.
    Open,
    /// It was offered, and is being copied.
    Moving,
    /// It was copied, or offered.
    Done,
    /// Its offer was taken back.
    Revoked,
    /// It goes in steps.
    InSteps,
}

impl OfferedBlocks {
    /// Sees what there is to be offered or looked for in a plan whose edges are known. Without
    /// `with_own` the rank's own block is left to the program.
    pub(super) fn new(plan: &Plan, context: &Context, with_own: bool) -> Self {
        let bytes = plan.count * plan.element_bytes;
        let mut blocks = Self {
            bytes,
            outgoing: Vec::new(),
            incoming: Vec::new(),
            own: None,
            left: 0,
        };
        let Some((Program::Exchange(exchange), resolved)) = plan.programs().next() else {
            return blocks;
        };
        if bytes < OFFER_FROM_BYTES {
            return blocks;
        }
        let at = |element: usize| element * plan.element_bytes;
        if context.may_offer && !resolved.send.is_empty() {
            let open = |source| Outgoing {
                source: at(source),
                stage: Stage::Open,
            };
            blocks.outgoing = exchange.sources().map(open).collect();
        }
        if !resolved.recv.is_empty() {
            let open = |target| Incoming {
                target: at(target),
                copied: 0,
                stage: Stage::Open,
            };
            blocks.incoming = exchange.targets().map(open).collect();
        }
        if with_own && let Some((source, target)) = exchange.own() {
            blocks.own = Some(Own {
                source: at(source),
                target: at(target),
                copied: 0,
            });
        }
        blocks.left =
            blocks.outgoing.len() + blocks.incoming.len() + usize::from(blocks.own.is_some());
        blocks
    }

    /// Whether there is nothing left to be done here.
    #[inline]
    pub(super) const fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Whether a primitive is replaced by what happens here.
    #[inline]
    pub(super) fn take(&self, primitive: &Primitive, resolved: &Resolved) -> Taking {
        if let Some(edge) = primitive.send {
            return match self.outgoing.get(edge).map(|block| block.stage) {
                None | Some(Stage::InSteps) => Taking::Not,
                Some(Stage::Open) => Taking::Unknown(BlockedOn::Credit(resolved.send[edge])),
                Some(_) => Taking::Whole,
            };
        }
        if let Some(edge) = primitive.receive {
            return match self.incoming.get(edge).map(|block| block.stage) {
                None | Some(Stage::InSteps) => Taking::Not,
                Some(Stage::Open) => Taking::Unknown(BlockedOn::Step(resolved.recv[edge])),
                Some(_) => Taking::Whole,
            };
        }
        if self.own.is_some() {
            Taking::Whole
        } else {
            Taking::Not
        }
    }

    /// Offers what can be offered, and copies a slice of every block that can be copied; whether
    /// anything moved.
    ///
    /// Without `may_receive` nothing is written to the output yet that came from a peer.
    pub(super) fn advance(
        &mut self,
        context: &mut Context,
        plan: &Plan,
        resolved: &Resolved,
        ends: &mut Ends,
        may_receive: bool,
        budget: &mut usize,
    ) -> Result<bool> {
        let before = self.left;
        let mut copied = 0;
        for (block, index) in self.outgoing.iter_mut().zip(&resolved.send) {
            if block.stage != Stage::Open {
                continue;
            }
            let source = context.buffers.input.wrapping_add(block.source);
            block.stage = match context.offer_whole(*index, source, self.bytes, ends)? {
                None => continue,
                Some(true) => Stage::Done,
                Some(false) => Stage::InSteps,
            };
            self.left -= 1;
        }
        if let Some(own) = &mut self.own
            && own.copied < self.bytes
        {
            copied += own.copy_slice(context, plan, self.bytes);
            self.left -= usize::from(own.copied == self.bytes);
        }
        for (block, index) in self.incoming.iter_mut().zip(&resolved.recv) {
            let end = &mut ends.recv[*index];
            if block.stage == Stage::Open {
                block.stage = match end.is_offered(&context.identity, self.bytes)? {
                    None => continue,
                    Some(true) => Stage::Moving,
                    Some(false) => Stage::InSteps,
                };
                self.left -= usize::from(block.stage == Stage::InSteps);
            }
            if block.stage != Stage::Moving || !may_receive {
                continue;
            }
            let slice = if end.is_pulling() {
                PULL_BYTES
            } else {
                SLICE_BYTES
            };
            let now = slice.min(self.bytes - block.copied);
            let to = context
                .buffers
                .output
                .wrapping_add(block.target + block.copied);
            // SAFETY: programs stay within the output, whose length the call checked, and the slice within
            // the block. What is offered belongs to the caller of another rank.
            if !unsafe { end.pull(block.copied, to, now, context.streams) }? {
                block.stage = Stage::Revoked;
                continue;
            }
            block.copied += now;
            copied += now;
            if block.copied == self.bytes {
                end.consume()?;
                block.stage = Stage::Done;
                self.left -= 1;
            }
        }
        *budget = budget.saturating_sub(copied);
        Ok(copied > 0 || self.left < before)
    }

    /// Names the edges for which it waits.
    pub(super) fn blocked_on(&self, resolved: &Resolved, visit: &mut dyn FnMut(BlockedOn)) {
        for (block, index) in self.outgoing.iter().zip(&resolved.send) {
            if block.stage == Stage::Open {
                visit(BlockedOn::Credit(*index));
            }
        }
        for (block, index) in self.incoming.iter().zip(&resolved.recv) {
            // A block that may not be copied yet waits for other edges.
            if matches!(block.stage, Stage::Open | Stage::Revoked) {
                visit(BlockedOn::Step(*index));
            }
        }
    }
}

impl Own {
    /// Copies the next slice to the output; how many bytes that was.
    fn copy_slice(&mut self, context: &Context, plan: &Plan, bytes: usize) -> usize {
        let source = context
            .buffers
            .input
            .wrapping_add(self.source + self.copied);
        let target = context
            .buffers
            .output
            .wrapping_add(self.target + self.copied);
        let now = if std::ptr::eq(source, target) {
            bytes - self.copied
        } else {
            SLICE_BYTES.min(bytes - self.copied)
        };
        if !std::ptr::eq(source, target) {
            let from_bytes = if context.streams { 0 } else { usize::MAX };
            if plan.is_far || context.streams {
                // SAFETY: programs stay within the buffers, whose lengths the call checked; the two ranges
                // are equal (excluded here) or disjoint.
                unsafe { kernels::copy_streaming(target, source, now, from_bytes) };
            } else {
                // SAFETY: as above.
                unsafe { kernels::copy(target, source, now) };
            }
        }
        self.copied += now;
        now
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
