//! What an operation *is*, in a form that two ranks can compare.
//!
//! # Contract
//!
//! * Two calls belong together exactly if their [`Signature`]s are equal.
//! * Every step that crosses an edge carries [`Signature::hash`], so a mismatch is noticed by the
//!   first step that arrives. Steps with a slot carry the whole signature, packed
//!   ([`Signature::pack`]), so the error names both sides at once.
//! * Ranks that stay blocked compare whole signatures over the control plane.
//! * The hash is not a protection against forgery; edges are set up between authenticated peers.

use std::fmt;

use crate::{DType, Error, ErrorKind, ReduceOp, Result};

/// The kind of an operation.
///
/// The discriminants travel between processes and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
#[non_exhaustive]
pub enum OperationKind {
    /// Every rank gets the reduction of all ranks' buffers.
    AllReduce = 1,
    /// Every rank gets the root's buffer.
    Broadcast = 2,
    /// The root gets the reduction of all ranks' buffers.
    Reduce = 3,
    /// Every rank gets the concatenation of all ranks' buffers.
    AllGather = 4,
    /// Every rank gets its block of the reduction of all ranks' buffers.
    ReduceScatter = 5,
    /// Every rank sends one block to every rank.
    AllToAll = 6,
    /// The root gets the concatenation of all ranks' buffers.
    Gather = 7,
    /// Every rank gets its block of the root's buffer.
    Scatter = 8,
    /// Nobody passes before everybody has come.
    Barrier = 9,
    /// A message from one rank to another (the same kind on both sides).
    PointToPoint = 10,
    /// The page that proves a new edge.
    Prove = 11,
    /// A frame from one rank to another (the same kind on both sides).
    Frame = 12,
    /// What the receiver of frames tells their sender.
    FrameAck = 13,
}

impl OperationKind {
    const ALL: [Self; 13] = [
        Self::AllReduce,
        Self::Broadcast,
        Self::Reduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::AllToAll,
        Self::Gather,
        Self::Scatter,
        Self::Barrier,
        Self::PointToPoint,
        Self::Prove,
        Self::Frame,
        Self::FrameAck,
    ];

    /// The name as printed in messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllToAll => "all_to_all",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::Barrier => "barrier",
            Self::PointToPoint => "send/recv",
            Self::Prove => "prove",
            Self::Frame => "frame",
            Self::FrameAck => "frame acknowledgement",
        }
    }
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a collective is carried out; all ranks must agree on it.
///
/// The discriminants travel between processes and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
#[non_exhaustive]
pub enum Algorithm {
    /// One message between two ranks.
    Direct = 1,
    /// Everybody sends to everybody (or the root to everybody) in one round.
    OneShot = 2,
    /// Chunks travel around a ring of all ranks.
    Ring = 3,
    /// Chunks travel up and down two complementary binary trees.
    DoubleTree = 4,
    /// In round `k` every rank tells the one `2^k` ahead of it.
    Dissemination = 5,
    /// Threads of one process: every rank works on its share of all ranks' buffers in place.
    DirectShared = 6,
    /// Processes of one host: every rank reduces its share of what it has mapped of the others'
    /// buffers, and copies the others' shares.
    DirectMapped = 7,
}

impl Algorithm {
    /// Every algorithm, in the order of the discriminants.
    pub const ALL: [Self; 7] = [
        Self::Direct,
        Self::OneShot,
        Self::Ring,
        Self::DoubleTree,
        Self::Dissemination,
        Self::DirectShared,
        Self::DirectMapped,
    ];

    /// The name as printed and as accepted by [`Algorithm::from_str`](std::str::FromStr).
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::OneShot => "one_shot",
            Self::Ring => "ring",
            Self::DoubleTree => "double_tree",
            Self::Dissemination => "dissemination",
            Self::DirectShared => "direct_shared",
            Self::DirectMapped => "direct_mapped",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Algorithm {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.as_str() == name)
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidArgument,
                    "unknown algorithm; use one of direct, one_shot, ring, double_tree, dissemination, \
                     direct_shared, direct_mapped",
                )
                .with("algorithm", name)
            })
    }
}

/// Everything in which two matching calls must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Signature {
    /// Position in the lane's order: collectives of one communicator, or messages of one
    /// direction between two ranks. Starts at 0.
    pub sequence: u64,
    /// What is done.
    pub kind: OperationKind,
    /// How it is done.
    pub algorithm: Algorithm,
    /// Element type; `None` for operations without data.
    pub dtype: Option<DType>,
    /// Reduction operator; `None` for operations that only move.
    pub op: Option<ReduceOp>,
    /// Root rank; 0 for operations without a root.
    pub root: u32,
    /// Number of elements.
    pub count: u64,
}

/// A signature in 24 bytes, as it stands in a slot's descriptor.
pub type PackedSignature = [u64; 3];

impl Signature {
    /// A 31-bit hash of the signature, cheap enough for every call.
    ///
    /// The multiply-and-fold mixing of 64-bit words follows the construction known from wyhash:
    /// a full 64x64-bit product whose halves are combined by exclusive or.
    #[must_use]
    #[inline]
    pub const fn hash(&self) -> u32 {
        let [sequence, shape, count] = self.pack();
        let first = fold(
            sequence ^ 0x9e37_79b9_7f4a_7c15,
            shape ^ 0xd6e8_feb8_6659_fd93,
        );
        let second = fold(first ^ count, 0xa076_1d64_78bd_642f);
        ((second >> 33) as u32) & 0x7fff_ffff
    }

    /// The signature in three words.
    #[must_use]
    #[inline]
    pub const fn pack(&self) -> PackedSignature {
        let dtype = match self.dtype {
            Some(dtype) => dtype as u64,
            None => 0,
        };
        let op = match self.op {
            Some(op) => op as u64,
            None => 0,
        };
        let shape = self.kind as u64
            | (self.algorithm as u64) << 8
            | dtype << 16
            | op << 24
            | (self.root as u64) << 32;
        [self.sequence, shape, self.count]
    }

    /// The signature that [`Signature::pack`] packed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] if a field holds a number that no version of the library assigned.
    pub fn unpack([sequence, shape, count]: PackedSignature) -> Result<Self> {
        let bytes = shape.to_le_bytes();
        let bad = |field: &'static str, code: u8| {
            Error::new(
                ErrorKind::Protocol,
                "a step's signature holds an unknown code",
            )
            .with("field", field)
            .with("code", code)
        };
        Ok(Self {
            sequence,
            kind: OperationKind::ALL
                .into_iter()
                .find(|kind| *kind as u8 == bytes[0])
                .ok_or_else(|| bad("kind", bytes[0]))?,
            algorithm: Algorithm::ALL
                .into_iter()
                .find(|algorithm| *algorithm as u8 == bytes[1])
                .ok_or_else(|| bad("algorithm", bytes[1]))?,
            dtype: if bytes[2] == 0 {
                None
            } else {
                Some(DType::from_wire(bytes[2])?)
            },
            op: if bytes[3] == 0 {
                None
            } else {
                Some(ReduceOp::from_wire(bytes[3])?)
            },
            root: (shape >> 32) as u32,
            count,
        })
    }
}

#[inline]
const fn fold(a: u64, b: u64) -> u64 {
    let product = (a as u128) * (b as u128);
    (product as u64) ^ ((product >> 64) as u64)
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}", self.kind, self.sequence)?;
        if let Some(dtype) = self.dtype {
            write!(f, " of {} {dtype}", self.count)?;
        }
        if let Some(op) = self.op {
            write!(f, " {op}")?;
        }
        if matches!(
            self.kind,
            OperationKind::Broadcast
                | OperationKind::Reduce
                | OperationKind::Gather
                | OperationKind::Scatter
        ) {
            write!(f, " root {}", self.root)?;
        }
        write!(f, " by {}", self.algorithm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Signature {
        Signature {
            sequence: 5,
            kind: OperationKind::AllReduce,
            algorithm: Algorithm::Ring,
            dtype: Some(DType::F32),
            op: Some(ReduceOp::Sum),
            root: 0,
            count: 1000,
        }
    }

    #[test]
    fn a_packed_signature_comes_back_whole() {
        let mut signature = example();
        signature.root = u32::MAX;
        assert_eq!(Signature::unpack(signature.pack()).unwrap(), signature);
        signature.dtype = None;
        signature.op = None;
        assert_eq!(Signature::unpack(signature.pack()).unwrap(), signature);
    }

    #[test]
    fn every_field_changes_the_hash() {
        let base = example();
        let changed = [
            Signature {
                sequence: 6,
                ..base
            },
            Signature {
                kind: OperationKind::Broadcast,
                ..base
            },
            Signature {
                algorithm: Algorithm::OneShot,
                ..base
            },
            Signature {
                dtype: Some(DType::F64),
                ..base
            },
            Signature {
                op: Some(ReduceOp::Max),
                ..base
            },
            Signature { root: 1, ..base },
            Signature {
                count: 1001,
                ..base
            },
        ];
        for other in changed {
            assert_ne!(base.hash(), other.hash(), "{base} and {other}");
        }
        assert!(base.hash() <= 0x7fff_ffff);
    }

    #[test]
    fn unknown_codes_are_protocol_errors() {
        assert_eq!(
            Signature::unpack([0, 0, 0]).unwrap_err().kind(),
            ErrorKind::Protocol
        );
        assert_eq!(
            Signature::unpack([0, 0x00ff_0301, 0]).unwrap_err().kind(),
            ErrorKind::Protocol
        );
    }

    #[test]
    fn the_text_names_what_must_agree() {
        assert_eq!(
            example().to_string(),
            "all_reduce #5 of 1000 f32 sum by ring"
        );
    }
}
