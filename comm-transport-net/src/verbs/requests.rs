//! The requests of one end, from posting until they are tested.

use std::collections::{HashMap, VecDeque};

use comm_core::net::MrSlice;
use comm_core::{Error, ErrorKind, Result};

/// The requests of one end.
#[derive(Debug, Default)]
pub(super) struct Requests {
    next: u64,
    /// Posted and not completed; the slices stay alive.
    posted: HashMap<u64, MrSlice>,
    /// Completed and not tested, with their lengths.
    done: HashMap<u64, usize>,
    /// Ended by the failure and not tested.
    failed: VecDeque<u64>,
}

impl Requests {
    /// A token for the next request.
    pub(super) const fn token(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Keeps the slice of a request that was posted.
    pub(super) fn posted(&mut self, token: u64, slice: MrSlice) {
        self.posted.insert(token, slice);
    }

    /// How many have a place: those that are not tested yet count.
    pub(super) fn len(&self) -> usize {
        self.posted.len() + self.done.len()
    }

    /// Ends a request; `received_bytes` for a receive, else its own length counts.
    pub(super) fn complete(&mut self, token: u64, received_bytes: Option<usize>) {
        if let Some(slice) = self.posted.remove(&token) {
            let bytes = received_bytes.unwrap_or_else(|| slice.len_bytes());
            self.done.insert(token, bytes);
        }
    }

    /// Ends a request without success.
    pub(super) fn fail(&mut self, token: u64) {
        if self.posted.remove(&token).is_some() {
            self.failed.push_back(token);
        }
    }

    /// Forgets the memory of all requests; the device must have left it.
    pub(super) fn release(&mut self) {
        self.failed
            .extend(self.posted.drain().map(|(token, _)| token));
    }

    /// Whether a request is done, by its token; `failure` is the connection's.
    pub(super) fn test(&mut self, token: u64, failure: Option<&Error>) -> Result<Option<usize>> {
        if let Some(bytes) = self.done.remove(&token) {
            return Ok(Some(bytes));
        }
        let is_known = self.posted.contains_key(&token) || self.failed.contains(&token);
        match failure {
            _ if !is_known => Err(Error::new(
                ErrorKind::InvalidArgument,
                "this request is not outstanding here; a request is tested until it is done",
            )),
            Some(failure) => Err(failure.clone()),
            None => Ok(None),
        }
    }
}
