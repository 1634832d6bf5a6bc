//! The short cut of small collectives: on the caller's stack, without a queueable call around them.
//!
//! # Contract
//!
//! * The same steps over the same edges as everywhere ([`Shortcut`]), driven in place as long as the
//!   wait policy spins. What is not complete by then goes on as an ordinary operation, from where it
//!   stands: nothing is sent or received twice.
//! * Nothing has happened when the short cut is not taken: the lane is busy, edges are missing, or the
//!   communicator does not work any more. The general path then finds out for itself.
//! * What the peers wait for goes first; the books are kept while this rank waits for them.

use std::ops::ControlFlow;
use std::sync::Arc;

use comm_core::{Error, Result};

use crate::call::{Active, Call};
use crate::communicator::Core;
use crate::drive::BUDGET_BYTES;
use crate::edge::ends::Identity;
use crate::lane::{Driving, Lane};
use crate::operation::{
    Buffers, Ends, HostOperation, OneShotReduce, PairFold, ProgramRun, Progress, RoundRun,
};
use crate::plan::{Plan, Shortcut};

/// A state machine that begins on the caller's stack.
trait Begun {
    fn advance(&mut self, ends: &mut Ends) -> Result<Progress>;

    /// The same operation, at the same point, as one that can be handed on.
    fn keeping(self, plan: Arc<Plan>) -> HostOperation;
}

impl Begun for PairFold<'_> {
    #[inline]
    fn advance(&mut self, ends: &mut Ends) -> Result<Progress> {
        self.advance(ends)
    }

    fn keeping(self, plan: Arc<Plan>) -> HostOperation {
        self.keeping(plan)
    }
}

impl Begun for RoundRun<'_> {
    #[inline]
    fn advance(&mut self, ends: &mut Ends) -> Result<Progress> {
        self.advance(ends)
    }

    fn keeping(self, plan: Arc<Plan>) -> HostOperation {
        self.keeping(plan)
    }
}

impl Begun for OneShotReduce<&Plan> {
    #[inline]
    fn advance(&mut self, ends: &mut Ends) -> Result<Progress> {
        self.advance(ends, BUDGET_BYTES)
    }

    fn keeping(self, plan: Arc<Plan>) -> HostOperation {
        HostOperation::OneShotReduce(self.keeping(plan))
    }
}

impl Begun for ProgramRun<&Plan> {
    #[inline]
    fn advance(&mut self, ends: &mut Ends) -> Result<Progress> {
        Ok(match self.advance(ends, BUDGET_BYTES)? {
            Progress::Done => Progress::Done,
            // Usually it has copied its own part and waits for its peers; in any case it is short.
            Progress::Moved | Progress::Blocked => Progress::Blocked,
        })
    }

    fn keeping(self, plan: Arc<Plan>) -> HostOperation {
        HostOperation::Program(self.keeping(plan))
    }
}

/// A call that has its place in the lane's order.
#[derive(Clone, Copy)]
struct Place<'a> {
    lane: &'a Lane,
    plan: &'a Arc<Plan>,
    identity: &'a Identity,
    buffers: Buffers,
}

impl Core {
    /// Carries a collective out, if it has a short cut and can be begun at once; `None` otherwise.
    #[inline]
    pub(crate) fn try_at_once(&self, plan: &Arc<Plan>, buffers: Buffers) -> Option<Result<()>> {
        let shortcut = plan.shortcut()?;
        let edges = plan.first_edges()?;
        if !self.is_open() {
            return None;
        }
        let lane = self.collective_lane();
        let mut driving = lane.try_acquire_idle()?;
        let identity = &Identity::new(plan.signature(driving.next_sequence));
        driving.next_sequence += 1;
        let place = Place {
            lane,
            plan,
            identity,
            buffers,
        };
        Some(match shortcut {
            Shortcut::Pair(fold) => {
                let run = PairFold::new(plan, *fold, edges, identity, buffers);
                self.at_once(place, driving, run)
            }
            Shortcut::Fold(fold) => {
                let run = OneShotReduce::new(&**plan, *fold, *identity, buffers);
                self.at_once(place, driving, run)
            }
            Shortcut::Round(round) => {
                let run = RoundRun::new(round, edges, identity, buffers);
                self.at_once(place, driving, run)
            }
            Shortcut::Blocks => {
                let run = ProgramRun::new(&**plan, *identity, buffers);
                self.at_once(place, driving, run)
            }
        })
    }

    #[inline]
    fn at_once(
        &self,
        place: Place<'_>,
        mut driving: Driving<'_>,
        mut run: impl Begun,
    ) -> Result<()> {
        let mut looks = 0;
        loop {
            let progress = run.advance(&mut driving.ends);
            if looks == 0 {
                place.lane.history.record(&place.identity.signature);
                self.note_user();
            }
            match progress {
                Ok(Progress::Done) => {
                    self.leave(place.lane, driving);
                    return Ok(());
                }
                Ok(Progress::Blocked) if looks < self.policy.spins => {
                    looks += 1;
                    std::hint::spin_loop();
                }
                Ok(Progress::Moved | Progress::Blocked) => {
                    return self.go_on(place, driving, run, ControlFlow::Continue(()));
                }
                Err(error) => {
                    return self.go_on(place, driving, run, ControlFlow::Break(error));
                }
            }
        }
    }

    /// Makes an ordinary operation of what the short cut could not complete.
    #[cold]
    #[inline(never)]
    fn go_on(
        &self,
        place: Place<'_>,
        mut driving: Driving<'_>,
        run: impl Begun,
        stopped: ControlFlow<Error>,
    ) -> Result<()> {
        let Place { lane, plan, .. } = place;
        let call = Call::Collective {
            plan: Arc::clone(plan),
            buffers: place.buffers,
        };
        let mut active = Active::new(call, self.operation_timeout);
        active.identity = Some(*place.identity);
        active.operation = Some(run.keeping(Arc::clone(plan)));
        match stopped {
            ControlFlow::Continue(()) => self.run(lane, driving, active),
            ControlFlow::Break(error) => {
                let error = self.fail_operation(lane, &mut driving, &active, error);
                self.leave(lane, driving);
                Err(error)
            }
        }
    }
}
