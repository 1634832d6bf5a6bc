//! What a plan comes to if it is short enough to be carried out on the caller's stack.
//!
//! # Contract
//!
//! * A shortcut moves the same steps over the same edges as the plan's algorithm, in the same order, so
//!   an operation can change over from the one to the other at any step. What the peers do is their
//!   own affair. So what may go [without steps](crate::operation) has no list of steps.
//! * It is found when the plan is made, so that a call neither divides nor asks what its program is.

use std::ops::RangeInclusive;

use super::Method;
use crate::operation::program::{Primitive, Program};
use crate::operation::{DirectFold, Fold, OFFER_FROM_BYTES};

/// Bytes of the longest step of a [`Round`] and of a pair: longer ones spend their time on copying, and
/// may be offered instead.
const MOST_STEP_BYTES: usize = OFFER_FROM_BYTES - 1;

/// Bytes of the [blocks](Shortcut::Blocks) that are begun at once: those that may be offered, up to where
/// what a call costs vanishes in the copying.
const BLOCK_BYTES: RangeInclusive<usize> = OFFER_FROM_BYTES..=1 << 20;

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
    /// Blocks that may be [offered whole](crate::operation), by the program's own state machine.
    Blocks,
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
            Method::Fold(_) if DirectFold::is_long_enough(world_size, count, chunk_elements) => {
                None
            }
            Method::Fold(fold) => Some(Self::Fold(*fold)),
            Method::Programs(programs) => {
                let is_exchange = matches!(programs[..], [Program::Exchange(_)]);
                if is_exchange && BLOCK_BYTES.contains(&(count * element_bytes)) {
                    return Some(Self::Blocks);
                }
                Round::of(programs, element_bytes).map(Self::Round)
            }
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
        if program.len() > MOST_STEPS || program.is_long_exchange() {
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

#[cfg(test)]
mod tests {
    use comm_core::{Algorithm, DType, OperationKind, ReduceOp};

    use super::super::{PlanConfig, Planner, Request};
    use super::*;

    const RANKS: u32 = 3;

    fn request(kind: OperationKind, count: usize, in_place: bool) -> Request {
        let reduces = matches!(kind, OperationKind::AllReduce | OperationKind::Reduce);
        Request {
            kind,
            dtype: (kind != OperationKind::Barrier).then_some(DType::F32),
            op: reduces.then_some(ReduceOp::Sum),
            root: 1,
            count,
            in_place,
        }
    }

    fn kinds(rank: u32, request: &Request) -> Vec<StepKind> {
        let planner = Planner::new(rank, RANKS, PlanConfig::default());
        match planner.plan(request).unwrap().shortcut() {
            Some(Shortcut::Round(round)) => {
                let bytes = request.count * 4;
                assert!(round.steps.iter().all(|step| step.bytes == bytes));
                round.steps.iter().map(|step| step.kind).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_root_only_sends_and_the_others_only_receive() {
        let broadcast = request(OperationKind::Broadcast, 2, true);
        let send = |edge| StepKind::Send { edge, from: 0 };
        assert_eq!(kinds(1, &broadcast), [send(0), send(1)]);
        assert_eq!(kinds(0, &broadcast), [StepKind::Receive { edge: 0, to: 0 }]);
        let out_of_place = request(OperationKind::Broadcast, 2, false);
        assert_eq!(
            kinds(1, &out_of_place),
            [send(0), send(1), StepKind::Copy { from: 0, to: 0 }]
        );
    }

    #[test]
    fn what_belongs_to_a_rank_goes_there_by_bytes() {
        // Rank 0 of 3 meets rank 1 first, then rank 2.
        let all_to_all = kinds(0, &request(OperationKind::AllToAll, 5, true));
        assert_eq!(
            all_to_all,
            [
                StepKind::Send { edge: 0, from: 20 },
                StepKind::Send { edge: 1, from: 40 },
                StepKind::Receive { edge: 0, to: 20 },
                StepKind::Receive { edge: 1, to: 40 },
            ]
        );
        let all_gather = kinds(0, &request(OperationKind::AllGather, 5, false));
        assert_eq!(all_gather[2], StepKind::Copy { from: 0, to: 0 });
        assert_eq!(all_gather[4], StepKind::Receive { edge: 1, to: 40 });
    }

    #[test]
    fn a_barrier_needs_no_memory() {
        let steps = kinds(0, &request(OperationKind::Barrier, 0, true));
        assert_eq!(steps.len(), 4);
        assert_eq!(steps[0], StepKind::Send { edge: 0, from: 0 });
        assert_eq!(steps[1], StepKind::Receive { edge: 0, to: 0 });
    }

    #[test]
    fn long_steps_and_those_that_pass_something_on_have_no_shortcut() {
        let shortcut = |request: &Request, algorithms: &[Algorithm]| {
            let config = PlanConfig {
                algorithms: algorithms.to_vec(),
                ..PlanConfig::default()
            };
            let plan = Planner::new(0, RANKS, config).plan(request).unwrap();
            plan.shortcut().is_some()
        };
        let longest = MOST_STEP_BYTES / 4;
        let gather = |count| request(OperationKind::AllGather, count, true);
        assert!(shortcut(&gather(longest), &[Algorithm::OneShot]));
        assert!(!shortcut(
            &gather(BLOCK_BYTES.end() / 4 + 1),
            &[Algorithm::OneShot]
        ));
        assert!(!shortcut(&gather(2), &[Algorithm::Ring]));
        let reduce = request(OperationKind::AllReduce, 2, true);
        assert!(!shortcut(&reduce, &[Algorithm::Ring]));
    }

    #[test]
    fn blocks_that_may_be_offered_are_begun_by_their_program() {
        let planner = Planner::new(0, RANKS, PlanConfig::default());
        for kind in [OperationKind::AllToAll, OperationKind::Scatter] {
            let shortcut = |bytes: usize| {
                let plan = planner.plan(&request(kind, bytes / 4, true)).unwrap();
                plan.shortcut()
                    .map(|shortcut| matches!(shortcut, Shortcut::Blocks))
            };
            assert_eq!(shortcut(BLOCK_BYTES.start() - 4), Some(false));
            assert_eq!(shortcut(*BLOCK_BYTES.start()), Some(true));
            assert_eq!(shortcut(*BLOCK_BYTES.end()), Some(true));
            assert_eq!(shortcut(BLOCK_BYTES.end() + 4), None);
        }
    }

    #[test]
    fn what_may_go_without_steps_has_no_shortcut() {
        let config = PlanConfig {
            step_bytes: 1024,
            ..PlanConfig::default()
        };
        let planner = Planner::new(0, 2, config);
        let has_one = |kind, count| {
            let plan = planner.plan(&request(kind, count, true)).unwrap();
            plan.shortcut().is_some()
        };
        assert!(has_one(OperationKind::AllGather, 511));
        assert!(!has_one(OperationKind::AllGather, 512));
        assert!(has_one(OperationKind::AllReduce, 1023));
        assert!(!has_one(OperationKind::AllReduce, 1024));
    }

    #[test]
    fn reductions_in_one_round_have_one_and_pairs_a_shorter_one() {
        let shortcut = |ranks, count| {
            let planner = Planner::new(0, ranks, PlanConfig::default());
            let plan = planner.plan(&request(OperationKind::AllReduce, count, true));
            format!("{:?}", plan.unwrap().shortcut())
        };
        assert!(shortcut(2, 2).starts_with("Some(Pair"));
        assert!(shortcut(2, MOST_STEP_BYTES).starts_with("Some(Fold"));
        assert!(shortcut(3, 2).starts_with("Some(Fold"));
    }
}
