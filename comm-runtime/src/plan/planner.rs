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
mod tests {
    use super::super::{Flow, Method};
    use super::*;
    use crate::operation::program::Program;

    const KINDS: [OperationKind; 8] = [
        OperationKind::AllReduce,
        OperationKind::Broadcast,
        OperationKind::Reduce,
        OperationKind::AllGather,
        OperationKind::ReduceScatter,
        OperationKind::AllToAll,
        OperationKind::Gather,
        OperationKind::Scatter,
    ];

    fn request(kind: OperationKind, count: usize) -> Request {
        let reduces = matches!(
            kind,
            OperationKind::AllReduce | OperationKind::Reduce | OperationKind::ReduceScatter
        );
        Request {
            kind,
            dtype: Some(DType::F32),
            op: reduces.then_some(ReduceOp::Avg),
            root: 0,
            count,
            in_place: true,
        }
    }

    fn allowing(algorithms: &[Algorithm]) -> PlanConfig {
        PlanConfig {
            algorithms: algorithms.to_vec(),
            ..PlanConfig::default()
        }
    }

    #[test]
    fn small_messages_go_in_one_round_and_large_ones_around_the_ring() {
        let planner = Planner::new(0, 4, PlanConfig::default());
        let small = planner.plan(&request(OperationKind::AllReduce, 2)).unwrap();
        assert_eq!(small.algorithm(), Algorithm::OneShot);
        assert_eq!(small.flows()[0].sends_to, [1, 2, 3]);
        let large = planner
            .plan(&request(OperationKind::AllReduce, 1 << 20))
            .unwrap();
        assert_eq!(large.algorithm(), Algorithm::Ring);
        let ring = Flow {
            channel: 0,
            sends_to: vec![1],
            receives_from: vec![3],
        };
        assert_eq!(large.flows(), [ring]);
        assert_eq!(large.average_of, 4);
    }

    #[test]
    fn ranks_that_share_memory_work_on_it_in_place_unless_the_message_is_small() {
        let planner = Planner::new(0, 4, PlanConfig::default()).sharing_memory(true);
        let small = planner.plan(&request(OperationKind::AllReduce, 2)).unwrap();
        assert_eq!(small.algorithm(), Algorithm::OneShot);
        let large = planner
            .plan(&request(OperationKind::AllReduce, 1 << 20))
            .unwrap();
        assert_eq!(large.algorithm(), Algorithm::DirectShared);
        assert_eq!(large.flows()[0].sends_to, [1, 2, 3]);
        let alone = Planner::new(0, 1, PlanConfig::default()).sharing_memory(true);
        let alone = alone
            .plan(&request(OperationKind::AllReduce, 1 << 20))
            .unwrap();
        assert_ne!(alone.algorithm(), Algorithm::DirectShared);
    }

    #[test]
    fn ranks_that_map_memory_try_that_for_large_sums_and_have_another_way() {
        let count = 1 << 20;
        for (ranks, instead) in [
            (2, Algorithm::OneShot),
            (4, Algorithm::Ring),
            (16, Algorithm::Ring),
        ] {
            let planner = Planner::new(1, ranks, PlanConfig::default()).mapping_memory(true);
            let algorithm = |kind, count| planner.plan(&request(kind, count)).unwrap().algorithm();
            let plan = planner.plan(&request(OperationKind::AllReduce, count));
            let plan = plan.unwrap();
            assert_eq!(plan.algorithm(), Algorithm::DirectMapped);
            let other = plan.instead().unwrap();
            assert_eq!(other.algorithm(), instead);
            for flow in other.flows() {
                assert!(plan.flows().contains(flow), "{plan}");
            }
            assert_eq!(
                algorithm(OperationKind::AllReduce, 1000),
                Algorithm::OneShot
            );
            assert_ne!(
                algorithm(OperationKind::Broadcast, count),
                Algorithm::DirectMapped
            );
        }
        for planner in [
            Planner::new(1, 17, PlanConfig::default()).mapping_memory(true),
            Planner::new(0, 1, PlanConfig::default()).mapping_memory(true),
            Planner::new(0, 4, allowing(&[Algorithm::Ring])).mapping_memory(true),
        ] {
            let plan = planner.plan(&request(OperationKind::AllReduce, count));
            assert_ne!(plan.unwrap().algorithm(), Algorithm::DirectMapped);
        }
        let only = Planner::new(0, 4, allowing(&[Algorithm::DirectMapped])).mapping_memory(true);
        let plan = only
            .plan(&request(OperationKind::AllReduce, count))
            .unwrap();
        assert_eq!(plan.instead().unwrap().algorithm(), Algorithm::Ring);
    }

    #[test]
    fn many_ranks_take_messages_of_middling_size_by_trees() {
        let planner = Planner::new(3, 16, PlanConfig::default());
        for kind in [
            OperationKind::AllReduce,
            OperationKind::Broadcast,
            OperationKind::Reduce,
        ] {
            for (count, algorithm) in [
                (16, Algorithm::OneShot),
                (10_000, Algorithm::DoubleTree),
                (10_000_000, Algorithm::Ring),
            ] {
                let plan = planner.plan(&request(kind, count)).unwrap();
                assert_eq!(plan.algorithm(), algorithm, "{kind} of {count}");
            }
        }
    }

    #[test]
    fn very_many_ranks_take_small_messages_by_trees_too() {
        let algorithm = |ranks, kind| {
            let planner = Planner::new(3, ranks, PlanConfig::default());
            planner.plan(&request(kind, 2)).unwrap().algorithm()
        };
        for kind in [OperationKind::AllReduce, OperationKind::Broadcast] {
            assert_eq!(algorithm(16, kind), Algorithm::OneShot);
            assert_eq!(algorithm(17, kind), Algorithm::DoubleTree);
        }
    }

    #[test]
    fn channels_cover_the_buffer_without_overlap() {
        let config = PlanConfig {
            channels: 3,
            ..PlanConfig::default()
        };
        let planner = Planner::new(0, 3, config);
        let plan = planner
            .plan(&request(OperationKind::AllReduce, 1_000_001))
            .unwrap();
        assert_eq!(plan.channel_count(), 3);
        let Method::Programs(programs) = &plan.method else {
            panic!("{plan:?}")
        };
        let mut next = 0;
        for program in programs {
            let Program::Ring(ring) = program else {
                panic!("{program:?}")
            };
            assert_eq!(ring.part.start, next);
            next += ring.part.count;
        }
        assert_eq!(next, 1_000_001);
    }

    #[test]
    fn a_root_outside_the_world_and_an_irreducible_type_are_refused() {
        let planner = Planner::new(0, 2, PlanConfig::default());
        let bad_root = Request {
            root: 2,
            ..request(OperationKind::Broadcast, 1)
        };
        assert_eq!(
            planner.plan(&bad_root).unwrap_err().kind(),
            ErrorKind::InvalidArgument
        );
        let bad_type = Request {
            dtype: Some(DType::Bool),
            ..request(OperationKind::AllReduce, 1)
        };
        assert_eq!(
            planner.plan(&bad_type).unwrap_err().kind(),
            ErrorKind::Unsupported
        );
    }

    #[test]
    fn every_collective_has_a_ring_and_one_shot_plan() {
        for algorithm in [Algorithm::Ring, Algorithm::OneShot] {
            let planner = Planner::new(0, 5, allowing(&[algorithm]));
            for kind in KINDS {
                for count in [0, 1, 1 << 20] {
                    let plan = planner.plan(&request(kind, count)).unwrap();
                    assert_eq!(plan.algorithm(), algorithm, "{kind} of {count}");
                }
            }
        }
    }

    #[test]
    fn a_filter_that_leaves_no_algorithm_is_refused_and_says_what_would_do() {
        let planner = Planner::new(0, 2, allowing(&[Algorithm::DoubleTree]));
        for kind in KINDS {
            let planned = planner.plan(&request(kind, 1));
            match kind {
                OperationKind::AllReduce | OperationKind::Broadcast | OperationKind::Reduce => {
                    assert_eq!(planned.unwrap().algorithm(), Algorithm::DoubleTree);
                }
                _ => {
                    let error = planned.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
                    assert!(error.to_string().contains("one_shot, ring"), "{error}");
                }
            }
        }
    }

    #[test]
    fn a_plan_prints_its_edges() {
        let planner = Planner::new(1, 4, allowing(&[Algorithm::DoubleTree]));
        let plan = planner
            .plan(&request(OperationKind::AllReduce, 1 << 20))
            .unwrap()
            .to_string();
        assert!(
            plan.contains("all_reduce of 1048576 f32 avg (root 0) by double_tree on 2 channel(s)"),
            "{plan}"
        );
        assert!(
            plan.contains("channel 0 sends to [2], receives from []"),
            "{plan}"
        );
    }

    #[test]
    fn only_collectives_are_planned() {
        let planner = Planner::new(0, 2, PlanConfig::default());
        let error = planner
            .plan(&request(OperationKind::PointToPoint, 1))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}
