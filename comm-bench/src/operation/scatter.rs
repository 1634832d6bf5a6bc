//! Scatter from rank 0, in place and out of place. The size is that of the root's buffer.

use comm_api::{OperationKind, Result};

use super::blocks::Blocks;
use super::collective::{Kind, ROOT, Turn};
use crate::number::Number;

#[derive(Debug)]
pub(super) struct Scatter;

impl Kind for Scatter {
    const KIND: OperationKind = OperationKind::Scatter;

    fn call<T: Number>(turn: &Turn<'_>, input: &[T], output: &mut [T]) -> Result<()> {
        let block = output.len() / turn.ranks() as usize;
        if turn.case.in_place {
            let len = if turn.is_root() { output.len() } else { block };
            turn.comm.scatter(&mut output[..len], ROOT).map(drop)
        } else {
            let input = turn.is_root().then_some(input);
            turn.comm.scatter_into(input, &mut output[..block], ROOT)
        }
    }

    fn check<T: Number>(turn: &Turn<'_>, input: &mut [T], output: &mut [T]) -> Result<u64> {
        let blocks = Blocks::new(turn);
        let own = blocks.moved::<T>(ROOT, turn.rank());
        own.spoiled().fill(&mut output[blocks.range(0)]);
        if turn.is_root() {
            let source = turn.source(input, output);
            blocks.fill(source, |receiver| blocks.moved::<T>(ROOT, receiver));
        }
        Self::call(turn, input, output)?;
        // The root's own block is block 0, the others have only one.
        Ok(own.count_wrong(&output[blocks.range(0)], None, turn.ranks()))
    }
}
