//! Reduce to rank 0, in place and out of place.

use comm_api::{OperationKind, Result};

use super::collective::{Kind, ROOT, Turn};
use crate::number::Number;
use crate::pattern::Pattern;

#[derive(Debug)]
pub(super) struct Reduce;

impl Kind for Reduce {
    const KIND: OperationKind = OperationKind::Reduce;
    const REDUCES: bool = true;

    fn call<T: Number>(turn: &Turn<'_>, input: &[T], output: &mut [T]) -> Result<()> {
        if turn.case.in_place {
            turn.comm.reduce(output, turn.op, ROOT)
        } else {
            let output = turn.is_root().then_some(output);
            turn.comm.reduce_into(input, output, turn.op, ROOT)
        }
    }

    fn check<T: Number>(turn: &Turn<'_>, input: &mut [T], output: &mut [T]) -> Result<u64> {
        let (op, ranks, count) = (turn.op, turn.ranks(), turn.case.count);
        let own = Pattern::of_rank(Some(op), ranks, turn.rank(), turn.round, count);
        let expected = Pattern::<T>::reduced(op, ranks, turn.round, count);
        expected.spoiled().fill(output);
        own.fill(turn.source(input, output));
        Self::call(turn, input, output)?;
        if turn.is_root() {
            return Ok(expected.count_wrong(output, Some(op), ranks));
        }
        // What is only read must be as it was.
        Ok(own.count_wrong(turn.source(input, output), None, ranks))
    }
}
