//! How much memory each rank passes to a collective, and where its parts lie in place.
//!
//! The conventions are NCCL's: where a buffer holds a block for each rank, block `r` is rank `r`'s;
//! in place, there is one buffer, the larger of the two, and the smaller one is the own block in
//! it.

use comm_core::OperationKind;

/// The size of one of a rank's two buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// It is not used.
    Nothing,
    /// One block.
    Block,
    /// A block for each rank.
    Blocks,
}

impl Extent {
    /// Number of blocks among `world_size` ranks.
    #[inline]
    pub(crate) const fn blocks(self, world_size: u32) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Block => 1,
            Self::Blocks => world_size as usize,
        }
    }
}

/// The sizes of a rank's two buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extents {
    pub(crate) input: Extent,
    pub(crate) output: Extent,
}

impl Extents {
    /// What an operation reads and writes on the root, or on another rank.
    #[inline]
    pub(crate) const fn new(kind: OperationKind, is_root: bool) -> Self {
        use Extent::{Block, Blocks, Nothing};
        let (input, output) = match (kind, is_root) {
            (OperationKind::AllGather, _) | (OperationKind::Gather, true) => (Block, Blocks),
            (OperationKind::ReduceScatter, _) | (OperationKind::Scatter, true) => (Blocks, Block),
            (OperationKind::AllToAll, _) => (Blocks, Blocks),
            (OperationKind::Gather | OperationKind::Reduce, false) => (Block, Nothing),
            (OperationKind::Scatter | OperationKind::Broadcast, false) => (Nothing, Block),
            _ => (Block, Block),
        };
        Self { input, output }
    }

    /// The one buffer of an operation in place.
    #[inline]
    pub(crate) const fn in_place(self) -> Extent {
        match (self.input, self.output) {
            (Extent::Blocks, _) | (_, Extent::Blocks) => Extent::Blocks,
            _ => Extent::Block,
        }
    }

    /// At which elements of the one buffer input and output start, in place.
    #[inline]
    pub(crate) const fn in_place_offsets(self, rank: u32, block: usize) -> (usize, usize) {
        let own = rank as usize * block;
        match (self.input, self.output) {
            (Extent::Block, Extent::Blocks) => (own, 0),
            (Extent::Blocks, Extent::Block) => (0, own),
            _ => (0, 0),
        }
    }
}
