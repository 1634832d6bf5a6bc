//! Broadcast from rank 0, in place and out of place.

use comm_api::{OperationKind, Result};

use super::collective::{Kind, ROOT, Turn};
use crate::number::Number;
use crate::pattern::Pattern;

#[derive(Debug)]
pub(super) struct Broadcast;

impl Kind for Broadcast {
    const KIND: OperationKind = OperationKind::Broadcast;

    fn call<T: Number>(turn: &Turn<'_>, input: &[T], output: &mut [T]) -> Result<()> {
        if turn.case.in_place {
            turn.comm.broadcast(output, ROOT)
        } else {
            turn.comm.broadcast_into(input, output, ROOT)
        }
    }

    fn check<T: Number>(turn: &Turn<'_>, input: &mut [T], output: &mut [T]) -> Result<u64> {
        let (ranks, count) = (turn.ranks(), turn.case.count);
        let expected = Pattern::<T>::of_rank(None, ranks, ROOT, turn.round, count);
        expected.spoiled().fill(output);
        // Everybody but the root holds what must not appear anywhere.
        let source = turn.source(input, output);
        if turn.is_root() {
            expected.fill(source);
        } else {
            expected.spoiled().fill(source);
        }
        Self::call(turn, input, output)?;
        Ok(expected.count_wrong(output, None, ranks))
    }
}
