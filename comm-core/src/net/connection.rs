//! The two ends of a connection.

use std::fmt;
use std::time::Instant;

use bytes::Bytes;

use super::MrSlice;
use crate::{Error, ErrorKind, Result};

/// A send, receive or put that a backend has accepted; to be tested on the end that gave it.
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use = "a request is tested until it is done"]
pub struct Request(u64);

impl Request {
    /// A request with the number by which its end knows it. For backends.
    pub const fn from_token(token: u64) -> Self {
        Self(token)
    }

    /// The number by which the end knows it. For backends.
    #[must_use]
    pub const fn token(&self) -> u64 {
        self.0
    }
}

/// Whether a connection's memory is left alone; see clause N11 of the [contract](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "memory must not be reused unless the answer is `Quiesced`"]
pub enum Quiesce {
    /// Neither backend nor device will touch the memory of this connection's requests again.
    Quiesced,
    /// They may still do.
    StillBusy,
}

/// How far a direct transfer came; see clause N18 of the [contract](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a transfer is called on until it is done"]
pub enum Transfer {
    /// All bytes were moved.
    Done,
    /// Some bytes were moved.
    Moved,
    /// Nothing could be moved.
    Blocked,
}

/// A part of a peer's window; see [`NetBackend::window`](super::NetBackend::window).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteSlice {
    /// What the peer's `window` answered.
    pub window: Bytes,
    /// Where the part begins.
    pub offset_bytes: u64,
}

/// The sending end of a connection, used by one thread at a time.
///
/// # Safety
///
/// As for [`NetBackend`](super::NetBackend).
pub unsafe trait NetSend: Send + fmt::Debug {
    /// Sends the slice as the next message, or `None` if there is no room now (N7).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the slice is not registered here or is longer than
    /// [`NetProperties::max_message_bytes`](super::NetProperties::max_message_bytes); the
    /// connection's failure.
    ///
    /// # Safety
    ///
    /// Until the request has tested done or the connection has quiesced, nobody writes to the
    /// slice.
    unsafe fn isend(&mut self, message: &MrSlice) -> Result<Option<Request>>;

    /// Whether the request is done, and the number of bytes.
    ///
    /// Done means that the slice may be reused, not that the peer has the message.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] for a request that is not outstanding here; the connection's
    /// failure.
    fn test(&mut self, request: &Request) -> Result<Option<usize>>;

    /// Writes the slice into a peer's window, in order with the messages of this connection: a
    /// message that is sent after the put is received after the peer can see what was put.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] unless [`NetProperties::put`](super::NetProperties::put) is set
    /// (the default). A window that is not open, or too small, fails the connection with
    /// [`ErrorKind::Protocol`].
    ///
    /// # Safety
    ///
    /// As for [`NetSend::isend`].
    unsafe fn put(&mut self, source: &MrSlice, target: &RemoteSlice) -> Result<Option<Request>> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "this network has no put; send a message instead",
        )
        .with("bytes", source.len_bytes())
        .with("offset_bytes", target.offset_bytes))
    }

    /// Sends what the network takes of `data`, without a request (N18).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] unless
    /// [`NetProperties::copies_synchronously`](super::NetProperties::copies_synchronously) is set
    /// (the default); [`ErrorKind::InvalidArgument`] for no data, or for another length than that
    /// of the transfer under way; the connection's failure.
    fn send_direct(&mut self, data: &[u8]) -> Result<Transfer> {
        Err(no_direct(data.len()))
    }

    /// Whether [`NetSend::send_direct`] would send something now, or fail.
    fn direct_ready(&mut self) -> bool {
        false
    }

    /// Withdraws all requests and waits until their memory is left alone (N11).
    fn quiesce(&mut self, deadline: Instant) -> Quiesce;
}

/// The receiving end of a connection, used by one thread at a time.
///
/// # Safety
///
/// As for [`NetBackend`](super::NetBackend).
pub unsafe trait NetRecv: Send + fmt::Debug {
    /// Gives the next message a place, or `None` if there is no room for a request now (N7).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the slice is not registered here; the connection's
    /// failure.
    ///
    /// # Safety
    ///
    /// Until the request has tested done or the connection has quiesced, nobody else accesses the
    /// slice.
    unsafe fn irecv(&mut self, target: &MrSlice) -> Result<Option<Request>>;

    /// Whether the request is done, and the length of the message.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] for a request that is not outstanding here,
    /// [`ErrorKind::Truncated`] if the message was longer than the slice; the connection's
    /// failure.
    fn test(&mut self, request: &Request) -> Result<Option<usize>>;

    /// Receives what has come into `data`, without a request (N18).
    ///
    /// # Errors
    ///
    /// As for [`NetSend::send_direct`].
    fn recv_direct(&mut self, data: &mut [u8]) -> Result<Transfer> {
        Err(no_direct(data.len()))
    }

    /// Whether [`NetRecv::recv_direct`] would receive something now, or fail.
    fn direct_ready(&mut self) -> bool {
        false
    }

    /// Withdraws all requests and waits until their memory is left alone (N11).
    fn quiesce(&mut self, deadline: Instant) -> Quiesce;
}

fn no_direct(len_bytes: usize) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "this network has no direct transfers; send a message instead",
    )
    .with("bytes", len_bytes)
}
