//! From a call to a [`Plan`]: which algorithm, over which edges, in which pieces.
//!
//! # Contract
//!
//! * A plan is a plain value: a pure function of the call, the world and the configuration, so all
//!   ranks compute matching plans without talking to each other. Ranks whose configuration
//!   differs get different algorithms, which the operation signature reports as a mismatch.
//! * Plans are cached by call; a cached plan also remembers the lane's edges.
//! * A plan can be printed: `Display` tells algorithm, channels, pieces and edges.

mod cache;
mod choose;
mod config;
mod extent;
mod order;
mod planner;
mod schedule;
mod shortcut;
mod trees;

use std::fmt;
use std::sync::{Arc, OnceLock};

use comm_core::{
    Algorithm, DType, Error, ErrorKind, OperationKind, Rank, ReduceOp, Result, Signature,
};

use crate::operation::program::Program;
use crate::operation::{Ends, Fold};
use comm_kernels::Reducer;

pub(crate) use choose::MOST_ONE_SHOT_RANKS;
pub use config::PlanConfig;
pub(crate) use extent::{Extent, Extents};
pub(crate) use order::RankOrder;
pub(crate) use planner::Planner;
pub(crate) use shortcut::{Round, Shortcut, StepKind};

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
    /// Number of elements; of one rank's block where a buffer holds a block for each rank.
    pub count: usize,
    /// Whether input and output are the same memory; ranks may differ in it.
    pub in_place: bool,
}

/// How one collective call is carried out by one rank.
#[derive(Debug)]
pub struct Plan {
    request: Request,
    algorithm: Algorithm,
    pub(crate) rank: Rank,
    pub(crate) world_size: u32,
    /// Which edges are used; one entry for each program, or one for a fold.
    flows: Vec<Flow>,
    method: Method,
    /// How a blocking call begins it, if not as an operation that can be queued.
    shortcut: Option<Shortcut>,
    pub(crate) count: usize,
    pub(crate) element_bytes: usize,
    pub(crate) chunk_elements: usize,
    /// Whether results are written past the caches, which they would only sweep; a matter of this
    /// rank's processor.
    pub(crate) streams: bool,
    /// Whether a block is larger than a core's own caches.
    pub(crate) is_far: bool,
    /// The kernels of the reduction.
    pub(crate) reducer: Option<Reducer>,
    /// Number of ranks by which a finished reduction is divided; 0 for no division.
    pub(crate) average_of: u32,
    /// How else the call is carried out if the edges turn out not to be what the algorithm needs; over
    /// some of the same edges.
    instead: Option<Arc<Self>>,
    /// The lane's edges, per flow; set when they are connected.
    resolved: OnceLock<Vec<Resolved>>,
}

/// How the data moves.
#[derive(Debug)]
enum Method {
    /// By programs, which are independent of each other.
    Programs(Vec<Program>),
    /// All inputs of a reduction meet at once.
    Fold(Fold),
    /// The ranks work on each other's memory.
    Direct,
}

/// The edges of one program, or of a fold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flow {
    /// The channel on which the edges are connected. Flows of one channel share no edge.
    pub(crate) channel: u32,
    pub(crate) sends_to: Vec<Rank>,
    pub(crate) receives_from: Vec<Rank>,
}

impl Flow {
    /// The one edge of a message.
    pub(crate) fn of_message(peer: Rank, sends: bool) -> Self {
        Self {
            channel: 0,
            sends_to: sends.then_some(peer).into_iter().collect(),
            receives_from: (!sends).then_some(peer).into_iter().collect(),
        }
    }
}

/// Indices of a flow's edges among the lane's ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resolved {
    pub(crate) send: Vec<usize>,
    pub(crate) recv: Vec<usize>,
}

impl Resolved {
    const NONE: &'static Self = &Self {
        send: Vec::new(),
        recv: Vec::new(),
    };
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
        let last = self.flows.iter().map(|flow| flow.channel).max();
        last.map_or(0, |last| last as usize + 1)
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

    /// The fold, if the plan is a reduction in one step.
    #[inline]
    pub(crate) const fn fold(&self) -> Option<Fold> {
        match self.method {
            Method::Fold(fold) => Some(fold),
            Method::Programs(_) | Method::Direct => None,
        }
    }

    /// How a blocking call begins it on the caller's stack, if it is short enough.
    #[inline]
    pub(crate) const fn shortcut(&self) -> Option<&Shortcut> {
        self.shortcut.as_ref()
    }

    /// Programs with the edges on which they run; empty until the edges are resolved.
    #[inline]
    pub(crate) fn programs(&self) -> impl Iterator<Item = (&Program, &Resolved)> {
        let programs = match &self.method {
            Method::Programs(programs) => programs.as_slice(),
            Method::Fold(_) | Method::Direct => &[],
        };
        programs
            .iter()
            .zip(self.resolved.get().map_or(&[][..], Vec::as_slice))
    }

    /// The plan that takes over, with its edges among those of the lane.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Internal`] if there is none.
    pub(crate) fn instead_over(&self, ends: &Ends) -> Result<&Arc<Self>> {
        let plan = self.instead.as_ref().ok_or_else(|| {
            Error::new(
                ErrorKind::Internal,
                "a plan for shared memory has no other way",
            )
        })?;
        if !plan.is_resolved() {
            let resolve = |flow: &Flow| {
                let sends = flow.sends_to.iter();
                let receives = flow.receives_from.iter();
                Resolved {
                    send: sends
                        .filter_map(|peer| ends.send_to(*peer, flow.channel))
                        .collect(),
                    recv: receives
                        .filter_map(|peer| ends.recv_from(*peer, flow.channel))
                        .collect(),
                }
            };
            plan.resolve(plan.flows().iter().map(resolve).collect());
        }
        Ok(plan)
    }

    /// The plan that takes over if the edges are not what this one's algorithm needs.
    pub(crate) const fn instead(&self) -> Option<&Arc<Self>> {
        self.instead.as_ref()
    }

    /// The edges that the plan uses, by rank and channel.
    pub(crate) fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// The ranks from which a flow receives.
    pub(crate) fn receives_from(&self, flow: usize) -> &[Rank] {
        self.flows.get(flow).map_or(&[], |flow| &flow.receives_from)
    }

    /// The edges of a flow among the lane's; none until they are resolved.
    #[inline]
    pub(crate) fn edges(&self, flow: usize) -> &Resolved {
        self.resolved
            .get()
            .and_then(|resolved| resolved.get(flow))
            .unwrap_or(Resolved::NONE)
    }

    /// The edges of the first flow among the lane's, once they are resolved.
    #[inline]
    pub(crate) fn first_edges(&self) -> Option<&Resolved> {
        self.resolved.get()?.first()
    }

    #[inline]
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
            self.channel_count(),
            self.chunk_elements,
            self.rank,
            self.world_size
        )?;
        if let Some(instead) = &self.instead {
            write!(f, ", or by {} if an edge needs it", instead.algorithm)?;
        }
        for flow in &self.flows {
            write!(
                f,
                "; channel {} sends to {:?}, receives from {:?}",
                flow.channel, flow.sends_to, flow.receives_from
            )?;
        }
        Ok(())
    }
}
