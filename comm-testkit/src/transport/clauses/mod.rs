//! The clauses of the transport contract, one public function each.
//!
//! Each panics if the transport breaks its clause. Call them through
//! [`transport_conformance!`](crate::transport_conformance), or one by one inside
//! [`run`](super::run).

pub mod closing;
pub mod facts;
pub mod setup;
pub mod steps;
pub mod waiting;

use std::time::Duration;

use comm_core::{Algorithm, DType, OperationKind, Signature};

/// Long enough for a thread to fall asleep. A shorter sleep makes a clause weaker, never wrong.
const A_MOMENT: Duration = Duration::from_millis(20);

/// The signature of a message of `bytes`.
fn signature(sequence: u64, bytes: usize) -> Signature {
    Signature {
        sequence,
        kind: OperationKind::PointToPoint,
        algorithm: Algorithm::Direct,
        dtype: Some(DType::U8),
        op: None,
        root: 0,
        count: bytes as u64,
    }
}

/// Contents that differ between steps and between places of a step.
fn pattern(step: u64, bytes: usize) -> Vec<u8> {
    let seed = step.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..bytes as u64)
        .map(|index| ((seed >> (index % 57)) ^ index ^ (index >> 8)) as u8)
        .collect()
}
