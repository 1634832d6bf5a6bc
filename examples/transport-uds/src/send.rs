//! The sending end.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use comm_core::Result;
use comm_core::net::{MrSlice, NetSend, Quiesce, Request};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use crate::endpoint::{Direction, Endpoint, Step, failure};
use crate::memory;

/// Length of what stands before the contents of a message: their length.
pub(crate) const HEAD_BYTES: usize = 8;

/// Sends: the head, then the contents.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    /// How much of the first pending message, with its head, was sent.
    sent_bytes: usize,
}

impl Direction for Sending {
    const WANTED: EventFlags = EventFlags::OUT;

    unsafe fn step(&mut self, socket: BorrowedFd<'_>, memory: &MrSlice) -> Result<Step> {
        // SAFETY: the caller's promise.
        let contents = unsafe { memory::contents(memory) };
        let head = (contents.len() as u64).to_le_bytes();
        let pieces = [
            IoSlice::new(&head[self.sent_bytes.min(HEAD_BYTES)..]),
            IoSlice::new(&contents[self.sent_bytes.saturating_sub(HEAD_BYTES)..]),
        ];
        let mut nothing = SendAncillaryBuffer::default();
        // No signal: a peer that is gone is an error like others.
        match sendmsg(socket, &pieces, &mut nothing, SendFlags::NOSIGNAL) {
            Ok(bytes) => {
                self.sent_bytes += bytes;
                if self.sent_bytes < HEAD_BYTES + contents.len() {
                    return Ok(Step::Moved(bytes));
                }
                self.sent_bytes = 0;
                Ok(Step::Done(contents.len()))
            }
            Err(Errno::AGAIN) => Ok(Step::Blocked),
            Err(Errno::INTR) => Ok(Step::Moved(0)),
            Err(errno) => Err(failure(errno)),
        }
    }
}

// SAFETY: memory is only read for pending requests, which hold a clone of it, under the lock of the
// endpoint and before the system call returns (N9, N10, N12); quiescing withdraws them (N11).
unsafe impl NetSend for Endpoint<Sending> {
    unsafe fn isend(&mut self, message: &MrSlice) -> Result<Option<Request>> {
        // SAFETY: the caller's promise.
        unsafe { self.post(message) }
    }

    fn test(&mut self, request: &Request) -> Result<Option<usize>> {
        self.outcome(request)
    }

    fn quiesce(&mut self, _deadline: Instant) -> Quiesce {
        self.withdraw()
    }
}
