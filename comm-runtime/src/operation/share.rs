//! How the elements of a reduction are shared out among the ranks that work on each other's memory.

/// Shares begin at multiples of this many bytes, so that no two ranks write to one cache line of
/// buffers that are aligned to it.
const SHARE_ALIGN_BYTES: usize = 64;

/// The elements that one rank reduces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) start: usize,
    pub(super) count: usize,
}

impl Share {
    pub(super) fn of(rank: usize, ranks: usize, count: usize, element_bytes: usize) -> Self {
        let grain = (SHARE_ALIGN_BYTES / element_bytes).max(1);
        let each = count.div_ceil(ranks).next_multiple_of(grain);
        let start = (rank * each).min(count);
        Self {
            start,
            count: each.min(count - start),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_all_elements_once_whatever_their_number() {
        for ranks in 1..=9 {
            for count in [0, 1, 7, 15, 16, 17, 1000, 4099, 100_003] {
                for element_bytes in [1, 2, 8, 100] {
                    let mut next = 0;
                    for rank in 0..ranks {
                        let share = Share::of(rank, ranks, count, element_bytes);
                        assert_eq!(share.start, next, "{rank} of {ranks}, {count} elements");
                        next += share.count;
                    }
                    assert_eq!(next, count);
                }
            }
        }
    }
}
