//! Plans by request.
//!
//! # Contract
//!
//! * Finding a plan that was found before takes no lock, allocates nothing, and costs a multiply
//!   and a comparison on the way to its slot.
//! * Memory is bounded: a table of [`SLOTS`] plans that stay, and as many more behind a lock that
//!   are dropped all at once when there are too many.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use comm_core::Result;

use super::{Plan, Request};

/// Slots of the table; a power of two.
const SLOTS: usize = 1024;

/// Slots in which a plan may lie, from the one that its request's hash names.
const PROBES: usize = 4;

/// A plan of the cache, without a change of its reference count if it is one of those that stay.
#[derive(Debug)]
pub(crate) enum Cached<'a> {
    /// In the table.
    Here(&'a Arc<Plan>),
    /// New, or from behind the lock.
    Counted(Arc<Plan>),
}

impl Deref for Cached<'_> {
    type Target = Arc<Plan>;

    #[inline]
    fn deref(&self) -> &Arc<Plan> {
        match self {
            Self::Here(plan) => plan,
            Self::Counted(plan) => plan,
        }
    }
}

/// The plans of one communicator. A slot is written once, so readers need no lock.
#[derive(Debug)]
pub(super) struct PlanCache {
    slots: Box<[OnceLock<Arc<Plan>>]>,
    /// Plans whose slots were taken.
    overflow: Mutex<HashMap<Request, Arc<Plan>>>,
}

impl PlanCache {
    pub(super) fn new() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| OnceLock::new()).collect(),
            overflow: Mutex::new(HashMap::new()),
        }
    }

    /// The plan of `request`, made by `make` if it is not there.
    #[inline]
    pub(super) fn get(
        &self,
        request: &Request,
        make: impl FnOnce() -> Result<Plan>,
    ) -> Result<Cached<'_>> {
        let first = place(request);
        for probe in 0..PROBES {
            match self.slots[(first + probe) % SLOTS].get() {
                Some(plan) if plan.request() == request => return Ok(Cached::Here(plan)),
                Some(_) => {}
                None => break,
            }
        }
        self.insert(request, first, make).map(Cached::Counted)
    }

    #[cold]
    fn insert(
        &self,
        request: &Request,
        first: usize,
        make: impl FnOnce() -> Result<Plan>,
    ) -> Result<Arc<Plan>> {
        // Held while slots are written too, so that equal requests share one plan.
        let mut overflow = self.overflow.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = overflow.get(request) {
            return Ok(Arc::clone(plan));
        }
        for probe in 0..PROBES {
            let slot = &self.slots[(first + probe) % SLOTS];
            match slot.get() {
                Some(plan) if plan.request() == request => return Ok(Arc::clone(plan)),
                Some(_) => {}
                None => {
                    let plan = Arc::new(make()?);
                    return Ok(Arc::clone(slot.get_or_init(|| plan)));
                }
            }
        }
        let plan = Arc::new(make()?);
        if overflow.len() >= SLOTS {
            overflow.clear();
        }
        overflow.insert(*request, Arc::clone(&plan));
        Ok(plan)
    }
}

/// The first slot of a request. Requests of a program differ in their counts above all; the
/// multiplication (by 2^64 divided by the golden ratio) spreads neighbouring ones.
#[inline]
const fn place(request: &Request) -> usize {
    let dtype = match request.dtype {
        Some(dtype) => dtype as u64,
        None => 0,
    };
    let op = match request.op {
        Some(op) => op as u64,
        None => 0,
    };
    let shape = request.kind as u64
        | dtype << 8
        | op << 16
        | (request.in_place as u64) << 24
        | (request.root as u64) << 32;
    let mixed = (request.count as u64 ^ shape.rotate_left(17))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(shape)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use comm_core::{DType, ErrorKind, OperationKind, ReduceOp};

    use super::super::{PlanConfig, Planner};
    use super::*;

    fn request(count: usize) -> Request {
        Request {
            kind: OperationKind::AllReduce,
            dtype: Some(DType::F32),
            op: Some(ReduceOp::Sum),
            root: 0,
            count,
            in_place: true,
        }
    }

    #[test]
    fn equal_calls_share_one_plan_also_when_their_slots_are_taken() {
        let planner = Planner::new(0, 4, PlanConfig::default());
        let plans: Vec<_> = (0..SLOTS + SLOTS / 2)
            .map(|count| planner.plan(&request(count)).unwrap())
            .collect();
        for (count, plan) in plans.iter().enumerate() {
            assert_eq!(plan.request().count, count);
            assert!(Arc::ptr_eq(plan, &planner.plan(&request(count)).unwrap()));
        }
    }

    #[test]
    fn more_requests_than_places_are_planned_again() {
        let planner = Planner::new(0, 2, PlanConfig::default());
        for count in (0..4 * SLOTS).chain(0..4 * SLOTS) {
            assert_eq!(
                planner.plan(&request(count)).unwrap().request().count,
                count
            );
        }
    }

    #[test]
    fn a_request_that_cannot_be_planned_takes_no_place() {
        let planner = Planner::new(0, 2, PlanConfig::default());
        let bad = Request {
            root: 7,
            ..request(1)
        };
        for _ in 0..2 {
            let error = planner.plan(&bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
        planner.plan(&request(1)).unwrap();
    }

    #[test]
    fn threads_that_ask_at_the_same_time_get_the_same_plan() {
        let planner = Planner::new(0, 2, PlanConfig::default());
        let plans: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| planner.plan(&request(5)).unwrap()))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert!(plans.iter().all(|plan| Arc::ptr_eq(plan, &plans[0])));
    }
}
