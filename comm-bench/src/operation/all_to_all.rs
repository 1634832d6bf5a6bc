//! All-to-all, in place and out of place. The size is that of all blocks of one rank.

use comm_api::{OperationKind, Result};

use super::blocks::Blocks;
use super::collective::{Kind, Turn};
use crate::number::Number;

#[derive(Debug)]
pub(super) struct AllToAll;

impl Kind for AllToAll {
    const KIND: OperationKind = OperationKind::AllToAll;

    fn call<T: Number>(turn: &Turn<'_>, input: &[T], output: &mut [T]) -> Result<()> {
        if turn.case.in_place {
            turn.comm.all_to_all(output)
        } else {
            turn.comm.all_to_all_into(input, output)
        }
    }

    fn check<T: Number>(turn: &Turn<'_>, input: &mut [T], output: &mut [T]) -> Result<u64> {
        let rank = turn.rank();
        let blocks = Blocks::new(turn);
        blocks.spoil(output, |owner| blocks.moved::<T>(owner, rank));
        let source = turn.source(input, output);
        blocks.fill(source, |receiver| blocks.moved::<T>(rank, receiver));
        Self::call(turn, input, output)?;
        Ok(blocks.count_wrong(output, |owner| blocks.moved(owner, rank)))
    }
}
