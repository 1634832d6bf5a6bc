//! [`Worker`]: an address, a way to find others, and the groups made with them.
//!
//! # Contract
//!
//! * A worker is a value. Dropping the last handle leaves its groups: what was submitted goes its
//!   way, peers that need the worker later get an error. [`Worker::close`] ends at once.
//! * Workers of different programs, started apart and at different times, meet at one rendezvous. It
//!   stays in use as long as the worker does, because this may be the one that serves it.
//! * The short calls (`worker.send("rollout", 3, &message)`) go to the group of this worker and that
//!   one alone, which is made with the first of them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use comm_codec::CompressionSettings;
use comm_core::{Codec, Error, ErrorKind, Rank, Rendezvous, Result, Tensor, TensorMut, Work};
use comm_runtime::control::rendezvous::RendezvousAddress;
use comm_runtime::control::{ControlSettings, JobSecret, Launcher};
use comm_runtime::{CommunicatorBuilder, Settings};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::compression::{Compression, CompressionStats};
use crate::connector::{Connector, Meeting, TransportHook};
use crate::message::Received;
use crate::{Collective, CollectiveGroup, RankPath, WorkerAddress};

/// What the pool of received messages may hold unless the builder says otherwise.
pub const DEFAULT_RECEIVE_POOL_BYTES: usize = 256 << 20;

/// A member of groups; see the [module](self). Clones are handles of the same worker.
#[derive(Clone)]
pub struct Worker {
    collective: Collective,
}

impl Worker {
    /// Says who the worker is; the rest is up to the builder.
    pub fn builder(address: WorkerAddress) -> WorkerBuilder {
        WorkerBuilder {
            address,
            meeting: None,
            control: ControlSettings::default(),
            settings: Settings::default(),
            launcher: None,
            transports: Arc::new(Ok),
            receive_pool_bytes: DEFAULT_RECEIVE_POOL_BYTES,
            compression: None,
            codecs: Vec::new(),
        }
    }

    /// Who the worker is.
    #[must_use]
    pub fn address(&self) -> &WorkerAddress {
        self.collective.address()
    }

    /// The worker's groups.
    #[must_use]
    pub const fn collective(&self) -> &Collective {
        &self.collective
    }

    /// The group of this worker and one other.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the name is none or the other worker is this one;
    /// [`ErrorKind::Aborted`] after [`Worker::close`].
    pub fn group_with(&self, group: &str, rank: impl Into<RankPath>) -> Result<CollectiveGroup> {
        let peer = WorkerAddress::new(group, rank)?;
        self.collective
            .create_collective_group(&[self.address().clone(), peer], None)
    }

    /// Sends a message to the worker `rank` of `group`; returns when it has been received.
    ///
    /// # Errors
    ///
    /// As for [`Worker::group_with`] and [`CollectiveGroup::send`].
    pub fn send<T: Serialize + ?Sized>(
        &self,
        group: &str,
        rank: impl Into<RankPath>,
        message: &T,
    ) -> Result<()> {
        self.group_with(group, rank)?.send(message)
    }

    /// As [`Worker::send`], asynchronously: see [`CollectiveGroup::send_async`].
    ///
    /// # Errors
    ///
    /// As for [`Worker::group_with`] and [`CollectiveGroup::send_async`].
    pub fn send_async<T: Serialize + ?Sized>(
        &self,
        group: &str,
        rank: impl Into<RankPath>,
        message: &T,
    ) -> Result<Work<()>> {
        self.group_with(group, rank)?.send_async(message)
    }

    /// Receives the next message of the worker `rank` of `group`.
    ///
    /// # Errors
    ///
    /// As for [`Worker::group_with`] and [`CollectiveGroup::recv`].
    pub fn recv<T: DeserializeOwned>(
        &self,
        group: &str,
        rank: impl Into<RankPath>,
    ) -> Result<Received<T>> {
        self.group_with(group, rank)?.recv()
    }

    /// As [`Worker::recv`], asynchronously: see [`CollectiveGroup::recv_async`].
    ///
    /// # Errors
    ///
    /// As for [`Worker::group_with`] and [`CollectiveGroup::recv_async`].
    pub fn recv_async<T: DeserializeOwned + Send + 'static>(
        &self,
        group: &str,
        rank: impl Into<RankPath>,
    ) -> Result<Work<Received<T>>> {
        self.group_with(group, rank)?.recv_async()
    }

    /// Sends a tensor to the worker `rank` of `group`, which receives it with
    /// [`Worker::recv_tensor`].
    ///
    /// # Errors
    ///
    /// As for [`Worker::group_with`] and [`CollectiveGroup::send_tensor`].
    pub fn send_tensor(
        &self,
        group: &str,
        rank: impl Into<RankPath>,
        tensor: &Tensor,
    ) -> Result<()> {
        self.group_with(group, rank)?.send_tensor(tensor)
    }

    /// Receives a tensor of the worker `rank` of `group` into `tensor`.
    ///
    /// # Errors
    ///
    /// As for [`Worker::group_with`] and [`CollectiveGroup::recv_tensor`].
    pub fn recv_tensor(
        &self,
        group: &str,
        rank: impl Into<RankPath>,
        tensor: TensorMut,
    ) -> Result<TensorMut> {
        self.group_with(group, rank)?.recv_tensor(tensor)
    }

    /// What has been compressed and decompressed, in all groups.
    #[must_use]
    pub fn compression_stats(&self) -> CompressionStats {
        self.collective.compression_stats()
    }

    /// Closes all groups and gives back everything: see [`Collective::close`].
    pub fn close(&self) {
        self.collective.close();
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Worker").field(&self.collective).finish()
    }
}

/// Says how a worker finds others and what may connect it with them.
#[must_use = "a builder does nothing before build()"]
pub struct WorkerBuilder {
    address: WorkerAddress,
    meeting: Option<Meeting>,
    control: ControlSettings,
    settings: Settings,
    launcher: Option<(Launcher, Rank)>,
    transports: TransportHook,
    receive_pool_bytes: usize,
    compression: Option<CompressionSettings>,
    codecs: Vec<Arc<dyn Codec>>,
}

impl WorkerBuilder {
    /// Sets where workers find each other, by address.
    pub fn rendezvous_at(mut self, address: RendezvousAddress) -> Self {
        self.meeting = Some(Meeting::Address(address));
        self
    }

    /// Sets where workers find each other: a table of the program's own.
    pub fn rendezvous(mut self, rendezvous: Arc<dyn Rendezvous>) -> Self {
        self.meeting = Some(Meeting::Table(rendezvous));
        self
    }

    /// Sets how this process listens, whom it lets in, and how long a group may take to come
    /// together.
    pub fn control(mut self, control: ControlSettings) -> Self {
        self.control = control;
        self
    }

    /// Sets the secret that all processes of the job know.
    pub fn secret(mut self, secret: Option<JobSecret>) -> Self {
        self.control.secret = secret;
        self
    }

    /// Sets how long a group may take to come together, from its first use on.
    pub fn join_timeout(mut self, timeout: Duration) -> Self {
        self.control.join_timeout = timeout;
        self
    }

    /// Sets the settings of the groups' communicators.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets how long one operation may take from its turn on, if its call does not say; `None` for
    /// any time.
    pub fn operation_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.settings.operation_timeout = timeout;
        self
    }

    /// Notes who started this process, and as which rank of its job.
    pub fn launcher(mut self, launcher: Launcher, rank: Rank) -> Self {
        self.launcher = Some((launcher, rank));
        self
    }

    /// Sets what registers the transports of each group, the same for all its members.
    pub fn transports(
        mut self,
        register: impl Fn(CommunicatorBuilder) -> Result<CommunicatorBuilder> + Send + Sync + 'static,
    ) -> Self {
        self.transports = Arc::new(register);
        self
    }

    /// Sets how many bytes the pool of received messages may hold; 0 for no pool. The default is
    /// [`DEFAULT_RECEIVE_POOL_BYTES`].
    pub const fn receive_pool_bytes(mut self, bytes: usize) -> Self {
        self.receive_pool_bytes = bytes;
        self
    }

    /// Sets how tensors in messages are [compressed](crate::compression); `None`, the default, for
    /// not at all. Other workers may have other settings; they need the codec.
    pub fn compression(mut self, settings: Option<CompressionSettings>) -> Self {
        self.compression = settings;
        self
    }

    /// Adds a codec of the program's own, for `compression` to name and to understand what others
    /// send.
    pub fn codec(mut self, codec: Arc<dyn Codec>) -> Self {
        self.codecs.push(codec);
        self
    }

    /// The worker. Connects nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfiguration`] if no rendezvous is set, or a codec has a name or number
    /// that is taken; [`ErrorKind::Unavailable`] if the codec of the compression is not there.
    pub fn build(self) -> Result<Worker> {
        let meeting = self.meeting.ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidConfiguration,
                "set a rendezvous where workers find each other, for instance \
                 COMM_RENDEZVOUS=host:port",
            )
            .with("worker", &self.address)
        })?;
        let compression = Compression::new(self.compression, self.codecs)
            .map_err(|error| error.with("worker", &self.address))?;
        let connector = Connector::new(
            meeting,
            self.control,
            self.settings,
            self.launcher,
            self.transports,
        );
        let collective = Collective::new(
            self.address,
            Arc::new(connector),
            self.receive_pool_bytes,
            compression,
        );
        Ok(Worker { collective })
    }
}

impl fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerBuilder")
            .field("address", &self.address)
            .field("meeting", &self.meeting)
            .field("receive_pool_bytes", &self.receive_pool_bytes)
            .field("compression", &self.compression)
            .finish_non_exhaustive()
    }
}
