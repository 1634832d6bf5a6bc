//! Reduce-scatter, in place and out of place. The size is that of all blocks of one rank.

use comm_api::{OperationKind, Result};

use super::blocks::Blocks;
use super::collective::{Kind, Turn};
use crate::number::Number;

#[derive(Debug)]
pub(super) struct ReduceScatter;

impl Kind for ReduceScatter {
    const KIND: OperationKind = OperationKind::ReduceScatter;
    const REDUCES: bool = true;

    fn call<T: Number>(turn: &Turn<'_>, input: &[T], output: &mut [T]) -> Result<()> {
        if turn.case.in_place {
            turn.comm.reduce_scatter(output, turn.op).map(drop)
        } else {
            let block = output.len() / turn.ranks() as usize;
            let output = &mut output[..block];
            turn.comm.reduce_scatter_into(input, output, turn.op)
        }
    }

    fn check<T: Number>(turn: &Turn<'_>, input: &mut [T], output: &mut [T]) -> Result<u64> {
        let (rank, op) = (turn.rank(), turn.op);
        let blocks = Blocks::new(turn);
        let expected = blocks.reduced::<T>(op, rank);
        expected.spoiled().fill(&mut output[blocks.range(0)]);
        let source = turn.source(input, output);
        blocks.fill(source, |receiver| blocks.operand::<T>(op, rank, receiver));
        Self::call(turn, input, output)?;
        let own = blocks.range(if turn.case.in_place { rank } else { 0 });
        Ok(expected.count_wrong(&output[own], Some(op), turn.ranks()))
    }
}
