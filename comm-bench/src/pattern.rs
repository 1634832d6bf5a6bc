//! What buffers hold before and after a checked call.
//!
//! A pattern repeats after a prime number of elements. No displacement by a chunk, slice or step
//! (all multiples of 64 bytes and far smaller than the 64 x 4093 elements after which both would
//! coincide) maps it onto itself, so data that arrives at the wrong place is noticed; and filling
//! and comparing run at the speed of memory, so that large sizes can be checked too. Each round of
//! checks has other values: what an earlier round left behind is not taken for a result.

use comm_api::ReduceOp;

use crate::number::Number;

/// The elements after which a pattern repeats.
const PERIOD: usize = 4093;

/// The contents of a buffer of any length.
#[derive(Clone, Debug)]
pub(crate) struct Pattern<T> {
    block: Vec<T>,
}

impl<T: Number> Pattern<T> {
    /// What `rank` contributes to a reduction, or simply has, in a round of checks; for buffers of
    /// `count` elements.
    pub(crate) fn of_rank(
        op: Option<ReduceOp>,
        ranks: u32,
        rank: u32,
        round: u64,
        count: usize,
    ) -> Self {
        let operand = |element| T::operand(op, ranks, rank, random(rank, element, round));
        Self {
            block: elements(count).map(operand).collect(),
        }
    }

    /// The reduction of what all ranks contribute.
    pub(crate) fn reduced(op: ReduceOp, ranks: u32, round: u64, count: usize) -> Self {
        let mut operands = Vec::with_capacity(ranks as usize);
        let mut reduce = |element| {
            operands.clear();
            let all = (0..ranks)
                .map(|rank| T::operand(Some(op), ranks, rank, random(rank, element, round)));
            operands.extend(all);
            T::reduce(op, &operands)
        };
        Self {
            block: elements(count).map(&mut reduce).collect(),
        }
    }

    /// A pattern of which no element can be taken for that of this one.
    pub(crate) fn spoiled(&self) -> Self {
        Self {
            block: self.block.iter().map(|element| element.spoiled()).collect(),
        }
    }

    /// Writes the pattern over a buffer.
    pub(crate) fn fill(&self, buffer: &mut [T]) {
        for part in buffer.chunks_mut(PERIOD) {
            part.copy_from_slice(&self.block[..part.len()]);
        }
    }

    /// How many elements of `buffer`, the result of `op` over `ranks` ranks, are wrong.
    pub(crate) fn count_wrong(&self, buffer: &[T], op: Option<ReduceOp>, ranks: u32) -> u64 {
        let wrong = buffer.chunks(PERIOD).map(|part| {
            let expected = &self.block[..part.len()];
            if part == expected {
                return 0;
            }
            let pairs = part.iter().zip(expected);
            pairs
                .filter(|(result, expected)| !result.is_right(**expected, op, ranks))
                .count()
        });
        wrong.map(|count| count as u64).sum()
    }
}

/// The numbers of the elements of a pattern's block.
fn elements(count: usize) -> impl Iterator<Item = u64> {
    0..count.min(PERIOD) as u64
}

/// A number that looks random and depends on all of its arguments (the finalizer of SplitMix64,
/// Steele, Lea and Flood 2014).
pub(crate) fn random(rank: u32, element: u64, round: u64) -> u64 {
    let mut z = element
        .wrapping_add(u64::from(rank).wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .wrapping_add(round.wrapping_mul(0xd1b5_4a32_d192_ed03))
        .wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: usize = 2 * PERIOD + 5;

    fn filled(pattern: &Pattern<i32>) -> Vec<i32> {
        let mut buffer = vec![0; COUNT];
        pattern.fill(&mut buffer);
        buffer
    }

    #[test]
    fn the_reduction_of_the_ranks_patterns_is_right() {
        let op = ReduceOp::Sum;
        let ranks: Vec<_> = (0..3)
            .map(|rank| filled(&Pattern::of_rank(Some(op), 3, rank, 7, COUNT)))
            .collect();
        let mut sum: Vec<i32> = (0..COUNT)
            .map(|i| {
                ranks
                    .iter()
                    .fold(0, |sum, rank| i32::wrapping_add(sum, rank[i]))
            })
            .collect();
        let expected = Pattern::reduced(op, 3, 7, COUNT);
        assert_eq!(expected.count_wrong(&sum, Some(op), 3), 0);
        sum[0] ^= 1;
        sum[COUNT - 1] ^= 1;
        assert_eq!(expected.count_wrong(&sum, Some(op), 3), 2);
    }

    #[test]
    fn an_untouched_buffer_is_wrong_everywhere() {
        let pattern = Pattern::<i32>::of_rank(None, 2, 0, 0, COUNT);
        let untouched = filled(&pattern.spoiled());
        assert_eq!(pattern.count_wrong(&untouched, None, 2), COUNT as u64);
    }

    #[test]
    fn displaced_data_is_wrong() {
        let pattern = Pattern::<i32>::of_rank(None, 2, 0, 0, COUNT);
        let mut buffer = filled(&pattern);
        buffer.rotate_left(1024);
        assert!(pattern.count_wrong(&buffer, None, 2) > COUNT as u64 / 2);
    }

    #[test]
    fn what_another_round_or_rank_left_is_wrong() {
        let pattern = Pattern::<i32>::of_rank(None, 2, 0, 5, COUNT);
        for (rank, round) in [(0, 4), (1, 5)] {
            let other = filled(&Pattern::of_rank(None, 2, rank, round, COUNT));
            assert!(pattern.count_wrong(&other, None, 2) > COUNT as u64 / 2);
        }
    }

    #[test]
    fn a_buffer_may_be_empty() {
        let pattern = Pattern::<i32>::reduced(ReduceOp::Max, 2, 0, 0);
        pattern.fill(&mut []);
        assert_eq!(pattern.count_wrong(&[], Some(ReduceOp::Max), 2), 0);
    }
}
