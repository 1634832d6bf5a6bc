//! Messages: any serialisable value, with the tensors in it apart.
//!
//! # Contract
//!
//! * A message is a value of any type that serde can serialise. The [`Tensor`]s in it, at any depth,
//!   travel as segments beside the serialised rest, without a copy on the way; equal handles travel
//!   once and arrive as clones of one tensor. What the tensors hold is never looked at, so every
//!   element type can travel.
//! * A tensor, a list of tensors and a dictionary of tensors are sent in a form that does not depend
//!   on the container: a `Vec` arrives as a tuple, array or any sequence, a map as any map or as a
//!   struct with these fields; the order is kept. Any other value arrives as the type that was sent.
//!   It is encoded by postcard, which says nothing about types: with another type the bytes may
//!   happen to decode to nonsense. No code travels.
//! * Tensors may be [compressed](crate::compression) on the way. The layouts in the header are always
//!   those of the tensors, and `blocks` behind them says what was compressed to how many bytes.
//! * Everything that can be wrong with a message is found before anything is sent.
//! * Whatever arrives ends in a value or an error: sizes are compared with what is there before
//!   memory is taken.

pub(crate) mod blocks;
mod decode;
mod dict;
mod encode;
mod piggyback;
mod shape;
#[cfg(test)]
mod tests;
pub(crate) mod wire;

use std::fmt;

use comm_core::{Error, ErrorKind, Result};

pub(crate) use decode::{announced, decode};
pub use dict::TensorDict;
pub(crate) use encode::{Encoded, check_contiguous, check_tensor, encode};
pub use piggyback::{MAX_PIGGYBACK_BYTES, Piggyback, Received};

#[cfg(doc)]
use comm_core::Tensor;

/// What a message consists of.
///
/// The discriminants travel between processes and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MessageKind {
    /// One tensor.
    Tensor = 0,
    /// A sequence or tuple of tensors and nothing else, or of nothing.
    List = 1,
    /// A map from texts to tensors and nothing else, or to nothing.
    Dict = 2,
    /// Any value without a tensor.
    Object = 3,
    /// Any other value with tensors in it.
    Structure = 4,
}

impl MessageKind {
    const ALL: [Self; 5] = [
        Self::Tensor,
        Self::List,
        Self::Dict,
        Self::Object,
        Self::Structure,
    ];

    /// The kind with this discriminant.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] for a number that no version of the library assigned.
    pub fn from_wire(code: u8) -> Result<Self> {
        let kind = Self::ALL.into_iter().find(|kind| *kind as u8 == code);
        kind.ok_or_else(|| {
            Error::new(ErrorKind::Protocol, "unknown kind of message on the wire")
                .with("code", code)
        })
    }

    /// The name as printed in messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tensor => "tensor",
            Self::List => "list of tensors",
            Self::Dict => "dictionary of tensors",
            Self::Object => "object",
            Self::Structure => "structure with tensors",
        }
    }
}

impl fmt::Display for MessageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Set in the first byte of a header if a piggyback follows.
const HAS_PIGGYBACK: u8 = 1;
/// Set in the first byte of a header if the last segment is the body.
const BODY_IN_SEGMENT: u8 = 2;
/// Set in the first byte of a header if some tensors are compressed; their blocks are described
/// behind the layouts.
const COMPRESSED: u8 = 4;
