//! Which algorithm carries out a request.

use comm_core::{Algorithm, Error, ErrorKind, OperationKind, Result};

use super::{PlanConfig, Request};

/// More ranks than this never exchange everything with everybody if there is a tree for it: the edges
/// alone, n - 1 for each rank, take longer to connect than a tree's extra hops ever cost.
pub(crate) const MOST_ONE_SHOT_RANKS: u32 = 16;

/// Between two ranks an all-reduce from this size on works on mapped memory by shares: below, each rank
/// reads all that the other one has, which takes one round less.
const MAPPED_BY_TWO_FROM_BYTES: usize = 256 << 10;

/// The same between more ranks, which otherwise reduce in a ring or at once from there on.
const MAPPED_FROM_BYTES: usize = 128 << 10;

/// What planning has to know of the ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct World {
    /// Number of ranks.
    pub(super) size: u32,
    /// Whether all ranks reach each other's memory.
    pub(super) shares_memory: bool,
    /// Whether all ranks may have mapped memory of each other.
    pub(super) maps_memory: bool,
}

impl World {
    /// Whether an all-reduce of so many bytes is worth asking whether it is on mapped memory.
    const fn maps(&self, block_bytes: usize) -> bool {
        let from_bytes = if self.size == 2 {
            MAPPED_BY_TWO_FROM_BYTES
        } else {
            MAPPED_FROM_BYTES
        };
        self.maps_memory && self.size <= MOST_ONE_SHOT_RANKS && block_bytes >= from_bytes
    }
}

/// The first algorithm in the order of [`preference`] that the configuration allows.
///
/// # Errors
///
/// If the configuration allows none that can carry out the operation, or nothing can.
pub(super) fn choose(
    config: &PlanConfig,
    world: World,
    request: &Request,
    block_bytes: usize,
) -> Result<Algorithm> {
    // The only one; a filter for data-moving algorithms does not concern it.
    if request.kind == OperationKind::Barrier {
        return Ok(Algorithm::Dissemination);
    }
    let candidates = preference(config, world, request.kind, block_bytes);
    if candidates.is_empty() {
        return Err(
            Error::new(ErrorKind::Unsupported, "this operation is not a collective")
                .with("operation", request.kind),
        );
    }
    candidates
        .iter()
        .copied()
        .find(|algorithm| config.allows(*algorithm))
        .ok_or_else(|| {
            let names = |list: &[Algorithm]| {
                let names: Vec<_> = list.iter().map(|one| one.as_str()).collect();
                names.join(", ")
            };
            Error::new(
                ErrorKind::InvalidConfiguration,
                format!(
                    "the algorithms that the configuration allows cannot carry out this \
                     operation; allow one of {}",
                    names(candidates)
                ),
            )
            .with("operation", request.kind)
            .with("allowed", names(&config.algorithms))
        })
}

/// The algorithms that can carry out an operation, best first.
fn preference(
    config: &PlanConfig,
    world: World,
    kind: OperationKind,
    block_bytes: usize,
) -> &'static [Algorithm] {
    use Algorithm::{DirectMapped, DirectShared, DoubleTree, OneShot, Ring};
    let whole_bytes = block_bytes.saturating_mul(world.size as usize);
    let one_shot = whole_bytes <= config.one_shot_bytes;
    let one_shot_or_tree = one_shot && world.size <= MOST_ONE_SHOT_RANKS;
    let tree = world.size >= config.tree_ranks && block_bytes <= config.tree_bytes;
    match kind {
        OperationKind::AllReduce => match (one_shot_or_tree, tree) {
            (true, _) => &[OneShot, DoubleTree, Ring],
            (false, _) if world.shares_memory => &[DirectShared, Ring, DoubleTree, OneShot],
            // A ring of two moves as many bytes, in twice as many hops.
            _ if world.size == 2 && world.maps(block_bytes) => {
                &[DirectMapped, OneShot, DoubleTree, Ring]
            }
            _ if world.size == 2 => &[OneShot, DoubleTree, Ring],
            (false, true) if world.maps(block_bytes) => &[DirectMapped, DoubleTree, Ring, OneShot],
            (false, true) => &[DoubleTree, Ring, OneShot],
            (false, false) if world.maps(block_bytes) => &[DirectMapped, Ring, DoubleTree, OneShot],
            (false, false) => &[Ring, DoubleTree, OneShot],
        },
        // Between two ranks every algorithm is one message, and one round is the simplest.
        OperationKind::Broadcast | OperationKind::Reduce => {
            match (one_shot_or_tree || world.size == 2, tree) {
                (true, _) => &[OneShot, DoubleTree, Ring],
                (false, true) => &[DoubleTree, Ring, OneShot],
                (false, false) => &[Ring, DoubleTree, OneShot],
            }
        }
        OperationKind::AllGather | OperationKind::ReduceScatter if one_shot || world.size == 2 => {
            &[OneShot, Ring]
        }
        OperationKind::AllGather | OperationKind::ReduceScatter => &[Ring, OneShot],
        // A ring moves every block more than once, and gains only fewer edges.
        OperationKind::AllToAll | OperationKind::Gather | OperationKind::Scatter => {
            &[OneShot, Ring]
        }
        _ => &[],
    }
}
