//! What clients and servers of a rendezvous table say to each other.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The longest key.
pub(crate) const MAX_KEY_BYTES: usize = 512;

/// The longest value.
pub(crate) const MAX_VALUE_BYTES: usize = 1 << 20;

/// How long a request or a response can be.
pub(crate) const MAX_BYTES: usize = MAX_VALUE_BYTES + MAX_KEY_BYTES + 64;

/// A client's question; answered by the [`Response`] with the same number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) number: u32,
    pub(crate) operation: Operation,
}

/// What a client wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Operation {
    /// Store a value; answered by `Stored`, `Taken` or `Refused`.
    Publish { key: String, value: Bytes },
    /// Wait for a value; answered by `Value` when there is one.
    Lookup { key: String },
    /// Ask for a value; answered by `Value` or `Absent` at once.
    Peek { key: String },
}

/// A server's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Response {
    pub(crate) number: u32,
    pub(crate) answer: Answer,
}

/// The content of a [`Response`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The key holds the value now.
    Stored,
    /// The key holds another value.
    Taken,
    /// The value of the key.
    Value(Bytes),
    /// The key has no value yet.
    Absent,
    /// The table does not take the value, for this reason.
    Refused(String),
}
