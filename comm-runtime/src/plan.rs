//! From a call to a [`Plan`]: which algorithm, over which edges, in which pieces.
//!
//! # Contract
//!
//! * A plan is a plain value: a pure function of the call, the world and the configuration, so all
//!   ranks compute matching plans without talking to each other. Ranks whose configuration
//!   differs get different algorithms, which the operation signature reports as a mismatch.
//! * Plans are cached by call; a cached plan also remembers the lane's edges.
//! * A plan can be printed: `Display` tells algorithm, channels, pieces and edges.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use comm_core::{
    Algorithm, DType, Error, ErrorKind, OperationKind, Rank, ReduceOp, Result, Signature,
};

use crate::kernels::Reducer;
use crate::operation::program::{Chain, Dissemination, FanOut, Part, Program, RingAllReduce};

/// What a collective call asks for; equal requests share one plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// What is done.
    pub kind: OperationKind,
    /// Element type; `None` for a barrier.
    pub dtype: Option<DType>,
    /// Reduction operator.
    pub op: Option<ReduceOp>,
    /// Root rank; 0 without a root.
    pub root: Rank,
    /// Number of elements.
    pub count: usize,
    /// Whether input and output are the same memory.
    pub in_place: bool,
}

/// The sizes and limits that steer planning; equal on all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanConfig {
    /// Capacity of one slot of an edge.
    pub step_bytes: usize,
    /// Channels of ring algorithms.
    pub channels: u32,
    /// Largest message that an all-reduce exchanges in one round, times the number of ranks.
    pub one_shot_bytes: usize,
    /// Algorithms that may be chosen; empty means all.
    pub algorithms: Vec<Algorithm>,
}

impl Default for PlanConfig {
    fn default() -> Self {
        Self {
            step_bytes: 64 << 10,
            channels: 1,
            one_shot_bytes: 64 << 10,
            algorithms: Vec::new(),
        }
    }
}

impl PlanConfig {
    fn allows(&self, algorithm: Algorithm) -> bool {
        self.algorithms.is_empty() || self.algorithms.contains(&algorithm)
    }
}

/// How one collective call is carried out by one rank.
#[derive(Debug)]
pub struct Plan {
    request: Request,
    algorithm: Algorithm,
    pub(crate) rank: Rank,
    pub(crate) world_size: u32,
    pub(crate) channels: Vec<Program>,
    pub(crate) sends_to: Vec<Rank>,
    pub(crate) receives_from: Vec<Rank>,
    pub(crate) count: usize,
    pub(crate) element_bytes: usize,
    pub(crate) chunk_elements: usize,
    /// The kernels of the reduction.
    pub(crate) reducer: Option<Reducer>,
    /// Number of ranks by which a finished reduction is divided; 0 for no division.
    pub(crate) average_of: u32,
    /// The lane's edges, per channel; set when they are connected.
    resolved: OnceLock<Vec<Resolved>>,
}

/// Indices of a plan's edges among the lane's ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resolved {
    pub(crate) send: Vec<usize>,
    pub(crate) recv: Vec<usize>,
}

impl Plan {
    /// The algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The call for which the plan was made.
    #[must_use]
    pub const fn request(&self) -> &Request {
        &self.request
    }

    /// Number of channels over which the work is spread.
    #[must_use]
    pub fn channel_count(&self) -> usize {
        self.channels.len()
    }

    /// What the operation is, at a place in the lane's order.
    #[inline]
    pub(crate) const fn signature(&self, sequence: u64) -> Signature {
        Signature {
            sequence,
            kind: self.request.kind,
            algorithm: self.algorithm,
            dtype: self.request.dtype,
            op: self.request.op,
            root: self.request.root,
            count: self.request.count as u64,
        }
    }

    /// Whether the plan is one step in which everybody sends to everybody.
    pub(crate) fn is_one_shot_reduction(&self) -> bool {
        self.algorithm == Algorithm::OneShot && self.request.kind == OperationKind::AllReduce
    }

    /// Programs with the edges on which they run; empty until the edges are resolved.
    #[inline]
    pub(crate) fn channels(&self) -> impl Iterator<Item = (&Program, &Resolved)> {
        self.channels
            .iter()
            .zip(self.resolved.get().map_or(&[][..], Vec::as_slice))
    }

    pub(crate) fn is_resolved(&self) -> bool {
        self.resolved.get().is_some()
    }

    pub(crate) fn resolve(&self, resolved: Vec<Resolved>) {
        // Losing a race is fine: the lane resolves the same edges to the same indices.
        let _ = self.resolved.set(resolved);
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Request {
            kind,
            dtype,
            op,
            root,
            count,
            ..
        } = &self.request;
        write!(f, "{kind}")?;
        if let Some(dtype) = dtype {
            write!(f, " of {count} {dtype}")?;
        }
        if let Some(op) = op {
            write!(f, " {op}")?;
        }
        write!(
            f,
            " (root {root}) by {} on {} channel(s), {} elements a step, rank {} of {}",
            self.algorithm,
            self.channels.len(),
            self.chunk_elements,
            self.rank,
            self.world_size
        )?;
        write!(
            f,
            ", sends to {:?}, receives from {:?}",
            self.sends_to, self.receives_from
        )
    }
}

/// Makes and caches the plans of one communicator.
#[derive(Debug)]
pub(crate) struct Planner {
    rank: Rank,
    world_size: u32,
    config: PlanConfig,
    /// Whether all ranks reach each other's memory.
    shares_memory: bool,
    cache: Mutex<HashMap<Request, Arc<Plan>>>,
}

/// Plans that are kept; a program with more different calls than this plans some of them again.
const CACHED_PLANS: usize = 1024;

impl Planner {
    pub(crate) fn new(rank: Rank, world_size: u32, config: PlanConfig) -> Self {
        Self {
            rank,
            world_size,
            config,
            shares_memory: false,
            cache: Mutex::new(HashMap::new()),
        }
    }

    /// Says that the first edge of every pair of ranks gives access to the peer's memory; the same
    /// on all ranks.
    pub(crate) const fn sharing_memory(mut self, shares_memory: bool) -> Self {
        self.shares_memory = shares_memory && self.world_size > 1;
        self
    }

    pub(crate) const fn config(&self) -> &PlanConfig {
        &self.config
    }

    pub(crate) fn plan(&self, request: &Request) -> Result<Arc<Plan>> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = cache.get(request) {
            return Ok(Arc::clone(plan));
        }
        let plan = Arc::new(self.make(request)?);
        if cache.len() >= CACHED_PLANS {
            cache.clear();
        }
        cache.insert(*request, Arc::clone(&plan));
        Ok(plan)
    }

    fn make(&self, request: &Request) -> Result<Plan> {
        if request.root >= self.world_size {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the root rank does not exist; ranks go from 0 to the world size (exclusive)",
            )
            .with("operation", request.kind)
            .with("root", request.root)
            .with("world_size", self.world_size));
        }
        let element_bytes = request.dtype.map_or(1, DType::size_bytes);
        let reducer = match (request.dtype, request.op) {
            (Some(dtype), Some(op)) => Some(
                Reducer::new(dtype, op).map_err(|error| error.with("operation", request.kind))?,
            ),
            _ => None,
        };
        let algorithm = self.choose(request, request.count * element_bytes)?;
        let mut plan = Plan {
            request: *request,
            algorithm,
            rank: self.rank,
            world_size: self.world_size,
            channels: Vec::new(),
            sends_to: Vec::new(),
            receives_from: Vec::new(),
            count: request.count,
            element_bytes,
            chunk_elements: (self.config.step_bytes / element_bytes).max(1),
            reducer,
            average_of: if request.op == Some(ReduceOp::Avg) {
                self.world_size
            } else {
                0
            },
            resolved: OnceLock::new(),
        };
        self.fill(&mut plan)?;
        Ok(plan)
    }

    fn choose(&self, request: &Request, bytes: usize) -> Result<Algorithm> {
        let n = self.world_size as usize;
        let candidates: &[Algorithm] = match request.kind {
            // Two ranks move the same number of bytes either way, and one round is one hop.
            OperationKind::AllReduce if bytes.saturating_mul(n) <= self.config.one_shot_bytes => {
                &[Algorithm::OneShot, Algorithm::Ring]
            }
            OperationKind::AllReduce if self.shares_memory => {
                &[Algorithm::DirectShared, Algorithm::Ring, Algorithm::OneShot]
            }
            OperationKind::AllReduce => &[Algorithm::Ring, Algorithm::OneShot],
            OperationKind::Broadcast if n == 2 || bytes <= 4096 => {
                &[Algorithm::OneShot, Algorithm::Ring]
            }
            OperationKind::Broadcast => &[Algorithm::Ring, Algorithm::OneShot],
            // The only one; a filter for data-moving algorithms does not concern it.
            OperationKind::Barrier => return Ok(Algorithm::Dissemination),
            other => {
                return Err(
                    Error::new(ErrorKind::Unsupported, "this collective is not available")
                        .with("operation", other),
                );
            }
        };
        candidates
            .iter()
            .copied()
            .find(|algorithm| self.config.allows(*algorithm))
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidConfiguration,
                    "the algorithms that the configuration allows cannot carry out this operation",
                )
                .with("operation", request.kind)
                .with("allowed", format!("{:?}", self.config.algorithms))
            })
    }

    fn fill(&self, plan: &mut Plan) -> Result<()> {
        let n = self.world_size;
        let whole = Part {
            start: 0,
            count: plan.count,
            chunk: plan.chunk_elements,
        };
        if n == 1 {
            let copies = !plan.request.in_place;
            plan.channels = vec![Program::Chain(Chain {
                receives: false,
                sends: false,
                copies,
                part: whole,
            })];
            return Ok(());
        }
        let (next, previous) = ((self.rank + 1) % n, (self.rank + n - 1) % n);
        let others = (1..n).map(|distance| (self.rank + distance) % n);
        match (plan.request.kind, plan.algorithm) {
            (OperationKind::AllReduce, Algorithm::OneShot) => {
                plan.sends_to = others.clone().collect();
                plan.receives_from = others.collect();
                // The program itself is not used; its place gives the lane one channel to connect.
                plan.channels = vec![Program::Dissemination(Dissemination { rounds: 0 })];
            }
            (OperationKind::AllReduce, Algorithm::DirectShared) => {
                plan.sends_to = others.clone().collect();
                plan.receives_from = others.collect();
                // As above.
                plan.channels = vec![Program::Dissemination(Dissemination { rounds: 0 })];
            }
            (OperationKind::AllReduce, Algorithm::Ring) => {
                plan.sends_to = vec![next];
                plan.receives_from = vec![previous];
                plan.channels = self
                    .parts(plan)
                    .map(|part| {
                        Program::RingAllReduce(RingAllReduce {
                            size: n as usize,
                            position: self.rank as usize,
                            part,
                        })
                    })
                    .collect();
            }
            (OperationKind::Broadcast, Algorithm::OneShot) => {
                let is_root = self.rank == plan.request.root;
                if is_root {
                    plan.sends_to = others.collect();
                } else {
                    plan.receives_from = vec![plan.request.root];
                }
                plan.channels = vec![Program::FanOut(FanOut {
                    receivers: plan.sends_to.len(),
                    receives: !is_root,
                    copies: !plan.request.in_place,
                    part: whole,
                })];
            }
            (OperationKind::Broadcast, Algorithm::Ring) => {
                let place = (self.rank + n - plan.request.root) % n;
                let (receives, sends) = (place > 0, place < n - 1);
                plan.sends_to = sends.then_some(next).into_iter().collect();
                plan.receives_from = receives.then_some(previous).into_iter().collect();
                let copies = !plan.request.in_place;
                plan.channels = self
                    .parts(plan)
                    .map(|part| {
                        Program::Chain(Chain {
                            receives,
                            sends,
                            copies,
                            part,
                        })
                    })
                    .collect();
            }
            (OperationKind::Barrier, _) => {
                let rounds = n.next_power_of_two().trailing_zeros();
                plan.sends_to = (0..rounds).map(|k| (self.rank + (1 << k)) % n).collect();
                plan.receives_from = (0..rounds)
                    .map(|k| (self.rank + n - (1 << k)) % n)
                    .collect();
                plan.channels = vec![Program::Dissemination(Dissemination {
                    rounds: rounds as usize,
                })];
            }
            (kind, algorithm) => {
                return Err(
                    Error::new(ErrorKind::Internal, "no program for this algorithm")
                        .with("operation", kind)
                        .with("algorithm", algorithm),
                );
            }
        }
        Ok(())
    }

    /// The parts of a buffer that the channels work on; small buffers use fewer channels.
    fn parts(&self, plan: &Plan) -> impl Iterator<Item = Part> {
        let useful = plan
            .count
            .div_ceil(plan.chunk_elements * self.world_size as usize)
            .max(1);
        let channels = (self.config.channels.max(1) as usize).min(useful);
        let (count, chunk) = (plan.count, plan.chunk_elements);
        let per_channel = count.div_ceil(channels);
        (0..channels).map(move |channel| {
            let start = (channel * per_channel).min(count);
            let end = ((channel + 1) * per_channel).min(count);
            Part {
                start,
                count: end - start,
                chunk,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: OperationKind, count: usize) -> Request {
        Request {
            kind,
            dtype: Some(DType::F32),
            op: (kind == OperationKind::AllReduce).then_some(ReduceOp::Avg),
            root: 0,
            count,
            in_place: true,
        }
    }

    #[test]
    fn equal_calls_share_one_plan() {
        let planner = Planner::new(1, 4, PlanConfig::default());
        let first = planner
            .plan(&request(OperationKind::AllReduce, 100))
            .unwrap();
        let second = planner
            .plan(&request(OperationKind::AllReduce, 100))
            .unwrap();
        assert!(Arc::ptr_eq(&first, &second));
    }

    #[test]
    fn small_messages_go_in_one_round_and_large_ones_around_the_ring() {
        let planner = Planner::new(0, 4, PlanConfig::default());
        let small = planner.plan(&request(OperationKind::AllReduce, 2)).unwrap();
        assert_eq!(small.algorithm(), Algorithm::OneShot);
        assert_eq!(small.sends_to, [1, 2, 3]);
        let large = planner
            .plan(&request(OperationKind::AllReduce, 1 << 20))
            .unwrap();
        assert_eq!(large.algorithm(), Algorithm::Ring);
        assert_eq!(
            (large.sends_to.as_slice(), large.receives_from.as_slice()),
            (&[1][..], &[3][..])
        );
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
        assert_eq!(large.sends_to, [1, 2, 3]);
        let alone = Planner::new(0, 1, PlanConfig::default()).sharing_memory(true);
        let alone = alone
            .plan(&request(OperationKind::AllReduce, 1 << 20))
            .unwrap();
        assert_ne!(alone.algorithm(), Algorithm::DirectShared);
    }

    #[test]
    fn channels_cover_the_buffer_without_overlap() {
        let config = PlanConfig {
            channels: 3,
            ..PlanConfig::default()
        };
        let planner = Planner::new(0, 2, config);
        let plan = planner
            .plan(&request(OperationKind::AllReduce, 1_000_001))
            .unwrap();
        assert_eq!(plan.channel_count(), 3);
        let mut next = 0;
        for program in &plan.channels {
            let Program::RingAllReduce(ring) = program else {
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
    fn an_algorithm_filter_is_obeyed_or_refused() {
        let config = PlanConfig {
            algorithms: vec![Algorithm::Ring],
            ..PlanConfig::default()
        };
        let planner = Planner::new(0, 2, config);
        let plan = planner.plan(&request(OperationKind::AllReduce, 1)).unwrap();
        assert_eq!(plan.algorithm(), Algorithm::Ring);
        let config = PlanConfig {
            algorithms: vec![Algorithm::DoubleTree],
            ..PlanConfig::default()
        };
        let planner = Planner::new(0, 2, config);
        let refused = planner
            .plan(&request(OperationKind::AllReduce, 1))
            .unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidConfiguration);
    }
}
