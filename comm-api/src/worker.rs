//! [`Worker`] and [`WorkerBuilder`]: groups of workers over the transports compiled in.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use comm_core::{Error, Rendezvous, Result, Transport};
use comm_group::WorkerAddress;
use comm_runtime::control::rendezvous::RendezvousAddress;
use comm_runtime::control::{ControlSettings, JobSecret, LaunchEnvironment};
use comm_runtime::{Settings, TransportContext, TransportFactory, variable};

use crate::debug;
use crate::environment::receive_pool_bytes;
use crate::transports::Switches;
use crate::unread::told_of_this_process;

/// A member of groups that send each other messages in order.
///
/// Dereferences to [`comm_group::Worker`], which documents the calls. Clones are handles of the same
/// worker.
#[derive(Clone, Debug)]
pub struct Worker {
    inner: comm_group::Worker,
}

impl Worker {
    /// This process as a worker of the group of this name: its rank is the one that the launcher
    /// gave it, or 0 if nobody launched it; workers meet at the launcher's rendezvous, or at
    /// `COMM_RENDEZVOUS`.
    ///
    /// Connects nothing. To let workers of two jobs meet, start both with the same
    /// `COMM_RENDEZVOUS`, `COMM_JOB_ID` and `COMM_SECRET`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfiguration`](comm_core::ErrorKind) if variables are missing, wrong or contradict each other;
    /// [`ErrorKind::InvalidArgument`](comm_core::ErrorKind) if the name is none.
    pub fn from_env(group: &str) -> Result<Self> {
        let launched = launched(&variable)?;
        let rank = launched.as_ref().map_or(0, |launched| launched.rank);
        let mut builder = Self::builder(WorkerAddress::new(group, rank)?)?;
        if let Some(launched) = launched {
            builder.inner = builder.inner.launcher(launched.launcher, launched.rank);
            if let Some(address) = launched.rendezvous {
                builder = builder.rendezvous_at(address);
            }
        } else if let Some(text) = variable("COMM_RENDEZVOUS") {
            let address: RendezvousAddress = text
                .parse()
                .map_err(|error: Error| error.with("variable", "COMM_RENDEZVOUS"))?;
            builder = builder.rendezvous_at(address);
        }
        builder.build()
    }

    /// A builder with the settings of the environment (`COMM_*`), for a program that says by itself
    /// who it is and where workers meet.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfiguration`](comm_core::ErrorKind) for a variable that cannot be parsed.
    pub fn builder(address: WorkerAddress) -> Result<WorkerBuilder> {
        debug::install_from_env()?;
        let mut settings = Settings::from_env()?;
        settings.notes = told_of_this_process();
        let switches = Switches::read(&variable, &mut settings)?;
        let inner = comm_group::Worker::builder(address)
            .control(ControlSettings::detect(&variable)?)
            .receive_pool_bytes(receive_pool_bytes(&variable, &mut settings)?);
        Ok(WorkerBuilder {
            inner,
            settings,
            switches,
            custom: Vec::new(),
        })
    }
}

impl Deref for Worker {
    type Target = comm_group::Worker;

    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

/// What a launcher tells, if there is one.
fn launched(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<LaunchEnvironment>> {
    const RANKS: [&str; 4] = ["COMM_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"];
    if RANKS.iter().any(|name| variable(name).is_some()) {
        LaunchEnvironment::detect(variable).map(Some)
    } else {
        Ok(None)
    }
}

/// Makes one more instance of a transport of the program's own.
type SharedFactory = Arc<dyn Fn(&TransportContext) -> Result<Arc<dyn Transport>> + Send + Sync>;

/// Says how a worker finds others and what may connect it with them.
#[must_use = "a builder does nothing before build()"]
pub struct WorkerBuilder {
    inner: comm_group::WorkerBuilder,
    settings: Settings,
    switches: Switches,
    custom: Vec<(String, SharedFactory)>,
}

impl WorkerBuilder {
    /// Sets where workers find each other: `host:port`, `file:///directory` or a
    /// [`UniqueId`](crate::UniqueId), parsed from text or made.
    pub fn rendezvous_at(mut self, address: RendezvousAddress) -> Self {
        self.inner = self.inner.rendezvous_at(address);
        self
    }

    /// Sets where workers find each other: a table of your own.
    pub fn rendezvous(mut self, rendezvous: Arc<dyn Rendezvous>) -> Self {
        self.inner = self.inner.rendezvous(rendezvous);
        self
    }

    /// Sets the secret that all processes of the job know (`COMM_SECRET`).
    pub fn secret(mut self, secret: Option<JobSecret>) -> Self {
        self.inner = self.inner.secret(secret);
        self
    }

    /// Sets how long a group may take to come together, from its first use on
    /// (`COMM_INIT_TIMEOUT_SECONDS`).
    pub fn join_timeout(mut self, timeout: Duration) -> Self {
        self.inner = self.inner.join_timeout(timeout);
        self
    }

    /// Sets how long one operation may take from its turn on, if its call does not say
    /// (`COMM_OPERATION_TIMEOUT_SECONDS`); `None` for any time.
    pub fn operation_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.settings.operation_timeout = timeout;
        self
    }

    /// Sets how many bytes of messages to one peer may be on their way without being received
    /// (`COMM_FRAME_WINDOW_BYTES`); one message may always be.
    pub fn window_bytes(mut self, bytes: usize) -> Self {
        self.settings.frame_window_bytes = bytes;
        self
    }

    /// Sets how many bytes the pool of received messages may hold (`COMM_RECEIVE_POOL_BYTES`); 0
    /// for no pool.
    pub fn receive_pool_bytes(mut self, bytes: usize) -> Self {
        self.inner = self.inner.receive_pool_bytes(bytes);
        self
    }

    /// Restricts the transports to these names, tried in this order.
    pub fn only_transports(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.settings.transports = names.into_iter().map(Into::into).collect();
        self
    }

    /// Registers a transport of your own, tried after those for one process or host and before
    /// `net`. It is made once for each group.
    ///
    /// All members of a group must register the same transports in the same order.
    pub fn transport(
        mut self,
        name: impl Into<String>,
        factory: impl Fn(&TransportContext) -> Result<Arc<dyn Transport>> + Send + Sync + 'static,
    ) -> Self {
        self.custom.push((name.into(), Arc::new(factory)));
        self
    }

    /// Registers a network of your own as the transport of this name, tried like one of
    /// [`WorkerBuilder::transport`]; see [`Builder::net_backend`](crate::Builder::net_backend).
    #[cfg(feature = "net")]
    pub fn net_backend(
        self,
        name: impl Into<String>,
        factory: impl Fn(&TransportContext) -> Result<Arc<dyn comm_core::net::NetBackend>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let name = name.into();
        self.transport(name.clone(), move |context| {
            crate::transports::over(&name, factory(context)?)
        })
    }

    /// The worker. Connects nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfiguration`](comm_core::ErrorKind) if no rendezvous is set.
    pub fn build(self) -> Result<Worker> {
        let Self {
            inner,
            settings,
            switches,
            custom,
        } = self;
        let inner = inner
            .settings(settings)
            .transports(move |builder| {
                let custom = custom.iter().map(|(name, factory)| {
                    let factory = Arc::clone(factory);
                    let once: TransportFactory = Box::new(move |context| factory(context));
                    (name.clone(), once)
                });
                Ok(switches.clone().register(builder, custom.collect()))
            })
            .build()?;
        Ok(Worker { inner })
    }
}

impl fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let custom: Vec<_> = self.custom.iter().map(|(name, _)| name).collect();
        f.debug_struct("WorkerBuilder")
            .field("inner", &self.inner)
            .field("switches", &self.switches)
            .field("custom", &custom)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_launcher_is_an_error_and_none_is_not() {
        assert_eq!(launched(&|_| None).unwrap(), None);
        let half = |name: &str| (name == "COMM_RANK").then(|| "1".to_owned());
        assert!(launched(&half).is_err());
    }
}
