//! Frames: what the ordered exchange between two ranks puts on an edge.
//!
//! # Contract
//!
//! * A frame is a tag, an opaque header and any number of segments. The receiver needs to know none
//!   of their sizes: it learns them from the frame's own [preface], checks them against
//!   fixed limits before it allocates, and asks its user for the destinations.
//! * Preface, sizes, header and all segments of at most one step form one **stream** of bytes,
//!   packed into steps without gaps, so a small frame is one step (or one line of 56 bytes). Larger
//!   segments follow, each as a message of its own ([`transfer`](super::transfer)): offered, direct
//!   or in steps, as the edge allows.
//! * Every step carries the identity of its frame (sequence number and kind), every large segment
//!   its own (also place and length), so a frame that is out of step is noticed by its first one.
//! * What the peer wrote is copied to private memory once and parsed there.
//! * [`FrameSend`] and [`FrameRecv`] are resumable and never block. After an error the edge is out
//!   of step, and its lane is [poisoned](crate::lane::poison).

pub(crate) mod ack;
pub(crate) mod preface;
mod recv;
mod send;
mod short;

pub(crate) use recv::{FrameRecv, Received};
pub(crate) use send::FrameSend;

use comm_core::{Algorithm, DType, OperationKind, Signature};

use crate::edge::ends::Identity;

/// The signature of a frame: all that both ends know of it beforehand.
pub(crate) const fn frame_signature(sequence: u64) -> Signature {
    Signature {
        sequence,
        kind: OperationKind::Frame,
        algorithm: Algorithm::Direct,
        dtype: None,
        op: None,
        root: 0,
        count: 0,
    }
}

/// The identity of a segment that travels as a message of its own.
const fn segment_identity(sequence: u64, segment: usize, bytes: usize) -> Identity {
    Identity::new(Signature {
        sequence,
        kind: OperationKind::Frame,
        algorithm: Algorithm::Direct,
        dtype: Some(DType::U8),
        op: None,
        root: segment as u32,
        count: bytes as u64,
    })
}

/// Whether a segment travels in the stream.
const fn is_in_stream(bytes: usize, step_bytes: usize) -> bool {
    bytes <= step_bytes
}
