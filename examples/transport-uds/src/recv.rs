//! The receiving end.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use comm_core::net::{MrSlice, NetRecv, Quiesce, Request};
use comm_core::{Error, ErrorKind, Result};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::endpoint::{Direction, Endpoint, Step, failure, hung_up};
use crate::memory;
use crate::send::HEAD_BYTES;

/// Receives: the head, then the contents, and nothing that stands behind them.
#[derive(Debug, Default)]
pub(crate) struct Receiving {
    head: [u8; HEAD_BYTES],
    /// How much of the message under way, with its head, was received.
    received_bytes: usize,
}

impl Direction for Receiving {
    const WANTED: EventFlags = EventFlags::IN;

    unsafe fn step(&mut self, socket: BorrowedFd<'_>, memory: &MrSlice) -> Result<Step> {
        // SAFETY: the caller's promise.
        let room = unsafe { memory::room(memory) };
        let missing = if self.received_bytes < HEAD_BYTES {
            &mut self.head[self.received_bytes..]
        } else {
            // Checked when the head was complete.
            let len_bytes = u64::from_le_bytes(self.head) as usize;
            &mut room[self.received_bytes - HEAD_BYTES..len_bytes]
        };
        let bytes = match recv(socket, missing, RecvFlags::empty()) {
            Ok((0, _)) => return Err(hung_up()),
            Ok((bytes, _)) => bytes,
            Err(Errno::AGAIN) => return Ok(Step::Blocked),
            Err(Errno::INTR) => return Ok(Step::Moved(0)),
            Err(errno) => return Err(failure(errno)),
        };
        self.received_bytes += bytes;
        if self.received_bytes < HEAD_BYTES {
            return Ok(Step::Moved(bytes));
        }
        let len_bytes = check_length(self.head, memory.len_bytes())?;
        if self.received_bytes < HEAD_BYTES + len_bytes {
            return Ok(Step::Moved(bytes));
        }
        self.received_bytes = 0;
        Ok(Step::Done(len_bytes))
    }
}

/// The length of a message, which the peer may have made up, if there is room for it.
fn check_length(head: [u8; HEAD_BYTES], room_bytes: usize) -> Result<usize> {
    let len_bytes = u64::from_le_bytes(head);
    match usize::try_from(len_bytes) {
        Ok(len_bytes) if len_bytes <= room_bytes => Ok(len_bytes),
        _ => Err(Error::new(
            ErrorKind::Truncated,
            "a message is longer than the buffer that was posted for it",
        )
        .with("message_bytes", len_bytes)
        .with("buffer_bytes", room_bytes)),
    }
}

// SAFETY: memory is only written for pending requests, which hold a clone of it, under the lock of
// the endpoint and before the system call returns (N9, N10, N12); quiescing withdraws them (N11).
unsafe impl NetRecv for Endpoint<Receiving> {
    unsafe fn irecv(&mut self, target: &MrSlice) -> Result<Option<Request>> {
        // SAFETY: the caller's promise.
        unsafe { self.post(target) }
    }

    fn test(&mut self, request: &Request) -> Result<Option<usize>> {
        self.outcome(request)
    }

    fn quiesce(&mut self, _deadline: Instant) -> Quiesce {
        self.withdraw()
    }
}
