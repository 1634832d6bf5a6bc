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
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

use comm_core::doorbell::Doorbells;
use comm_core::{Error, ErrorKind, HostId, ProcessId, Result};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

use super::fd_socket::FdInbox;
use super::host;
use super::interfaces::{self, InterfaceFilter};
use super::listener::{self, HalfOpen, Listening, Ports};
use super::member::Members;
use super::rendezvous::Tables;
use super::secret;

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
}

/// What this process shares between its ranks; see the [module documentation](self).
pub struct Process {
    core: Arc<Core>,
    doorbells: Arc<Doorbells>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The part of a [`Process`] that tasks on the control thread may hold: it does not keep the
/// thread alive.
pub(crate) struct Core {
    pub(crate) id: ProcessId,
    pub(crate) host: HostId,
    pub(crate) host_name: String,
    pub(crate) members: Members,
    pub(crate) tables: Tables,
    pub(crate) half_open: HalfOpen,
    pub(crate) fds: FdInbox,
    pub(crate) lingering: Lingering,
    listening: Mutex<Vec<Listening>>,
    fd_socket: OnceLock<String>,
    runtime: Handle,
    thread: OnceLock<ThreadId>,
    pid: u32,
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
    /// [`ErrorKind::InvalidConfiguration`] if the interface filter matches nothing,
    /// [`ErrorKind::ResourceExhausted`] if no port of the range is free, or what the system says.
    pub fn acquire(options: &ProcessOptions) -> Result<Arc<Self>> {
        let mut current = lock(&CURRENT);
        if let Some(process) = current.upgrade()
            && process.core.check_fork().is_ok()
        {
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
        let host_name = host::host_name();
        let core = Arc::new(Core {
            id: ProcessId(secret::random()?),
            host: host::host_id(options.host_id.as_deref(), &host_name),
            host_name,
            members: Members::default(),
            tables: Tables::default(),
            half_open: HalfOpen::default(),
            fds: FdInbox::default(),
            lingering: Lingering::default(),
            listening: Mutex::new(Vec::new()),
            fd_socket: OnceLock::new(),
            runtime: runtime.handle().clone(),
            thread: OnceLock::new(),
            pid: std::process::id(),
        });
        core.listen(options)?;
        if let Some(name) = super::fd_socket::listen(&core)? {
            // Nobody else has seen the core yet, so the cell is empty.
            let _ = core.fd_socket.set(name);
        }
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("comm-control".to_owned())
            .spawn({
                let core = Arc::clone(&core);
                move || {
                    let _ = core.thread.set(std::thread::current().id());
                    runtime.block_on(async {
                        // An error means that the sender was dropped: the same order to end.
                        let _ = stopped.await;
                        lock(&core.listening).clear();
                        core.lingering.wait(LINGER_LIMIT).await;
                    });
                }
            })
            .map_err(|error| Error::system("starting the control thread", error))?;
        tracing::debug!(process = %core.id, addresses = ?core.addresses(options.scope), "control plane started");
        #[cfg(target_os = "linux")]
        let doorbells = Doorbells::shared()?;
        #[cfg(not(target_os = "linux"))]
        let doorbells = Doorbells::local();
        Ok(Self {
            core,
            doorbells,
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

    /// The addresses on which the process listens, best first.
    #[must_use]
    pub fn addresses(&self, scope: ListenScope) -> Vec<SocketAddr> {
        self.core.addresses(scope)
    }

    /// Runs `future` on the control thread. It must not block; it is dropped unfinished when the
    /// process's control plane ends.
    pub fn spawn<F: Future<Output = ()> + Send + 'static>(&self, future: F) {
        if self.core.check_fork().is_ok() {
            self.core.runtime.spawn(future);
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

impl Core {
    /// Adds the addresses of `options` to those on which the process listens.
    fn listen(self: &Arc<Self>, options: &ProcessOptions) -> Result<()> {
        let mut wanted: Vec<IpAddr> = Vec::new();
        if options.scope == ListenScope::Network {
            wanted = interfaces::select(&interfaces::enumerate()?, options.interfaces.as_ref())?;
        }
        // Ranks of one host meet on loopback.
        if !wanted.iter().any(IpAddr::is_loopback) {
            let v4 = IpAddr::from(Ipv4Addr::LOCALHOST);
            let v6 = IpAddr::from(Ipv6Addr::LOCALHOST);
            wanted.push(if listener::can_bind(v4) { v4 } else { v6 });
        }
        let mut listening = lock(&self.listening);
        for address in wanted {
            if listening
                .iter()
                .all(|socket| socket.address().ip() != address)
            {
                let socket = listener::bind(address, &options.ports)?;
                listening.push(Listening::start(self, socket)?);
            }
        }
        Ok(())
    }

    /// The addresses to publish, best first; the loopback one comes last.
    pub(crate) fn addresses(&self, scope: ListenScope) -> Vec<SocketAddr> {
        let mut addresses: Vec<SocketAddr> = lock(&self.listening)
            .iter()
            .map(Listening::address)
            .collect();
        addresses.retain(|address| scope == ListenScope::Network || address.ip().is_loopback());
        addresses.sort_by_key(|address| address.ip().is_loopback());
        addresses
    }

    /// The name of the socket that takes file descriptors, where the system has such sockets.
    pub(crate) fn fd_socket(&self) -> Option<&str> {
        self.fd_socket.get().map(String::as_str)
    }

    /// The control thread's event loop.
    pub(crate) const fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub(crate) fn on_control_thread(&self) -> bool {
        self.thread.get() == Some(&std::thread::current().id())
    }

    /// An error in a process that was forked from the one that made this handle.
    pub(crate) fn check_fork(&self) -> Result<()> {
        if std::process::id() == self.pid {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InvalidArgument,
            "this handle belongs to the process before a fork; create a new communicator in the \
             child, or start workers with spawn instead of fork",
        )
        .with("created_in_pid", self.pid))
    }

    /// Runs `future` on the control thread and waits for its result.
    ///
    /// The future must end by itself: every caller puts a deadline into it.
    pub(crate) fn block_on<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.check_fork()?;
        if self.on_control_thread() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "a handler of the control plane must not block; use the async form, or call from \
                 another thread",
            ));
        }
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        self.runtime.spawn(async move {
            // The receiver waits below, so it is there.
            let _ = sender.send(future.await);
        });
        receiver.recv().unwrap_or_else(|_| Err(Self::ended()))
    }

    /// Runs `future` on the control thread; the result can be awaited on any executor.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.check_fork()?;
        let task = AbortOnDrop(self.runtime.spawn(future));
        let mut task = task;
        match (&mut task.0).await {
            Ok(result) => result,
            Err(_) => Err(Self::ended()),
        }
    }

    fn ended() -> Error {
        Error::new(
            ErrorKind::Aborted,
            "the control plane of this process has ended",
        )
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// Ends its task when the future that waits for it is dropped.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Counts the connections for which the end of the process waits.
pub(crate) struct Lingering {
    count: watch::Sender<usize>,
}

impl Default for Lingering {
    fn default() -> Self {
        Self {
            count: watch::Sender::new(0),
        }
    }
}

impl Lingering {
    /// Keeps the control thread alive, up to [`LINGER_LIMIT`], until the guard is dropped.
    pub(crate) fn begin(&self) -> LingerGuard {
        self.count.send_modify(|count| *count += 1);
        LingerGuard {
            count: self.count.clone(),
        }
    }

    async fn wait(&self, limit: Duration) {
        let mut count = self.count.subscribe();
        // Whether the limit or the last guard ended the wait makes no difference.
        let _ = tokio::time::timeout(limit, count.wait_for(|count| *count == 0)).await;
    }
}

/// See [`Lingering::begin`].
pub(crate) struct LingerGuard {
    count: watch::Sender<usize>,
}

impl Drop for LingerGuard {
    fn drop(&mut self) {
        self.count.send_modify(|count| *count -= 1);
    }
}

/// Locks a mutex; a panic of another holder leaves data that is still consistent, because no lock
/// of the control plane is held over calls of foreign code.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
