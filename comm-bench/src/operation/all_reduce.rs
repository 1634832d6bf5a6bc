//! All-reduce, in place and out of place.

use comm_api::{OperationKind, Result};

use super::collective::{Kind, Turn};
use crate::number::Number;
use crate::pattern::Pattern;

#[derive(Debug)]
pub(super) struct AllReduce;

impl Kind for AllReduce {
    const KIND: OperationKind = OperationKind::AllReduce;
    const REDUCES: bool = true;

    fn call<T: Number>(turn: &Turn<'_>, input: &[T], output: &mut [T]) -> Result<()> {
        if turn.case.in_place {
            turn.comm.all_reduce(output, turn.op)
        } else {
            turn.comm.all_reduce_into(input, output, turn.op)
        }
    }

    fn check<T: Number>(turn: &Turn<'_>, input: &mut [T], output: &mut [T]) -> Result<u64> {
        let (op, ranks, count) = (turn.op, turn.ranks(), turn.case.count);
        let own = Pattern::of_rank(Some(op), ranks, turn.rank(), turn.round, count);
        let expected = Pattern::<T>::reduced(op, ranks, turn.round, count);
        expected.spoiled().fill(output);
        own.fill(turn.source(input, output));
        Self::call(turn, input, output)?;
        let mut wrong = expected.count_wrong(output, Some(op), ranks);
        if !turn.case.in_place {
            // The input must be as it was.
            wrong += own.count_wrong(input, None, ranks);
        }
        Ok(wrong)
    }
}
