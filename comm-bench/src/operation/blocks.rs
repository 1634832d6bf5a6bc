//! What the blocks of a buffer hold before and after a checked call.
//!
//! Each block has a pattern of its own, which depends on who owns and who receives it, so a block
//! at another one's place is noticed.

use std::ops::Range;

use comm_api::ReduceOp;

use super::collective::Turn;
use crate::number::Number;
use crate::pattern::Pattern;

/// The blocks of one round of checks: one for each rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    ranks: u32,
    /// Elements of one block.
    len: usize,
    round: u64,
}

impl Blocks {
    /// The blocks of a case, whose elements are a multiple of the number of ranks.
    pub(super) fn new(turn: &Turn<'_>) -> Self {
        let ranks = turn.ranks();
        Self {
            ranks,
            len: turn.case.count / ranks as usize,
            round: turn.round,
        }
    }

    /// Where the block of `rank` lies in a buffer that holds all of them.
    pub(super) const fn range(&self, rank: u32) -> Range<usize> {
        let start = rank as usize * self.len;
        start..start + self.len
    }

    /// A round of patterns for each block.
    fn round_of(&self, receiver: u32) -> u64 {
        self.round * u64::from(self.ranks) + u64::from(receiver)
    }

    /// The block that `owner` has for `receiver` (0 if it has one block for all).
    pub(super) fn moved<T: Number>(&self, owner: u32, receiver: u32) -> Pattern<T> {
        Pattern::of_rank(None, self.ranks, owner, self.round_of(receiver), self.len)
    }

    /// What `owner` contributes to the reduction for `receiver`.
    pub(super) fn operand<T: Number>(&self, op: ReduceOp, owner: u32, receiver: u32) -> Pattern<T> {
        let round = self.round_of(receiver);
        Pattern::of_rank(Some(op), self.ranks, owner, round, self.len)
    }

    /// The reduction for `receiver`.
    pub(super) fn reduced<T: Number>(&self, op: ReduceOp, receiver: u32) -> Pattern<T> {
        Pattern::reduced(op, self.ranks, self.round_of(receiver), self.len)
    }

    /// Writes a pattern over each block.
    pub(super) fn fill<T: Number>(&self, buffer: &mut [T], pattern: impl Fn(u32) -> Pattern<T>) {
        for rank in 0..self.ranks {
            pattern(rank).fill(&mut buffer[self.range(rank)]);
        }
    }

    /// Writes over each block what cannot be taken for its pattern.
    pub(super) fn spoil<T: Number>(&self, buffer: &mut [T], pattern: impl Fn(u32) -> Pattern<T>) {
        self.fill(buffer, |rank| pattern(rank).spoiled());
    }

    /// How many elements of a buffer of moved blocks are wrong.
    pub(super) fn count_wrong<T: Number>(
        &self,
        buffer: &[T],
        pattern: impl Fn(u32) -> Pattern<T>,
    ) -> u64 {
        let wrong = |rank| pattern(rank).count_wrong(&buffer[self.range(rank)], None, self.ranks);
        (0..self.ranks).map(wrong).sum()
    }
}
