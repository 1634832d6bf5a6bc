//! The dissemination barrier of Hensgen, Finkel and Manber, "Two algorithms for barrier
//! synchronization" (1988).

use super::Primitive;

/// In round `k` every rank tells the one `2^k` ahead of it that it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dissemination {
    /// Number of rounds: the logarithm of the number of ranks, rounded up.
    pub(crate) rounds: usize,
}

impl Dissemination {
    pub(super) const fn len(&self) -> usize {
        2 * self.rounds
    }

    pub(super) fn primitive(&self, index: usize) -> Primitive {
        let round = index / 2;
        if index.is_multiple_of(2) {
            Primitive {
                send: Some(round),
                ..Primitive::default()
            }
        } else {
            Primitive {
                receive: Some(round),
                ..Primitive::default()
            }
        }
    }
}
