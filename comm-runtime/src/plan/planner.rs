//! Makes and caches the plans of one communicator.

use std::sync::{Arc, OnceLock};

use comm_core::{Algorithm, DType, Error, ErrorKind, OperationKind, Rank, ReduceOp, Result};

use super::cache::{Cached, PlanCache};
use super::choose::{World, choose};
use super::schedule::Schedule;
use super::{Plan, PlanConfig, RankOrder, Request, Shortcut};
use comm_kernels::Reducer;

/// From this size on a block does not stay in a core's own caches, so its lines are asked for ahead.
const FAR_BYTES: usize = 4 << 20;

/// Makes and caches the plans of one communicator.
#[derive(Debug)]
pub(crate) struct Planner {
    rank: Rank,
    world_size: u32,
    config: PlanConfig,
    /// Whether all ranks reach each other's memory.
    shares_memory: bool,
    /// Whether all ranks may have mapped memory of each other.
    maps_memory: bool,
    /// How the ranks stand in rings and trees.
    order: RankOrder,
    cache: PlanCache,
}

impl Planner {
    pub(crate) fn new(rank: Rank, world_size: u32, config: PlanConfig) -> Self {
        Self {
            rank,
            world_size,
            config,
            shares_memory: false,
            maps_memory: false,
            order: RankOrder::default(),
            cache: PlanCache::new(),
        }
    }

    /// Says that the first edge of every pair of ranks gives access to the peer's memory; the same
    /// on all ranks.
    pub(crate) const fn sharing_memory(mut self, shares_memory: bool) -> Self {
        self.shares_memory = shares_memory && self.world_size > 1;
        self
    }

    /// Says that the first edge of every pair of ranks may lead to memory of the peer's that is mapped
    /// here; the same on all ranks.
    pub(crate) const fn mapping_memory(mut self, maps_memory: bool) -> Self {
        self.maps_memory = maps_memory && self.world_size > 1;
        self
    }

    /// Sets how the ranks stand in rings and trees; the same on all ranks.
    pub(crate) fn in_order(mut self, order: RankOrder) -> Self {
        self.order = order;
        self
    }

    /// How the ranks stand in rings and trees.
    pub(crate) const fn order(&self) -> &RankOrder {
        &self.order
    }

    pub(crate) const fn config(&self) -> &PlanConfig {
        &self.config
    }

    /// The plan of a request, the same one for equal requests.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if there is no such root, [`ErrorKind::Unsupported`] if the
    /// element type cannot be reduced, [`ErrorKind::InvalidConfiguration`] if the allowed
    /// algorithms cannot carry the operation out.
    #[inline]
    pub(crate) fn plan(&self, request: &Request) -> Result<Arc<Plan>> {
        self.cached(request).map(|plan| Arc::clone(&plan))
    }

    /// As [`Planner::plan`], without taking a reference.
    ///
    /// # Errors
    ///
    /// As for [`Planner::plan`].
    #[inline]
    pub(crate) fn cached(&self, request: &Request) -> Result<Cached<'_>> {
        self.cache.get(request, || self.make(request))
    }

    /// Whether there is such a root.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if not.
    #[inline]
    pub(crate) fn check_root(&self, kind: OperationKind, root: Rank) -> Result<()> {
        if root < self.world_size {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InvalidArgument,
            "the root rank does not exist; ranks go from 0 to the world size (exclusive)",
        )
        .with("operation", kind)
        .with("root", root)
        .with("world_size", self.world_size))
    }

    fn make(&self, request: &Request) -> Result<Plan> {
        self.check_root(request.kind, request.root)?;
        let element_bytes = request.dtype.map_or(1, DType::size_bytes);
        let block_bytes = request.count.saturating_mul(element_bytes);
        let reducer = match (request.dtype, request.op) {
            (Some(dtype), Some(op)) => {
                let near = Reducer::new(dtype, op)
                    .map_err(|error| error.with("operation", request.kind))?;
                Some(if block_bytes < FAR_BYTES {
                    near
                } else {
                    near.far()
                })
            }
            _ => None,
        };
        let world = World {
            size: self.world_size,
            shares_memory: self.shares_memory,
            maps_memory: self.maps_memory,
        };
        let algorithm = choose(&self.config, world, request, block_bytes)?;
        let mut plan = self.make_by(request, algorithm, self.config.channels, reducer)?;
        if algorithm == Algorithm::DirectShared {
            // On one channel, whose edges the plan has connected anyway.
            let ring = self.make_by(request, Algorithm::Ring, 1, reducer)?;
            plan.instead = Some(Arc::new(ring));
        }
        if algorithm == Algorithm::DirectMapped {
            let world = World {
                maps_memory: false,
                ..world
            };
            // A filter that allows nothing else does not concern what has to be possible.
            let instead = choose(&self.config, world, request, block_bytes)
                .or_else(|_| choose(&PlanConfig::default(), world, request, block_bytes))?;
            let instead = self.make_by(request, instead, self.config.channels, reducer)?;
            plan.flows.extend(instead.flows.iter().cloned());
            plan.instead = Some(Arc::new(instead));
        }
        Ok(plan)
    }

    fn make_by(
        &self,
        request: &Request,
        algorithm: Algorithm,
        channels: u32,
        reducer: Option<Reducer>,
    ) -> Result<Plan> {
        let element_bytes = request.dtype.map_or(1, DType::size_bytes);
        let chunk_elements = (self.config.step_bytes / element_bytes).max(1);
        let schedule = Schedule {
            request,
            rank: self.rank,
            world_size: self.world_size,
            order: &self.order,
            channels,
            chunk_elements,
            least_tree_chunk: (self.config.tree_chunk_bytes / element_bytes).max(1),
        };
        let (flows, method) = schedule.make(algorithm)?;
        let shortcut = Shortcut::of(
            &method,
            self.world_size,
            request.count,
            chunk_elements,
            element_bytes,
        );
        Ok(Plan {
            request: *request,
            algorithm,
            rank: self.rank,
            world_size: self.world_size,
            flows,
            method,
            shortcut,
            count: request.count,
            element_bytes,
            chunk_elements,
            streams: request.count.saturating_mul(element_bytes)
                >= comm_kernels::streaming_from_bytes(),
            is_far: request.count.saturating_mul(element_bytes) >= FAR_BYTES,
            reducer,
            average_of: if request.op == Some(ReduceOp::Avg) {
                self.world_size
            } else {
                0
            },
            instead: None,
            resolved: OnceLock::new(),
        })
    }
}

#[cfg(test)]
mod tests;
