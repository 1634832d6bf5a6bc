//! Gather to rank 0, in place and out of place. The size is that of the gathered buffer.

use std::ops::Range;

use comm_api::{OperationKind, Result};

use super::blocks::Blocks;
use super::collective::{Kind, ROOT, Turn};
use crate::number::Number;

#[derive(Debug)]
pub(super) struct Gather;

impl Kind for Gather {
    const KIND: OperationKind = OperationKind::Gather;

    fn own(turn: &Turn<'_>, len: usize) -> Range<usize> {
        // The root's own block is block 0, the others have only one.
        0..len / turn.ranks() as usize
    }

    fn call<T: Number>(turn: &Turn<'_>, input: &[T], output: &mut [T]) -> Result<()> {
        let block = output.len() / turn.ranks() as usize;
        if turn.case.in_place {
            let len = if turn.is_root() { output.len() } else { block };
            turn.comm.gather(&mut output[..len], ROOT)
        } else {
            let output = turn.is_root().then_some(output);
            turn.comm.gather_into(&input[..block], output, ROOT)
        }
    }

    fn check<T: Number>(turn: &Turn<'_>, input: &mut [T], output: &mut [T]) -> Result<u64> {
        let blocks = Blocks::new(turn);
        blocks.spoil(output, |owner| blocks.moved::<T>(owner, 0));
        let own = blocks.moved::<T>(turn.rank(), 0);
        own.fill(&mut turn.source(input, output)[blocks.range(0)]);
        Self::call(turn, input, output)?;
        if !turn.is_root() {
            return Ok(0);
        }
        Ok(blocks.count_wrong(output, |owner| blocks.moved(owner, 0)))
    }
}
