//! What exists once per process: identity, listeners, descriptor socket and the control thread.
//!
//! # Contract
//!
//! * [`Process::acquire`] starts everything on first use and returns the same [`Process`] as long
//!   as somebody holds it. When the last holder drops it, the listeners close, connections to
//!   ranks that still need an answer (a failed start, an orderly goodbye) get up to
//!   [`LINGER_LIMIT`], then thread and sockets end.
//! * All ranks of a process share it, so the number of threads does not grow with the ranks.
//! * The control thread runs everything of the control plane, and nothing that blocks.
//! * After a `fork` the child has neither the thread nor a right to the sockets: every call on a
//!   handle from before the fork is an error, and `acquire` makes a new [`Process`].

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use comm_core::doorbell::Doorbells;
use comm_core::{Error, HostId, ProcessId, Result};
use tokio::sync::oneshot;

use super::core::{Core, lock};
use super::interfaces::InterfaceFilter;
use super::listener::Ports;
use crate::region::Regions;

/// How long the end of a process waits for peers that still have to read something.
pub const LINGER_LIMIT: Duration = Duration::from_secs(2);

/// From which networks connections are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListenScope {
    /// From this host only.
    #[default]
    Loopback,
    /// From this host and over every suitable interface.
    Network,
}

/// How a process listens; see [`Process::acquire`].
#[derive(Clone, Debug, Default)]
pub struct ProcessOptions {
    scope: ListenScope,
    ports: Ports,
    interfaces: Option<InterfaceFilter>,
    host_id: Option<String>,
    doorbells: Option<Arc<Doorbells>>,
}

impl ProcessOptions {
    /// Loopback only, on a port that the system chooses.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets from which networks connections are taken.
    #[must_use]
    pub const fn scope(mut self, scope: ListenScope) -> Self {
        self.scope = scope;
        self
    }

    /// Sets the ports to choose from (`COMM_PORT`, `COMM_PORT_RANGE`).
    #[must_use]
    pub fn ports(mut self, ports: Ports) -> Self {
        self.ports = ports;
        self
    }

    /// Sets which interfaces are used with [`ListenScope::Network`] (`COMM_SOCKET_IFNAME`).
    #[must_use]
    pub fn interfaces(mut self, filter: Option<InterfaceFilter>) -> Self {
        self.interfaces = filter;
        self
    }

    /// Replaces the identity of the host (`COMM_HOSTID`): processes with equal texts count as
    /// processes of one host. Only the first [`Process::acquire`] of a process looks at it.
    #[must_use]
    pub fn host_id(mut self, text: Option<String>) -> Self {
        self.host_id = text;
        self
    }

    /// Gives the process doorbells that were made elsewhere, for peers that cannot be handed a
    /// descriptor. Only the first [`Process::acquire`] of a process looks at them.
    #[must_use]
    pub fn doorbells(mut self, doorbells: Option<Arc<Doorbells>>) -> Self {
        self.doorbells = doorbells;
        self
    }

    pub(crate) const fn listen_scope(&self) -> ListenScope {
        self.scope
    }

    pub(crate) const fn port_choice(&self) -> &Ports {
        &self.ports
    }

    pub(crate) const fn interface_filter(&self) -> Option<&InterfaceFilter> {
        self.interfaces.as_ref()
    }

    pub(crate) fn host_id_override(&self) -> Option<&str> {
        self.host_id.as_deref()
    }
}

/// What this process shares between its ranks: identity, listeners, descriptor socket, thread.
///
/// When the last handle is dropped the listeners close, peers that still need an answer get up to
/// [`LINGER_LIMIT`], then thread and sockets end. After a `fork` every call on a handle from before
/// it is an error, and [`Process::acquire`] makes a new one.
pub struct Process {
    core: Arc<Core>,
    doorbells: Arc<Doorbells>,
    regions: Arc<Regions>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The process that is alive now, if any.
static CURRENT: Mutex<Weak<Process>> = Mutex::new(Weak::new());

impl Process {
    /// This process's control plane, started if there is none yet.
    ///
    /// If it runs already, addresses that `options` asks for beyond those in use are added.
    ///
    /// # Errors
    ///
    /// [`comm_core::ErrorKind::InvalidConfiguration`] if the interface filter matches nothing,
    /// [`comm_core::ErrorKind::ResourceExhausted`] if no port of the range is free, or what the
    /// system says.
    pub fn acquire(options: &ProcessOptions) -> Result<Arc<Self>> {
        let mut current = lock(&CURRENT);
        if let Some(process) = current.upgrade()
            && process.core.check_fork().is_ok()
        {
            // Whoever drops the last handle waits for the control thread, and must not hold the
            // lock meanwhile.
            drop(current);
            process.core.listen(options)?;
            return Ok(process);
        }
        let process = Arc::new(Self::start(options)?);
        *current = Arc::downgrade(&process);
        Ok(process)
    }

    fn start(options: &ProcessOptions) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(|error| Error::system("creating the control thread's event loop", error))?;
        let core = Arc::new(Core::new(runtime.handle().clone(), options)?);
        core.listen(options)?;
        core.open_fd_socket()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("comm-control".to_owned())
            .spawn({
                let core = Arc::clone(&core);
                move || {
                    core.enter_control_thread();
                    runtime.block_on(async {
                        // An error means that the sender was dropped: the same order to end.
                        let _ = stopped.await;
                        core.stop_listening();
                        core.lingering.wait(LINGER_LIMIT).await;
                    });
                    // A name server or a file system that does not answer keeps nobody waiting.
                    runtime.shutdown_background();
                }
            })
            .map_err(|error| Error::system("starting the control thread", error))?;
        tracing::debug!(process = %core.id, addresses = ?core.addresses(options.scope), "control plane started");
        let doorbells = match &options.doorbells {
            Some(doorbells) => Arc::clone(doorbells),
            #[cfg(all(target_os = "linux", not(comm_loom)))]
            None => Doorbells::shared()?,
            #[cfg(not(all(target_os = "linux", not(comm_loom))))]
            None => Doorbells::local(),
        };
        Ok(Self {
            core,
            doorbells,
            regions: Arc::default(),
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// The identity of this process, new with every start of its control plane.
    #[must_use]
    pub fn id(&self) -> ProcessId {
        self.core.id
    }

    /// The identity of the host.
    #[must_use]
    pub fn host(&self) -> HostId {
        self.core.host
    }

    /// The host's name, for messages.
    #[must_use]
    pub fn host_name(&self) -> &str {
        &self.core.host_name
    }

    /// The doorbells of this process; on Linux other processes can ring them.
    #[must_use]
    pub const fn doorbells(&self) -> &Arc<Doorbells> {
        &self.doorbells
    }

    /// The memory that this process and others read of each other.
    pub(crate) const fn regions(&self) -> &Arc<Regions> {
        &self.regions
    }

    /// The addresses on which the process listens, best first.
    #[must_use]
    pub fn addresses(&self, scope: ListenScope) -> Vec<SocketAddr> {
        self.core.addresses(scope)
    }

    /// Runs `future` on the control thread. It must not block; it is dropped unfinished when the
    /// process's control plane ends.
    pub fn spawn<F: Future<Output = ()> + Send + 'static>(&self, future: F) {
        if self.core.check_fork().is_ok() {
            self.core.runtime().spawn(future);
        }
    }

    pub(crate) const fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process")
            .field("id", &self.core.id)
            .field("host", &self.core.host_name)
            .finish_non_exhaustive()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let (Some(stop), Some(thread)) = (self.stop.take(), self.thread.take()) else {
            return;
        };
        if self.core.check_fork().is_err() {
            // The thread is the parent's, and waking it would ring the parent's event loop.
            std::mem::forget((stop, thread));
            return;
        }
        drop(stop);
        // A handler may have held the last reference: the thread cannot wait for itself.
        if !self.core.on_control_thread() && thread.join().is_err() {
            tracing::error!("the control thread ended with a panic");
        }
    }
}
