//! The outstanding requests of one end of a connection.
//!
//! A request is known by its number in the order of posting. It is pending, holding a clone of its
//! memory, until it is completed; then it is outstanding until it was tested.

use std::collections::VecDeque;

use comm_core::net::{MrSlice, Request};

/// Requests of one end that can be outstanding.
pub(crate) const MAX_OUTSTANDING: usize = 16;

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Pending,
    /// Done with this many bytes; it is no request any more.
    Done(usize),
    /// Never posted, tested before, or withdrawn.
    Unknown,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Requests {
    next: u64,
    pending: VecDeque<(u64, MrSlice)>,
    done: Vec<(u64, usize)>,
}

impl Requests {
    pub(crate) fn new() -> Self {
        Self {
            next: 0,
            pending: VecDeque::with_capacity(MAX_OUTSTANDING),
            done: Vec::with_capacity(MAX_OUTSTANDING),
        }
    }

    /// Posts a request behind all others, or says `None` if there is no room (N7).
    pub(crate) fn post(&mut self, memory: &MrSlice) -> Option<Request> {
        if self.pending.len() + self.done.len() == MAX_OUTSTANDING {
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.pending.push_back((number, memory.clone()));
        Some(Request::from_token(number))
    }

    /// The memory of the first pending request.
    pub(crate) fn first(&self) -> Option<&MrSlice> {
        self.pending.front().map(|(_, memory)| memory)
    }

    /// Completes the first pending request, and lets go of its memory.
    pub(crate) fn complete_first(&mut self, len_bytes: usize) {
        if let Some((number, _)) = self.pending.pop_front() {
            self.done.push((number, len_bytes));
        }
    }

    /// Where a request stands; says `Done` once (N8).
    pub(crate) fn test(&mut self, request: &Request) -> Standing {
        let number = request.token();
        if let Some(at) = self.done.iter().position(|(done, _)| *done == number) {
            return Standing::Done(self.done.swap_remove(at).1);
        }
        match self.pending.iter().any(|(pending, _)| *pending == number) {
            true => Standing::Pending,
            false => Standing::Unknown,
        }
    }

    /// Forgets what is pending, and lets go of its memory.
    pub(crate) fn withdraw(&mut self) {
        self.pending.clear();
    }
}

#[cfg(test)]
mod tests {
    use comm_core::device::{Device, HostDevice};
    use comm_core::net::{MemoryRegion, Region};

    use super::*;

    fn memory() -> MrSlice {
        let region = MemoryRegion::new(Region::new(HostDevice.alloc(8).unwrap()), ());
        region.slice(0, 8).unwrap()
    }

    #[test]
    fn n7_there_is_room_again_once_a_request_was_tested_done() {
        let mut requests = Requests::new();
        let posted: Vec<_> = (0..MAX_OUTSTANDING)
            .map(|_| requests.post(&memory()).unwrap())
            .collect();
        requests.complete_first(5);
        assert_eq!(requests.post(&memory()), None, "not before it was tested");
        assert_eq!(requests.test(&posted[0]), Standing::Done(5));
        assert_eq!(requests.test(&posted[0]), Standing::Unknown);
        assert!(requests.post(&memory()).is_some());
    }

    #[test]
    fn n13_what_is_withdrawn_leaves_what_is_done() {
        let mut requests = Requests::new();
        let (done, pending) = (requests.post(&memory()), requests.post(&memory()));
        requests.complete_first(1);
        assert_eq!(requests.test(pending.as_ref().unwrap()), Standing::Pending);
        requests.withdraw();
        assert_eq!(requests.test(&done.unwrap()), Standing::Done(1));
        assert_eq!(requests.test(&pending.unwrap()), Standing::Unknown);
    }
}
