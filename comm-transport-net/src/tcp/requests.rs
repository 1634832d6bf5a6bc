//! The outstanding requests of one end.
//!
//! A request's token is its number in the order of posting. A number is outstanding until its
//! request was tested done; then its place is free for the number [`CAPACITY`] later.

use comm_core::net::{MrSlice, Request};
use comm_core::{Error, ErrorKind, Result};

/// Requests of one end that can be outstanding.
pub(crate) const CAPACITY: usize = 32;

/// Where a request stands.
#[derive(Debug)]
enum State {
    /// Not under way, or tested.
    Free,
    /// Its memory is still to be read or written.
    Pending(MrSlice),
    /// Done, with this many bytes.
    Done(usize),
}

/// The requests of one end, in the order of posting; completed in that order too.
#[derive(Debug)]
pub(crate) struct Requests {
    states: [State; CAPACITY],
    /// Number of the first that is not done.
    front: u64,
    /// Number of the next to be posted.
    next: u64,
}

impl Requests {
    pub(crate) const fn new() -> Self {
        Self {
            states: [const { State::Free }; CAPACITY],
            front: 0,
            next: 0,
        }
    }

    const fn place(number: u64) -> usize {
        (number % CAPACITY as u64) as usize
    }

    /// Whether one more can be posted.
    pub(crate) const fn has_room(&self) -> bool {
        matches!(self.states[Self::place(self.next)], State::Free)
    }

    /// Whether nothing is pending.
    pub(crate) const fn is_idle(&self) -> bool {
        self.front == self.next
    }

    /// Posts a request that is done already. There must be room and nothing pending.
    pub(crate) fn post_done(&mut self, len_bytes: usize) -> Request {
        let number = self.next;
        self.states[Self::place(number)] = State::Done(len_bytes);
        self.next += 1;
        self.front = self.next;
        Request::from_token(number)
    }

    /// Posts a request behind all others. There must be room.
    pub(crate) fn post(&mut self, memory: &MrSlice) -> Request {
        let number = self.next;
        self.states[Self::place(number)] = State::Pending(memory.clone());
        self.next += 1;
        Request::from_token(number)
    }

    /// The memory of the first that is pending.
    pub(crate) const fn front(&self) -> Option<&MrSlice> {
        match &self.states[Self::place(self.front)] {
            State::Pending(memory) if self.front < self.next => Some(memory),
            _ => None,
        }
    }

    /// Completes the first that is pending, and lets go of its memory.
    pub(crate) fn complete_front(&mut self, len_bytes: usize) {
        self.states[Self::place(self.front)] = State::Done(len_bytes);
        self.front += 1;
    }

    /// Whether the request of this number, which is outstanding, is done.
    pub(crate) const fn is_done(&self, number: u64) -> bool {
        number < self.front
    }

    /// Whether this request is done; says so once.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if it is not outstanding.
    pub(crate) fn test(&mut self, request: &Request) -> Result<Option<usize>> {
        let number = request.token();
        let known = number < self.next && self.next - number <= CAPACITY as u64;
        let state = &mut self.states[Self::place(number)];
        match state {
            State::Done(len_bytes) if known => {
                let len_bytes = *len_bytes;
                *state = State::Free;
                Ok(Some(len_bytes))
            }
            State::Pending(_) if known => Ok(None),
            _ => Err(Error::new(
                ErrorKind::InvalidArgument,
                "the request is not outstanding on this end; it was tested already or belongs to \
                 another one",
            )
            .with("request", number)),
        }
    }

    /// Forgets everything that is pending, and lets go of its memory.
    pub(crate) fn withdraw(&mut self) {
        while self.front < self.next {
            self.states[Self::place(self.front)] = State::Free;
            self.front += 1;
        }
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
    fn n8_a_request_is_done_once_and_makes_room() {
        let mut requests = Requests::new();
        let posted: Vec<_> = (0..CAPACITY).map(|_| requests.post(&memory())).collect();
        assert!(!requests.has_room());
        assert_eq!(requests.test(&posted[0]).unwrap(), None);
        requests.complete_front(5);
        assert!(!requests.has_room(), "not before it was tested");
        assert_eq!(requests.test(&posted[0]).unwrap(), Some(5));
        assert!(requests.test(&posted[0]).is_err());
        assert!(requests.has_room());
        let again = requests.post(&memory());
        assert!(requests.test(&posted[0]).is_err(), "its place is another's");
        assert_eq!(requests.test(&again).unwrap(), None);
        assert!(requests.test(&Request::from_token(u64::MAX)).is_err());
    }

    #[test]
    fn n13_what_is_withdrawn_leaves_what_is_done() {
        let mut requests = Requests::new();
        let (done, pending) = (requests.post(&memory()), requests.post(&memory()));
        requests.complete_front(1);
        requests.withdraw();
        assert!(requests.is_idle() && requests.front().is_none());
        assert_eq!(requests.test(&done).unwrap(), Some(1));
        assert!(requests.test(&pending).is_err());
    }
}
