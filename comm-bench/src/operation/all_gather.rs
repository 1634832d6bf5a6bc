//! All-gather, in place and out of place. The size is that of the gathered buffer.

use std::ops::Range;

use comm_api::{OperationKind, Result};

use super::blocks::Blocks;
use super::collective::{Kind, Turn};
use crate::number::Number;

#[derive(Debug)]
pub(super) struct AllGather;

impl Kind for AllGather {
    const KIND: OperationKind = OperationKind::AllGather;

    fn own(turn: &Turn<'_>, len: usize) -> Range<usize> {
        if turn.case.in_place {
            let block = len / turn.ranks() as usize;
            let start = turn.rank() as usize * block;
            start..start + block
        } else {
            0..len / turn.ranks() as usize
        }
    }

    fn call<T: Number>(turn: &Turn<'_>, input: &[T], output: &mut [T]) -> Result<()> {
        if turn.case.in_place {
            turn.comm.all_gather(output)
        } else {
            let block = output.len() / turn.ranks() as usize;
            turn.comm.all_gather_into(&input[..block], output)
        }
    }

    fn check<T: Number>(turn: &Turn<'_>, input: &mut [T], output: &mut [T]) -> Result<u64> {
        let blocks = Blocks::new(turn);
        blocks.spoil(output, |owner| blocks.moved::<T>(owner, 0));
        let own = blocks.moved::<T>(turn.rank(), 0);
        if turn.case.in_place {
            own.fill(&mut output[blocks.range(turn.rank())]);
        } else {
            own.fill(&mut input[blocks.range(0)]);
        }
        Self::call(turn, input, output)?;
        Ok(blocks.count_wrong(output, |owner| blocks.moved(owner, 0)))
    }
}
