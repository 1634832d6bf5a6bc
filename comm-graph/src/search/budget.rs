//! What bounds and directs a search.

/// The steps a search may still take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    left: i64,
    /// A solution was found that cannot be improved at this speed.
    pub(super) perfect: bool,
}

impl Budget {
    pub(super) const fn new(steps: i64) -> Self {
        Self {
            left: steps,
            perfect: false,
        }
    }

    /// The steps left; 0 when none are.
    pub(super) const fn left(self) -> i64 {
        self.left
    }

    pub(super) const fn is_spent(self) -> bool {
        self.perfect || self.left <= 0
    }

    pub(super) fn spend(&mut self) -> bool {
        if self.is_spent() {
            return false;
        }
        self.left -= 1;
        true
    }
}

/// What a channel still has to do besides visiting every endpoint.
#[derive(Clone, Copy)]
pub(super) struct Goal {
    /// The step at which it leaves to a network.
    pub(super) to_net: Option<usize>,
    /// The step at which it returns to its first endpoint.
    pub(super) to_first: Option<usize>,
}

/// How the next endpoint is chosen.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// By score, all possibilities.
    Free,
    /// By index, as the devices are on the PCI bus.
    Bus,
    /// As in the previous channel.
    Replay,
}
