//! The part of a [`Process`](super::Process) that tasks on the control thread may hold.

use std::fmt;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use comm_core::blocking::about_to_block;
use comm_core::{Error, ErrorKind, HostId, ProcessId, Result};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::fd_socket::FdInbox;
use super::ffi;
use super::host;
use super::interfaces;
use super::listener::{self, HalfOpen, Listening};
use super::liveness::{self, ProcessTag};
use super::member::Members;
use super::process::{ListenScope, ProcessOptions};
use super::rendezvous::Tables;
use super::secret;

/// The part of a [`Process`](super::Process) that tasks on the control thread may hold: it does not keep the
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
    pid_namespace: u64,
}

impl Core {
    pub(crate) fn new(runtime: Handle, options: &ProcessOptions) -> Result<Self> {
        let host_name = host::host_name();
        Ok(Self {
            id: ProcessId(secret::random()?),
            host: host::host_id(options.host_id_override(), &host_name),
            host_name,
            members: Members::default(),
            tables: Tables::default(),
            half_open: HalfOpen::default(),
            fds: FdInbox::default(),
            lingering: Lingering::default(),
            listening: Mutex::default(),
            fd_socket: OnceLock::new(),
            runtime,
            thread: OnceLock::new(),
            pid: std::process::id(),
            pid_namespace: liveness::pid_namespace(),
        })
    }

    /// Starts to take file descriptors; called once.
    pub(crate) fn open_fd_socket(self: &Arc<Self>) -> Result<()> {
        if let Some(name) = super::fd_socket::listen(self)? {
            let _ = self.fd_socket.set(name);
        }
        Ok(())
    }

    /// The calling thread is the control thread from now on.
    pub(crate) fn enter_control_thread(&self) {
        let _ = self.thread.set(std::thread::current().id());
    }

    pub(crate) fn stop_listening(&self) {
        lock(&self.listening).clear();
    }

    /// Adds the addresses of `options` to those on which the process listens.
    pub(crate) fn listen(self: &Arc<Self>, options: &ProcessOptions) -> Result<()> {
        let mut wanted: Vec<IpAddr> = Vec::new();
        if options.listen_scope() == ListenScope::Network {
            wanted = interfaces::select(&ffi::enumerate()?, options.interface_filter())?;
        }
        // Ranks of one host meet on loopback.
        if !wanted.iter().any(IpAddr::is_loopback) {
            let v4 = IpAddr::from(Ipv4Addr::LOCALHOST);
            let v6 = IpAddr::from(Ipv6Addr::LOCALHOST);
            wanted.push(if listener::can_bind(v4) { v4 } else { v6 });
        }
        let mut listening = lock(&self.listening);
        let known: Vec<IpAddr> = listening
            .iter()
            .map(|socket| socket.address().ip())
            .collect();
        wanted.retain(|address| !known.contains(address));
        let reachable = known.iter().any(|address| !address.is_loopback());
        for socket in listener::bind_present(&wanted, options.port_choice(), reachable)? {
            listening.push(Listening::start(self, socket)?);
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

    /// What this process says about itself in handshakes.
    pub(crate) const fn tag(&self) -> ProcessTag {
        ProcessTag {
            id: self.id,
            host: self.host,
            pid: self.pid,
            pid_namespace: self.pid_namespace,
        }
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
        about_to_block();
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
    /// Keeps the control thread alive, for a while, until the guard is dropped.
    pub(crate) fn begin(&self) -> LingerGuard {
        self.count.send_modify(|count| *count += 1);
        LingerGuard {
            count: self.count.clone(),
        }
    }

    pub(crate) async fn wait(&self, limit: Duration) {
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
