//! [`Communicator`] and [`Builder`]: the runtime composed with the transports compiled in.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use comm_core::{Algorithm, Rank, Rendezvous, Result, Transport};
use comm_group::CollectiveGroup;
use comm_runtime::control::rendezvous::{LocalRendezvous, RendezvousAddress};
use comm_runtime::control::{ControlSettings, JobSecret, LaunchEnvironment};
use comm_runtime::{CommunicatorBuilder, Settings, TransportContext, variable};

use crate::debug;
use crate::environment::receive_pool_bytes;
use crate::transports::{Custom, Switches};
use crate::unread::told_of_this_process;

/// A set of ranks that move and reduce data together.
///
/// Dereferences to [`comm_runtime::Communicator`], which documents the operations. Clones are
/// handles of the same communicator.
#[derive(Clone)]
pub struct Communicator {
    inner: comm_runtime::Communicator,
    /// What the pool of a group of these ranks may hold.
    receive_pool_bytes: usize,
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Communicator {
    /// Joins the job that the environment describes: the variables of `commctl launch`, torchrun,
    /// Slurm or Open MPI, or `COMM_RANK`, `COMM_WORLD_SIZE` and `COMM_RENDEZVOUS` set by hand.
    ///
    /// Blocks until all ranks have come. This is one rank; a program that wants several of them in
    /// one process uses [`init_all`](crate::init_all). Further communicators of the same job, also
    /// of some of its ranks, have a [name](Builder::name).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfiguration`](comm_core::ErrorKind) if variables are missing, wrong or
    /// contradict each other; the errors of [`Builder::build`] otherwise.
    pub fn from_env() -> Result<Self> {
        Builder::from_env()?.build()
    }

    /// A builder with the settings of the environment (`COMM_*`), for a program that says by
    /// itself who it is and where the ranks meet.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfiguration`](comm_core::ErrorKind) for a variable that cannot be
    /// parsed.
    pub fn builder() -> Result<Builder> {
        Builder::from_settings()
    }

    /// Makes a communicator of the ranks that give the same `color`, ordered by `key` and then by rank;
    /// see [`comm_runtime::Communicator::split`].
    ///
    /// ```
    /// use comm_api::{Communicator, ReduceOp, Result, init_all};
    ///
    /// fn work(world: Communicator) -> Result<()> {
    ///     let even = u32::from(world.rank() % 2 == 0);
    ///     let part = world.split(Some(even), 0)?.expect("every rank has a color");
    ///     let mut ranks = [world.rank()];
    ///     part.all_reduce(&mut ranks, ReduceOp::Sum)?;
    ///     assert_eq!(ranks, [if even == 1 { 2 } else { 4 }]);
    ///     Ok(())
    /// }
    ///
    /// let threads: Vec<_> = init_all(4)?
    ///     .into_iter()
    ///     .map(|comm| std::thread::spawn(move || work(comm)))
    ///     .collect();
    /// for thread in threads {
    ///     thread.join().expect("a rank panicked")?;
    /// }
    /// # Ok::<(), comm_api::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`comm_runtime::Communicator::split`].
    pub fn split(&self, color: Option<u32>, key: i64) -> Result<Option<Self>> {
        let part = self.inner.split(color, key)?;
        Ok(part.map(|part| self.sibling(part)))
    }

    /// Makes a communicator of all ranks but the excluded ones, in the same order: for going on after a
    /// rank has died, and for letting ranks go; see [`comm_runtime::Communicator::shrink`].
    ///
    /// # Errors
    ///
    /// As for [`comm_runtime::Communicator::shrink`].
    pub fn shrink(&self, excluded: &[Rank]) -> Result<Self> {
        Ok(self.sibling(self.inner.shrink(excluded)?))
    }

    const fn sibling(&self, inner: comm_runtime::Communicator) -> Self {
        Self {
            inner,
            receive_pool_bytes: self.receive_pool_bytes,
        }
    }

    /// The ranks as a group whose members send each other messages: objects, tensors and structures
    /// of both, in order and acknowledged. Rank `r` is the member `name:r`. Received tensors use up
    /// to `COMM_RECEIVE_POOL_BYTES` of memory again and again.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](comm_core::ErrorKind) if the name is none of a worker group.
    pub fn as_group(&self, name: &str) -> Result<CollectiveGroup> {
        CollectiveGroup::of_communicator(name, self.inner.clone(), self.receive_pool_bytes)
    }
}

impl Deref for Communicator {
    type Target = comm_runtime::Communicator;

    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

/// Says who this rank is, how to find the others, and what may connect them.
#[must_use = "a builder does nothing before build()"]
pub struct Builder {
    inner: CommunicatorBuilder,
    switches: Switches,
    custom: Vec<Custom>,
    receive_pool_bytes: usize,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let custom: Vec<_> = self.custom.iter().map(|(name, _)| name).collect();
        f.debug_struct("Builder")
            .field("inner", &self.inner)
            .field("switches", &self.switches)
            .field("custom", &custom)
            .finish()
    }
}

impl Builder {
    /// Rank, world size, rendezvous and settings of the environment.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::from_env`].
    pub fn from_env() -> Result<Self> {
        let launched = LaunchEnvironment::detect(&variable)?;
        let mut builder = Self::from_settings()?;
        tracing::info!(launcher = %launched.launcher, rank = launched.rank, "launched");
        builder.inner = builder
            .inner
            .rank(launched.rank, launched.world_size)
            .launcher(launched.launcher);
        builder.inner = match launched.rendezvous {
            Some(address) => builder.inner.rendezvous_at(address),
            // A job of one rank meets nobody.
            None => builder.inner.rendezvous(Arc::new(LocalRendezvous::new())),
        };
        Ok(builder)
    }

    /// The settings of the environment; rank, world size and rendezvous are still to be set.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::builder`].
    pub fn from_settings() -> Result<Self> {
        debug::install_from_env()?;
        let mut settings = Settings::from_env()?;
        settings.notes = told_of_this_process();
        let switches = Switches::read(&variable, &mut settings)?;
        let receive_pool_bytes = receive_pool_bytes(&variable, &mut settings)?;
        Ok(Self {
            inner: CommunicatorBuilder::new()
                .settings(settings)
                .control(ControlSettings::detect(&variable)?),
            switches,
            custom: Vec::new(),
            receive_pool_bytes,
        })
    }

    /// Sets this rank's number and the number of ranks.
    pub fn rank(mut self, rank: Rank, world_size: u32) -> Self {
        self.inner = self.inner.rank(rank, world_size);
        self
    }

    /// Sets where the ranks find each other: `host:port`, `file:///directory` or a
    /// [`UniqueId`](comm_runtime::control::rendezvous::UniqueId), parsed from text or made.
    pub fn rendezvous_at(mut self, address: RendezvousAddress) -> Self {
        self.inner = self.inner.rendezvous_at(address);
        self
    }

    /// Sets where the ranks find each other: a table of your own.
    pub fn rendezvous(mut self, rendezvous: Arc<dyn Rendezvous>) -> Self {
        self.inner = self.inner.rendezvous(rendezvous);
        self
    }

    /// Sets the secret that all processes of the job know (`COMM_SECRET`).
    pub fn secret(mut self, secret: Option<JobSecret>) -> Self {
        self.inner = self.inner.secret(secret);
        self
    }

    /// Sets how long one operation may take; `None` for any time.
    pub fn operation_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.inner = self.inner.operation_timeout(timeout);
        self
    }

    /// Names the communicator, the same on all its ranks. Communicators that meet at one
    /// rendezvous, also one after the other, need different names.
    ///
    /// That is how a job gets communicators of some of its ranks, here one of the even ranks and
    /// one of the odd ones:
    ///
    /// ```no_run
    /// use comm_api::{Builder, Communicator};
    ///
    /// let world = Communicator::from_env()?;
    /// let (half, rank) = (world.rank() % 2, world.rank() / 2);
    /// let world_size = (world.world_size() + 1 - half) / 2;
    /// let replicas = Builder::from_env()?
    ///     .name(format!("replicas-{half}"))
    ///     .rank(rank, world_size)
    ///     .build()?;
    /// # Ok::<(), comm_api::Error>(())
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.inner = self.inner.name(name);
        self
    }

    /// Sets how long the ranks may take to find each other.
    pub fn init_timeout(mut self, timeout: Duration) -> Self {
        self.inner = self.inner.init_timeout(timeout);
        self
    }

    /// Sets the capacity of one slot of an edge: a multiple of 64, equal on all ranks.
    pub fn step_bytes(mut self, step_bytes: usize) -> Self {
        self.inner = self.inner.step_bytes(step_bytes);
        self
    }

    /// Restricts the algorithms of collectives; equal on all ranks.
    pub fn algorithms(mut self, algorithms: impl Into<Vec<Algorithm>>) -> Self {
        self.inner = self.inner.algorithms(algorithms.into());
        self
    }

    /// Sets the number of channels of ring algorithms; equal on all ranks.
    pub fn channels(mut self, channels: u32) -> Self {
        self.inner = self.inner.channels(channels);
        self
    }

    /// Sets how many bytes of frames to one peer may be on their way without acknowledgement
    /// (`COMM_FRAME_WINDOW_BYTES`); one frame may always be.
    pub fn frame_window_bytes(mut self, window_bytes: usize) -> Self {
        self.inner = self.inner.frame_window_bytes(window_bytes);
        self
    }

    /// Restricts the transports to these names, tried in this order.
    pub fn only_transports(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let names = names.into_iter().map(Into::into).collect();
        self.inner = self.inner.only_transports(names);
        self
    }

    /// Registers a transport of your own, tried after those for one process or host and before
    /// `net`.
    ///
    /// All ranks must register the same transports in the same order.
    pub fn transport(
        mut self,
        name: impl Into<String>,
        factory: impl FnOnce(&TransportContext) -> Result<Arc<dyn Transport>> + Send + 'static,
    ) -> Self {
        self.custom.push((name.into(), Box::new(factory)));
        self
    }

    /// Registers a network of your own as the transport of this name, tried like one of
    /// [`Builder::transport`].
    ///
    /// The network brings connections, messages and registered memory; steps, waiting and closing
    /// are this crate's business. See [`NetBackend`](comm_core::net::NetBackend) for the contract
    /// and `comm-testkit` for its conformance suite.
    #[cfg(feature = "net")]
    pub fn net_backend(
        self,
        name: impl Into<String>,
        factory: impl FnOnce(&TransportContext) -> Result<Arc<dyn comm_core::net::NetBackend>>
        + Send
        + 'static,
    ) -> Self {
        let name = name.into();
        self.transport(name.clone(), move |context| {
            crate::transports::over(&name, factory(context)?)
        })
    }

    /// Joins the other ranks.
    ///
    /// Blocks until all ranks have come, at most for the init timeout.
    ///
    /// # Errors
    ///
    /// As for [`CommunicatorBuilder::build`].
    pub fn build(self) -> Result<Communicator> {
        let inner = self.switches.register(self.inner, self.custom).build()?;
        Ok(Communicator {
            inner,
            receive_pool_bytes: self.receive_pool_bytes,
        })
    }
}
