//! Where an error happened.

use std::sync::Arc;

use comm_core::{Edge, Error, Rank};

/// The names of an edge's end, for messages.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    names: Arc<Names>,
}

#[derive(Debug)]
struct Names {
    edge: String,
    peer_rank: Rank,
    peer: String,
    backend: String,
    device: String,
}

impl Place {
    /// The sending end of an edge, whose peer is the receiver, or the other way round.
    pub(crate) fn new(edge: &Edge<'_>, sending: bool, backend: &str, device: &str) -> Self {
        let peer = if sending { edge.receiver } else { edge.sender };
        Self {
            names: Arc::new(Names {
                edge: edge.to_string(),
                peer_rank: peer.rank,
                peer: peer.to_string(),
                backend: backend.to_owned(),
                device: device.to_owned(),
            }),
        }
    }

    /// The error with edge, peer, backend and device.
    pub(crate) fn name(&self, error: Error) -> Error {
        error
            .with("edge", &self.names.edge)
            .with(
                "peer",
                format_args!("{}: {}", self.names.peer_rank, self.names.peer),
            )
            .with("backend", &self.names.backend)
            .with("device", &self.names.device)
    }
}
