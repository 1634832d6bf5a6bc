//! What a plan comes to if it is short enough to be carried out on the caller's stack.
//!
//! # Contract
//!
//! * A shortcut moves the same steps over the same edges as the plan's algorithm, in the same order, so
//!   an operation can change over from the one to the other at any step. What the peers do is their
//!   own affair.
//! * It is found when the plan is made, so that a call neither divides nor asks what its program is.

use super::Method;
use crate::operation::Fold;
use crate::operation::program::{Primitive, Program};

/// Bytes of the longest step of a [`Round`] and of a pair: longer ones spend their time on copying, and
/// may be offered instead.
const MOST_STEP_BYTES: usize = (16 << 10) - 1;

/// Steps of the longest [`Round`].
const MOST_STEPS: usize = 64;

/// How an operation is begun without a queueable call.
#[derive(Debug)]
pub(crate) enum Shortcut {
    /// A reduction in one round and one chunk between two ranks.
    Pair(Fold),
    /// Any other reduction in one round.
    Fold(Fold),
    /// Steps without arithmetic.
    Round(Round),
}

impl Shortcut {
    /// The shortcut, if there is one, of a plan for blocks of `count` elements.
    pub(super) fn of(
        method: &Method,
        world_size: u32,
        count: usize,
        chunk_elements: usize,
        element_bytes: usize,
    ) -> Option<Self> {
        match method {
            Method::Fold(fold)
                if world_size == 2
                    && count <= chunk_elements
                    && count * element_bytes <= MOST_STEP_BYTES =>
            {
                Some(Self::Pair(*fold))
            }
            Method::Fold(fold) => Some(Self::Fold(*fold)),
            Method::Programs(programs) => Round::of(programs, element_bytes).map(Self::Round),
            Method::Direct => None,
        }
    }
}

/// A program that only sends what is in the input and receives what belongs into the output, step by
/// step; step `i` is the program's primitive `i`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Round {
    pub(crate) steps: Box<[Step]>,
}

/// One step of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) kind: StepKind,
    pub(crate) bytes: usize,
}

/// What a step does; offsets are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepKind {
    /// Sends over the flow's edge of this number.
    Send { edge: usize, from: usize },
    /// Receives over the flow's edge of this number.
    Receive { edge: usize, to: usize },
    /// Copies from input to output.
    Copy { from: usize, to: usize },
}

impl Round {
    fn of(programs: &[Program], element_bytes: usize) -> Option<Self> {
        let [program] = programs else { return None };
        if program.len() > MOST_STEPS {
            return None;
        }
        let steps =
            (0..program.len()).map(|index| Step::of(&program.primitive(index), element_bytes));
        steps.collect::<Option<_>>().map(|steps| Self { steps })
    }
}

impl Step {
    /// The primitive as a step, if it is none that combines, keeps or passes on what it receives.
    fn of(primitive: &Primitive, element_bytes: usize) -> Option<Self> {
        let bytes = primitive.count * element_bytes;
        let is_simple = !primitive.combine
            && primitive.also_receive.is_none()
            && primitive.also_send.is_none()
            && bytes <= MOST_STEP_BYTES;
        if !is_simple {
            return None;
        }
        // Only a step without elements needs no memory.
        let at = |offset: Option<usize>| match offset {
            None if bytes > 0 => None,
            offset => Some(offset.unwrap_or(0) * element_bytes),
        };
        let kind = match *primitive {
            Primitive {
                send: Some(edge),
                receive: None,
                source,
                target: None,
                ..
            } => StepKind::Send {
                edge,
                from: at(source)?,
            },
            Primitive {
                send: None,
                receive: Some(edge),
                source: None,
                target,
                ..
            } => StepKind::Receive {
                edge,
                to: at(target)?,
            },
            Primitive {
                send: None,
                receive: None,
                source,
                target: target @ Some(_),
                ..
            } => StepKind::Copy {
                from: at(source)?,
                to: at(target)?,
            },
            _ => return None,
        };
        Some(Self { kind, bytes })
    }
}
