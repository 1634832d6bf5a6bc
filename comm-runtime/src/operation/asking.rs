//! When an all-reduce asks whether it is on mapped memory: [`Asking`].
//!
//! # Contract
//!
//! * Asking costs a step on each edge before data can move, which among more ranks than CPUs is a sixth
//!   of an all-reduce of 1 MiB. A program whose buffers are not mapped should not pay that with
//!   every call, one whose buffers are should have the answer with every call.
//! * So after an all-reduce that somebody refused the next one of about this size goes the other way
//!   unasked, after a second refusal the next two, then the next four, at most [`MOST_UNASKED`]. One that
//!   was on mapped memory takes that back.
//! * **All ranks decide alike.** What came out of asking is the same on all ranks, collectives of a lane
//!   are carried out one after the other in one order, and nothing else counts here. An operation that
//!   ends in any other way ends the communicator.

/// The most operations that go unasked between two that ask.
const MOST_UNASKED: u32 = 64;

/// How many sizes are told apart.
const SIZES: usize = 16;

/// What a lane remembers of the answers.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    sizes: [Memory; SIZES],
}

/// What is remembered of operations of some sizes.
#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    /// How many more go unasked.
    unasked: u32,
    /// How many did after the last refusal.
    last: u32,
}

impl Asking {
    /// Whether an operation of so many bytes, which begins now, has to ask.
    pub(crate) fn begin(&mut self, bytes: usize) -> bool {
        let memory = self.of(bytes);
        let asks = memory.unasked == 0;
        memory.unasked = memory.unasked.saturating_sub(1);
        asks
    }

    /// Notes what came out of asking.
    pub(crate) fn note(&mut self, bytes: usize, is_mapped: bool) {
        let memory = self.of(bytes);
        *memory = if is_mapped {
            Memory::default()
        } else {
            let unasked = (memory.last * 2).clamp(1, MOST_UNASKED);
            Memory {
                unasked,
                last: unasked,
            }
        };
    }

    fn of(&mut self, bytes: usize) -> &mut Memory {
        // Sizes that share a place are treated as one, which costs time and nothing else. The constant
        // is that of Fibonacci hashing: the golden ratio of 2^64.
        let mixed = (bytes as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &mut self.sizes[(mixed >> 60) as usize % SIZES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of the next operations ask, if the answer is always the same.
    fn asked(asking: &mut Asking, bytes: usize, is_mapped: bool, count: usize) -> Vec<usize> {
        let mut asked = Vec::new();
        for number in 0..count {
            if asking.begin(bytes) {
                asking.note(bytes, is_mapped);
                asked.push(number);
            }
        }
        asked
    }

    #[test]
    fn refusals_are_asked_for_less_and_less_but_never_given_up() {
        let mut asking = Asking::default();
        let at = asked(&mut asking, 1 << 20, false, 300);
        assert_eq!(at, [0, 2, 5, 10, 19, 36, 69, 134, 199, 264]);
    }

    #[test]
    fn mapped_memory_is_asked_for_with_every_call() {
        let mut asking = Asking::default();
        assert_eq!(asked(&mut asking, 1 << 20, true, 5), [0, 1, 2, 3, 4]);
        assert_eq!(asked(&mut asking, 1 << 20, false, 4), [0, 2]);
        // One is still unasked.
        assert_eq!(asked(&mut asking, 1 << 20, true, 4), [1, 2, 3]);
        assert_eq!(asked(&mut asking, 1 << 20, false, 3), [0, 2]);
    }

    #[test]
    fn other_sizes_are_of_no_concern() {
        let mut asking = Asking::default();
        asked(&mut asking, 1 << 20, false, 20);
        assert_eq!(asked(&mut asking, 3 << 20, true, 3), [0, 1, 2]);
    }
}
