//! The failure of a rank, as it is told to all ranks.
//!
//! # Contract
//!
//! * The first failure that a rank learns of is the one it keeps and reports; later ones are
//!   logged. So the cause is shown, not what followed from it.
//! * Whoever learns of its first failure passes it on over all its links at once. The links of
//!   all ranks form a circulant graph (rank to rank + 2^k), which stays connected after the loss
//!   of several ranks, so a failure reaches everybody in O(log n) hops without any root.

use comm_core::{Error, ErrorKind, Rank};
use serde::{Deserialize, Serialize};

/// The context of an error that says which rank failed.
pub(crate) const FAILED_RANK: &str = "failed_rank";

/// A failure that ends a communicator for all of its ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The rank that noticed the failure.
    pub origin: Rank,
    /// The rank that failed, if it is one.
    pub failed: Option<Rank>,
    /// The class of the failure, as all ranks report it.
    pub kind: ErrorKind,
    /// What happened, with the names of everybody involved.
    pub message: String,
}

/// A [`Failure`] in a frame.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WireFailure {
    origin: Rank,
    failed: Option<Rank>,
    kind: u8,
    message: String,
}

/// Kinds of errors by their number on the wire; the order must never change.
const KINDS: [ErrorKind; 19] = [
    ErrorKind::Internal,
    ErrorKind::InvalidArgument,
    ErrorKind::InvalidConfiguration,
    ErrorKind::Unavailable,
    ErrorKind::Unsupported,
    ErrorKind::Mismatch,
    ErrorKind::Truncated,
    ErrorKind::PeerDied,
    ErrorKind::PeerFailed,
    ErrorKind::CancelledByPeer,
    ErrorKind::Timeout,
    ErrorKind::Aborted,
    ErrorKind::Cancelled,
    ErrorKind::Authentication,
    ErrorKind::Rendezvous,
    ErrorKind::Protocol,
    ErrorKind::ResourceExhausted,
    ErrorKind::System,
    ErrorKind::Poisoned,
];

impl Failure {
    /// The error that every rank reports for this failure.
    #[must_use]
    pub fn to_error(&self) -> Error {
        let error = Error::new(self.kind, self.message.clone()).with("noticed_by", self.origin);
        match self.failed {
            Some(rank) => error.with(FAILED_RANK, rank),
            None => error,
        }
    }

    pub(crate) fn to_wire(&self) -> WireFailure {
        let kind = KINDS
            .iter()
            .position(|kind| *kind == self.kind)
            .unwrap_or(0);
        WireFailure {
            origin: self.origin,
            failed: self.failed,
            kind: u8::try_from(kind).unwrap_or(0),
            message: self.message.clone(),
        }
    }
}

impl From<WireFailure> for Failure {
    fn from(wire: WireFailure) -> Self {
        Self {
            origin: wire.origin,
            failed: wire.failed,
            // A kind of a later release.
            kind: KINDS
                .get(usize::from(wire.kind))
                .copied()
                .unwrap_or(ErrorKind::Internal),
            message: wire.message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_survives_the_wire_and_an_unknown_one_is_internal() {
        for kind in KINDS {
            let failure = Failure {
                origin: 1,
                failed: Some(2),
                kind,
                message: "m".into(),
            };
            assert_eq!(Failure::from(failure.to_wire()), failure);
        }
        let later = WireFailure {
            origin: 0,
            failed: None,
            kind: 200,
            message: String::new(),
        };
        assert_eq!(Failure::from(later).kind, ErrorKind::Internal);
    }

    #[test]
    fn the_error_names_who_noticed_and_who_failed() {
        let failure = Failure {
            origin: 1,
            failed: Some(2),
            kind: ErrorKind::PeerDied,
            message: "m".into(),
        };
        assert_eq!(
            failure.to_error().to_string(),
            "peer died: m (noticed_by=1, failed_rank=2)"
        );
    }
}
