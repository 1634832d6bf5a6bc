//! A submitted operation, from the call to its state machine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use comm_core::{Algorithm, DType, OperationKind, Rank, Signature};

use crate::blocked::Stall;
use crate::edge::ends::Identity;
use crate::operation::{Buffers, Ends, HostOperation, RecvRun, SendRun};
use crate::plan::Plan;

/// What the user asked for, with the memory concerned.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Collective { plan: Arc<Plan>, buffers: Buffers },
    Message(Message),
}

/// One half of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) peer: Rank,
    pub(crate) sends: bool,
    pub(crate) dtype: DType,
    pub(crate) count: usize,
    pub(crate) buffers: Buffers,
}

impl Message {
    /// The message's signature, the same on both sides.
    #[inline]
    pub(crate) const fn signature(&self, sequence: u64) -> Signature {
        message_signature(sequence, self.dtype, self.count)
    }
}

/// The signature of a message of `count` elements.
#[inline]
pub(crate) const fn message_signature(sequence: u64, dtype: DType, count: usize) -> Signature {
    Signature {
        sequence,
        kind: OperationKind::PointToPoint,
        algorithm: Algorithm::Direct,
        dtype: Some(dtype),
        op: None,
        root: 0,
        count: count as u64,
    }
}

/// An operation that a driver carries through.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) call: Call,
    /// How long the operation may take, from the first look at the clock: an operation that never
    /// has to sleep never reads it.
    pub(crate) timeout: Option<Duration>,
    /// The first look at the clock.
    pub(crate) first_look: Option<Instant>,
    /// Set when the operation has its place in the lane's order.
    pub(crate) identity: Option<Identity>,
    /// Set when its edges are connected.
    pub(crate) operation: Option<HostOperation>,
    pub(crate) stall: Stall,
}

impl Active {
    pub(crate) const fn new(call: Call, timeout: Option<Duration>) -> Self {
        Self {
            call,
            timeout,
            first_look: None,
            identity: None,
            operation: None,
            stall: Stall::new(),
        }
    }

    /// When the operation's time is up, if that is limited, by something that the clock can tell,
    /// and the clock was read.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.first_look?.checked_add(self.timeout?)
    }

    pub(crate) fn signature(&self, sequence: u64) -> Signature {
        match &self.call {
            Call::Collective { plan, .. } => plan.signature(sequence),
            Call::Message(message) => message.signature(sequence),
        }
    }

    /// The state machine of the call, whose edges are connected.
    pub(crate) fn operation(
        &self,
        identity: Identity,
        step_bytes: usize,
        ends: &Ends,
    ) -> HostOperation {
        match &self.call {
            Call::Collective { plan, buffers } => {
                HostOperation::collective(Arc::clone(plan), identity, *buffers, ends)
            }
            Call::Message(Message {
                sends,
                dtype,
                count,
                buffers,
                ..
            }) => {
                let len_bytes = count * dtype.size_bytes();
                if *sends {
                    HostOperation::Send(SendRun::new(identity, *buffers, len_bytes, step_bytes))
                } else {
                    HostOperation::Recv(RecvRun::new(identity, *buffers, len_bytes, step_bytes))
                }
            }
        }
    }
}
