//! What rides along with a message: [`Piggyback`] and [`Received`].

use std::fmt;

use bytes::Bytes;
use comm_core::{Error, ErrorKind, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::MessageKind;

/// The most bytes that a piggyback may take.
pub const MAX_PIGGYBACK_BYTES: usize = 64 * 1024;

/// A small serialised value that travels with a message, in its header.
///
/// A message has one or has none; one that holds `None` or `()` is one all the same.
///
/// ```
/// use comm_group::Piggyback;
///
/// let step = Piggyback::new(&("policy", 17_u64))?;
/// assert_eq!(step.get::<(String, u64)>()?, ("policy".to_owned(), 17));
/// # Ok::<(), comm_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Piggyback(Bytes);

impl Piggyback {
    /// Serialises `value`. Tensors in it are copied; they belong into the message.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if it does not serialise, or to more than
    /// [`MAX_PIGGYBACK_BYTES`].
    pub fn new<T: Serialize + ?Sized>(value: &T) -> Result<Self> {
        let bytes = postcard::to_allocvec(value).map_err(|error| {
            Error::new(
                ErrorKind::InvalidArgument,
                format!("the piggyback cannot be serialised: {error}"),
            )
        })?;
        if bytes.len() > MAX_PIGGYBACK_BYTES {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the piggyback is too large; make it a part of the message",
            )
            .with("bytes", bytes.len())
            .with("most_bytes", MAX_PIGGYBACK_BYTES));
        }
        Ok(Self(bytes.into()))
    }

    pub(super) fn received(bytes: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The value.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Mismatch`] if the sender passed a value of another type.
    pub fn get<T: DeserializeOwned>(&self) -> Result<T> {
        let wrong = |reason: &dyn fmt::Display| {
            Error::new(
                ErrorKind::Mismatch,
                format!("the piggyback does not decode as the type that is asked for: {reason}"),
            )
            .with("type", std::any::type_name::<T>())
        };
        match postcard::take_from_bytes(&self.0) {
            Ok((value, [])) => Ok(value),
            Ok((_, _)) => Err(wrong(&"it is longer")),
            Err(error) => Err(wrong(&error)),
        }
    }
}

impl fmt::Debug for Piggyback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Piggyback({} bytes)", self.0.len())
    }
}

/// A message that has arrived.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Received<T> {
    /// The message.
    pub message: T,
    /// What the sender sent along, if it did.
    pub piggyback: Option<Piggyback>,
    /// What kind of message it was.
    pub kind: MessageKind,
}

impl<T> Received<T> {
    /// The message alone.
    #[must_use]
    pub fn into_message(self) -> T {
        self.message
    }
}
