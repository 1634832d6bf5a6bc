//! The short cut of small reductions: on the caller's stack, without a queueable call around it.
//!
//! # Contract
//!
//! * The same state machine as everywhere ([`OneShotReduce`]), driven in place as long as the wait
//!   policy spins. What is not complete by then goes on as an ordinary operation, from where it
//!   stands: nothing is sent or received twice.
//! * Nothing has happened when the short cut is not taken: the lane is busy, edges are missing, or the
//!   communicator does not work any more. The general path then finds out for itself.

use std::ops::ControlFlow;
use std::sync::Arc;

use comm_core::{Error, Result};

use crate::call::{Active, Call};
use crate::communicator::Core;
use crate::drive::BUDGET_BYTES;
use crate::edge::ends::Identity;
use crate::lane::{Driving, Lane};
use crate::operation::{Buffers, DirectFold, Fold, HostOperation, OneShotReduce, Progress};
use crate::plan::Plan;

impl Core {
    /// Carries a one-shot reduction out, if that can be begun at once; `None` otherwise.
    #[inline]
    pub(crate) fn try_fold_at_once(
        &self,
        plan: &Arc<Plan>,
        buffers: Buffers,
    ) -> Option<Result<()>> {
        let fold = plan.fold()?;
        if DirectFold::is_long_enough(plan) || !plan.is_resolved() || !self.is_open() {
            return None;
        }
        let lane = self.collective_lane();
        let driving = lane.try_acquire_idle()?;
        self.note_user();
        Some(self.fold_at_once(lane, driving, plan, fold, buffers))
    }

    #[inline]
    fn fold_at_once(
        &self,
        lane: &Lane,
        mut driving: Driving<'_>,
        plan: &Arc<Plan>,
        fold: Fold,
        buffers: Buffers,
    ) -> Result<()> {
        let signature = plan.signature(driving.next_sequence);
        let identity = Identity::new(signature);
        driving.next_sequence += 1;
        lane.history.record(&signature);
        let mut run = OneShotReduce::new(&**plan, fold, identity, buffers);
        let mut looks = 0;
        let stopped = loop {
            match run.advance(&mut driving.ends, BUDGET_BYTES) {
                Ok(Progress::Done) => {
                    self.leave(lane, driving);
                    return Ok(());
                }
                Ok(Progress::Moved) => break ControlFlow::Continue(()),
                Ok(Progress::Blocked) if looks < self.policy.spins => {
                    looks += 1;
                    std::hint::spin_loop();
                }
                Ok(Progress::Blocked) => break ControlFlow::Continue(()),
                Err(error) => break ControlFlow::Break(error),
            }
        };
        self.go_on(lane, driving, plan, buffers, run, stopped)
    }

    /// Makes an ordinary operation of what the short cut could not complete.
    #[cold]
    #[inline(never)]
    fn go_on(
        &self,
        lane: &Lane,
        mut driving: Driving<'_>,
        plan: &Arc<Plan>,
        buffers: Buffers,
        run: OneShotReduce<&Plan>,
        stopped: ControlFlow<Error>,
    ) -> Result<()> {
        let call = Call::Collective {
            plan: Arc::clone(plan),
            buffers,
        };
        let mut active = Active::new(call, self.operation_timeout);
        active.identity = Some(run.identity());
        active.operation = Some(HostOperation::OneShotReduce(run.keeping(Arc::clone(plan))));
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
