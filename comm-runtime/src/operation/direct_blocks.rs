//! The blocks of an [`Exchange`](super::program::Exchange) that need no slots.
//!
//! A block of two steps or more goes from the sender's input to the receiver's
//! output by a direct transfer, over every edge that has them. The rest of the program stays as it
//! is, with the primitives of such blocks left out.
//!
//! # Contract
//!
//! * **The sender decides**, and announces it by an empty step in place of the block's first one. Its
//!   signature tells the receiver that the block is that of its own operation, and how long it is,
//!   before a byte of it is written to the output.
//! * A block that may be overwritten before it has left (in an all-to-all in place) goes through
//!   slots. Nothing is received directly before everything has left that it may overwrite; peers whose
//!   blocks go directly take what comes through slots meanwhile, so nobody waits in a circle.
//! * Nothing but a call of [`DirectBlocks::advance`] touches the user's memory, so the operation can
//!   be given up at any time.

use comm_core::Result;

use super::program::{Primitive, Program};
use super::{BlockedOn, Buffers, Ends, Taking, transferred};
use crate::edge::ends::Identity;
use crate::plan::{Plan, Resolved};

/// The blocks of one operation that go directly, and those of which that is not known yet.
#[derive(Debug)]
pub(super) struct DirectBlocks {
    outgoing: Vec<Outgoing>,
    incoming: Vec<Incoming>,
    /// Those that are not done.
    left: usize,
}

#[derive(Debug)]
struct Outgoing {
    index: usize,
    data: *const u8,
    bytes: usize,
    stage: Stage,
}

#[derive(Debug)]
struct Incoming {
    index: usize,
    data: *mut u8,
    bytes: usize,
    /// Length of its first step, if it comes in steps.
    step_bytes: usize,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The announcement is to be sent, or the first step to be looked at.
    Announcing,
    /// The bytes are on their way.
    Moving,
    /// All have arrived, or left.
    Done,
    /// It comes in steps.
    InSteps,
}

// SAFETY: the pointers are used by whoever advances the operation, one thread at a time.
unsafe impl Send for DirectBlocks {}

impl DirectBlocks {
    /// Sees which blocks of a plan whose edges are known can go directly.
    pub(super) fn new(plan: &Plan, buffers: Buffers, ends: &Ends) -> Self {
        let mut blocks = Self {
            outgoing: Vec::new(),
            incoming: Vec::new(),
            left: 0,
        };
        let in_place = plan.request().in_place;
        for (program, resolved) in plan.programs() {
            let exchange = match program {
                Program::Exchange(exchange) if exchange.is_long() => exchange,
                _ => continue,
            };
            let (count, chunk) = (exchange.part.count, exchange.part.chunk);
            let (bytes, element_bytes) = (count * plan.element_bytes, plan.element_bytes);
            if program.keeps_what_it_sends(in_place) {
                for (index, source) in resolved.send.iter().zip(exchange.sources()) {
                    if ends.send[*index].supports_direct() {
                        blocks.outgoing.push(Outgoing {
                            index: *index,
                            data: buffers.input.wrapping_add(source * element_bytes),
                            bytes,
                            stage: Stage::Announcing,
                        });
                    }
                }
            }
            for (index, target) in resolved.recv.iter().zip(exchange.targets()) {
                if ends.recv[*index].supports_direct() {
                    blocks.incoming.push(Incoming {
                        index: *index,
                        data: buffers.output.wrapping_add(target * element_bytes),
                        bytes,
                        step_bytes: chunk * element_bytes,
                        stage: Stage::Announcing,
                    });
                }
            }
        }
        blocks.left = blocks.outgoing.len() + blocks.incoming.len();
        blocks
    }

    /// Whether there are blocks that go, or may come, directly.
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.outgoing.is_empty() && self.incoming.is_empty()
    }

    /// Whether there is nothing left to be done here.
    #[inline]
    pub(super) const fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Whether a primitive is replaced by what happens here.
    #[inline]
    pub(super) fn take(&self, primitive: &Primitive, resolved: &Resolved) -> Taking {
        if self.is_empty() {
            return Taking::Not;
        }
        if let Some(edge) = primitive.send {
            let index = resolved.send[edge];
            if self.outgoing.iter().any(|block| block.index == index) {
                return Taking::Whole;
            }
        }
        if let Some(edge) = primitive.receive {
            let index = resolved.recv[edge];
            let block = self.incoming.iter().find(|block| block.index == index);
            return match block.map(|block| block.stage) {
                None | Some(Stage::InSteps) => Taking::Not,
                Some(Stage::Announcing) => Taking::Unknown(BlockedOn::Step(index)),
                Some(Stage::Moving | Stage::Done) => Taking::Whole,
            };
        }
        Taking::Not
    }

    /// Moves what the network takes and has; whether anything moved.
    ///
    /// Without `may_receive` nothing is written to the output yet.
    pub(super) fn advance(
        &mut self,
        ends: &mut Ends,
        identity: &Identity,
        may_receive: bool,
        budget: &mut usize,
    ) -> Result<bool> {
        let mut moved = false;
        for block in &mut self.outgoing {
            let before = block.stage;
            moved |= block.advance(ends, identity, budget)?;
            self.left -= usize::from(block.stage != before && block.stage == Stage::Done);
        }
        for block in &mut self.incoming {
            let before = block.stage;
            moved |= block.advance(ends, identity, may_receive, budget)?;
            let ended = matches!(block.stage, Stage::Done | Stage::InSteps);
            self.left -= usize::from(block.stage != before && ended);
        }
        Ok(moved)
    }

    /// Names the edges for which it waits; `may_receive` as for [`DirectBlocks::advance`].
    pub(super) fn blocked_on(&self, may_receive: bool, visit: &mut dyn FnMut(BlockedOn)) {
        for block in &self.outgoing {
            match block.stage {
                Stage::Announcing => visit(BlockedOn::Credit(block.index)),
                Stage::Moving => visit(BlockedOn::DirectSend(block.index)),
                Stage::Done | Stage::InSteps => {}
            }
        }
        for block in &self.incoming {
            match block.stage {
                Stage::Announcing => visit(BlockedOn::Step(block.index)),
                Stage::Moving if may_receive => visit(BlockedOn::DirectRecv(block.index)),
                Stage::Moving | Stage::Done | Stage::InSteps => {}
            }
        }
    }
}

impl Outgoing {
    fn advance(
        &mut self,
        ends: &mut Ends,
        identity: &Identity,
        budget: &mut usize,
    ) -> Result<bool> {
        let end = &mut ends.send[self.index];
        let mut moved = false;
        if self.stage == Stage::Announcing {
            if end.try_reserve(0)?.is_none() {
                return Ok(false);
            }
            end.publish(0, identity)?;
            self.stage = Stage::Moving;
            moved = true;
        }
        if self.stage == Stage::Moving {
            // SAFETY: programs stay within the input, which stays valid, and nobody writes to the
            // block before the operation is done or dropped.
            let data = unsafe { std::slice::from_raw_parts(self.data, self.bytes) };
            moved |= transferred(end.send_direct(data)?, &mut self.stage, Stage::Done, budget);
        }
        Ok(moved)
    }
}

impl Incoming {
    fn advance(
        &mut self,
        ends: &mut Ends,
        identity: &Identity,
        may_receive: bool,
        budget: &mut usize,
    ) -> Result<bool> {
        let end = &mut ends.recv[self.index];
        let mut moved = false;
        if self.stage == Stage::Announcing {
            self.stage = match end.try_take_announcement(identity, self.step_bytes)? {
                None => return Ok(false),
                Some(true) => Stage::Moving,
                Some(false) => Stage::InSteps,
            };
            moved = true;
        }
        if self.stage == Stage::Moving && may_receive {
            // SAFETY: programs stay within the output, which stays valid, and nobody else accesses
            // the block before the operation is done or dropped.
            let data = unsafe { std::slice::from_raw_parts_mut(self.data, self.bytes) };
            moved |= transferred(end.recv_direct(data)?, &mut self.stage, Stage::Done, budget);
        }
        Ok(moved)
    }
}
