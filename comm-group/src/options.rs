//! How one message is sent or received: [`SendOptions`] and [`RecvOptions`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use comm_core::{DType, Rank, Result, TensorMut};

use crate::message::Piggyback;

/// How one message is sent.
#[derive(Clone, Debug, Default)]
pub struct SendOptions {
    pub(crate) to: Option<Rank>,
    pub(crate) eager: bool,
    pub(crate) pack: bool,
    pub(crate) uncompressed: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) piggyback: Option<Piggyback>,
}

impl SendOptions {
    /// To the other member; done when received; without a piggyback.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the member to send to, by its rank in the group; needed in a group of more than two.
    #[must_use]
    pub const fn to(mut self, rank: Rank) -> Self {
        self.to = Some(rank);
        self
    }

    /// Sets whether the send is done as soon as the library does not need the tensors any more,
    /// received or not.
    #[must_use]
    pub const fn eager(mut self, eager: bool) -> Self {
        self.eager = eager;
        self
    }

    /// Sets whether tensors that are not contiguous are copied instead of refused.
    #[must_use]
    pub const fn pack(mut self, pack: bool) -> Self {
        self.pack = pack;
        self
    }

    /// Sets whether the tensors travel as they are, whatever the worker's settings of
    /// [compression](crate::compression).
    #[must_use]
    pub const fn uncompressed(mut self, uncompressed: bool) -> Self {
        self.uncompressed = uncompressed;
        self
    }

    /// Sets how long the send may take from its turn in the order on. When it takes longer, this
    /// direction between the two workers ends, on both sides.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets what rides along.
    #[must_use]
    pub fn piggyback(mut self, piggyback: Option<Piggyback>) -> Self {
        self.piggyback = piggyback;
        self
    }
}

/// Provides the memory of a tensor that arrives: contiguous, on the host, of this type and shape.
///
/// Called by whoever receives at that moment, in the order of the tensors in the message. An error
/// ends this direction between the two workers.
pub type Allocator = Arc<dyn Fn(DType, &[usize]) -> Result<TensorMut> + Send + Sync>;

/// Where the tensors of a message go.
#[derive(Clone, Default)]
pub(crate) enum Placement {
    /// Memory of the worker's pool.
    #[default]
    Pool,
    /// Memory that this function provides.
    Allocator(Allocator),
}

/// How one message is received.
#[derive(Clone, Default)]
pub struct RecvOptions {
    pub(crate) from: Option<Rank>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) placement: Placement,
}

impl RecvOptions {
    /// From the other member, into memory of the worker's pool.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the member to receive from, by its rank in the group; needed in a group of more than
    /// two.
    #[must_use]
    pub const fn from(mut self, rank: Rank) -> Self {
        self.from = Some(rank);
        self
    }

    /// Sets how long the receive may take from its turn in the order on. When it takes longer, this
    /// direction between the two workers ends, on both sides.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets who provides the memory of the tensors.
    #[must_use]
    pub fn allocator(mut self, allocator: Allocator) -> Self {
        self.placement = Placement::Allocator(allocator);
        self
    }
}

impl fmt::Debug for RecvOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvOptions")
            .field("from", &self.from)
            .field("timeout", &self.timeout)
            .field(
                "has_allocator",
                &matches!(self.placement, Placement::Allocator(_)),
            )
            .finish()
    }
}
