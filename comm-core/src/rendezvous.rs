//! How the ranks of a job first find each other: [`Rendezvous`].
//!
//! # Contract
//!
//! A rendezvous is a table of bytes that all ranks of one job can reach. It is used only while a
//! communicator starts; afterwards the ranks talk to each other directly.
//!
//! * A key is published once. Publishing it again with the same value is no error, with another
//!   value it is [`ErrorKind::Rendezvous`](crate::ErrorKind): two ranks claim the same place.
//! * [`Rendezvous::lookup`] waits for the key and ends by its deadline with
//!   [`ErrorKind::Timeout`](crate::ErrorKind).
//! * What is read is not trusted: the peers prove that they know the job secret when they connect.
//! * Both methods are cancellation safe: a dropped `lookup` has no effect, a dropped `publish`
//!   has happened or has not.

use std::fmt;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;

use crate::Result;

/// A table in which the ranks of a job leave their addresses.
#[async_trait]
pub trait Rendezvous: Send + Sync + fmt::Debug {
    /// Where the table is, for messages: an address, a path.
    fn describe(&self) -> String;

    /// Stores `value` under `key`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Rendezvous`](crate::ErrorKind) if the key holds another value or the table
    /// cannot be reached by `deadline`.
    async fn publish(&self, key: &str, value: Bytes, deadline: Instant) -> Result<()>;

    /// The value of `key`, as soon as somebody has published it.
    ///
    /// A deadline that has already passed asks once, without waiting.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Timeout`](crate::ErrorKind) if nobody published it by `deadline`,
    /// [`ErrorKind::Rendezvous`](crate::ErrorKind) if the table cannot be reached.
    async fn lookup(&self, key: &str, deadline: Instant) -> Result<Bytes>;
}
