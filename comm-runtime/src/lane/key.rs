//! The names of a communicator's lanes.

use std::fmt;

use comm_core::Rank;
use serde::{Deserialize, Serialize};

/// Which lane of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum LaneKey {
    /// All collectives.
    Collective,
    /// Messages to this rank.
    Send(Rank),
    /// Messages from this rank.
    Recv(Rank),
    /// Frames to this rank, and what it tells of them.
    FrameSend(Rank),
    /// Frames from this rank, and what it is told of them.
    FrameRecv(Rank),
}

impl LaneKey {
    /// The peer of a lane for frames.
    pub(crate) const fn frame_peer(self) -> Option<Rank> {
        match self {
            Self::FrameSend(peer) | Self::FrameRecv(peer) => Some(peer),
            Self::Collective | Self::Send(_) | Self::Recv(_) => None,
        }
    }

    /// The other end of this lane of `rank`, as the rank there calls it.
    pub(crate) const fn other_end(self, rank: Rank) -> Self {
        match self {
            Self::Collective => Self::Collective,
            Self::Send(_) => Self::Recv(rank),
            Self::Recv(_) => Self::Send(rank),
            Self::FrameSend(_) => Self::FrameRecv(rank),
            Self::FrameRecv(_) => Self::FrameSend(rank),
        }
    }
}

impl fmt::Display for LaneKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Collective => f.write_str("collective"),
            Self::Send(peer) => write!(f, "send to {peer}"),
            Self::Recv(peer) => write!(f, "recv from {peer}"),
            Self::FrameSend(peer) => write!(f, "send_frame to rank {peer}"),
            Self::FrameRecv(peer) => write!(f, "recv_frame from rank {peer}"),
        }
    }
}
