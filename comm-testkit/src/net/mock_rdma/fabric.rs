//! The fabric: shared state, its lock, and what a card asks of it.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use comm_core::device::DeviceMemory;
use comm_core::{Armed, Error, Result};

use super::state::{Completion, Signal, State};
use super::{MockConfig, MockRdma, nic};

/// Most completions that one call of `progress` fetches.
const FETCH: usize = 16;

/// A network inside this process, on which [`MockRdma`] cards talk to each other.
#[derive(Clone)]
pub struct MockFabric {
    fabric: Arc<Fabric>,
}

impl MockFabric {
    /// A network that behaves as `config` says.
    ///
    /// # Errors
    ///
    /// If the thread that plays the hardware cannot be started.
    pub fn new(config: MockConfig) -> Result<Self> {
        Ok(Self {
            fabric: Arc::new(Fabric::start(config)?),
        })
    }

    /// A card for one process.
    ///
    /// # Errors
    ///
    /// If the system has no more file descriptors.
    pub fn card(&self) -> Result<MockRdma> {
        MockRdma::new(Arc::clone(&self.fabric))
    }
}

impl fmt::Debug for MockFabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockFabric")
            .field("config", &self.fabric.config)
            .finish_non_exhaustive()
    }
}

/// Stops the hardware when the last card, end and registration is gone.
pub(super) struct Fabric {
    core: Arc<Core>,
}

/// What users and the hardware's thread share.
pub(super) struct Core {
    pub(super) config: MockConfig,
    state: Mutex<State>,
    pub(super) nic: Condvar,
    /// Windows for puts. A lock of its own, inside the state's lock.
    pub(super) windows: Mutex<BTreeMap<u64, Window>>,
}

/// Memory open for puts; valid while it is in the table, since its registration removes it.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub(super) address: NonNull<u8>,
    pub(super) len_bytes: usize,
}

// SAFETY: an address of memory without thread affinity.
unsafe impl Send for Window {}

impl Deref for Fabric {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        self.core.state().stop = true;
        self.core.nic.notify_all();
    }
}

impl Fabric {
    fn start(config: MockConfig) -> Result<Self> {
        let core = Arc::new(Core {
            state: Mutex::new(State::new(config.seed)),
            nic: Condvar::new(),
            windows: Mutex::default(),
            config,
        });
        let hardware = Arc::clone(&core);
        thread::Builder::new()
            .name("mock-rdma".to_owned())
            .spawn(move || nic::run(&hardware))
            .map_err(|error| Error::system("starting the thread of the mock network", error))?;
        Ok(Self { core })
    }
}

impl Core {
    /// The state. Requests taken out of it are dropped after the guard: their memory may be the
    /// last thing that keeps the fabric alive.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Fetches completions of a card.
    pub(super) fn progress(&self, port: usize) -> Result<bool> {
        let mut state = self.state();
        self.enter_card(&mut state, port)?;
        let ready = state.ports[port].queue.len().min(FETCH);
        let fetched: Vec<_> = state.ports[port].queue.drain(..ready).collect();
        for completion in fetched {
            apply(&mut state, completion);
        }
        self.nic.notify_all();
        Ok(ready > 0)
    }

    /// Asks for one event of a card's descriptor.
    pub(super) fn arm(&self, port: usize) -> Result<Armed> {
        let mut state = self.state();
        self.enter_card(&mut state, port)?;
        let port = &mut state.ports[port];
        // Only here is the descriptor drained, so it stays readable until the next `arm`.
        // EAGAIN means that it was not readable.
        let _ = rustix::io::read(&*port.event, &mut [0; 8]);
        if port.queue.is_empty() {
            port.armed = true;
            Ok(Armed::WillRing)
        } else {
            Ok(Armed::Ready)
        }
    }

    fn enter_card(&self, state: &mut State, port: usize) -> Result<()> {
        state.enter(port).inspect_err(|error| {
            fail_port(state, port, error);
            self.nic.notify_all();
        })
    }

    /// Fails a card for good.
    pub(super) fn fail_port(&self, port: usize, error: &Error) {
        fail_port(&mut self.state(), port, error);
        self.nic.notify_all();
    }

    /// Breaks every connection of a card; both ends notice later.
    pub(super) fn break_links_of(&self, port: usize, error: &Error) {
        let mut state = self.state();
        let links: Vec<_> = state
            .links
            .iter()
            .filter(|(_, link)| link.ends.iter().any(|end| end.port == port && !end.closed))
            .map(|(&id, _)| id)
            .collect();
        for link in links {
            state.signals.push_back(Signal::Broken {
                link,
                error: error.clone(),
            });
        }
        drop(state);
        self.nic.notify_all();
    }

    pub(super) fn open_window(&self, memory: &DeviceMemory) -> u64 {
        let id = self.state().id();
        let window = Window {
            address: memory.as_ptr(),
            len_bytes: memory.len_bytes(),
        };
        lock(&self.windows).insert(id, window);
        id
    }

    pub(super) fn close_window(&self, window: u64) {
        lock(&self.windows).remove(&window);
    }
}

fn fail_port(state: &mut State, port: usize, error: &Error) {
    state.ports[port]
        .failure
        .get_or_insert_with(|| error.clone());
    for (&link, ends) in &mut state.links {
        for (end, side) in ends
            .ends
            .iter_mut()
            .zip([super::state::Side::Send, super::state::Side::Recv])
        {
            if end.port == port && !end.closed {
                end.stopped = true;
                end.failure.get_or_insert_with(|| error.clone());
                state.signals.push_back(Signal::Closed { link, side });
            }
        }
    }
    let gone: Vec<_> = state
        .listeners
        .iter()
        .filter(|(_, listener)| listener.port == port)
        .map(|(&id, _)| id)
        .collect();
    for listener in gone {
        close_listener(state, listener);
    }
    state.ports[port].ring();
}

/// Removes a listener and the connections that nobody accepted.
pub(super) fn close_listener(state: &mut State, listener: u64) {
    let Some(listener) = state.listeners.remove(&listener) else {
        return;
    };
    for link in listener.ready {
        close_end(state, link, super::state::Side::Recv);
    }
}

/// Closes an end that nobody holds.
pub(super) fn close_end(state: &mut State, link: u64, side: super::state::Side) {
    if let Ok(end) = state.end(link, side) {
        end.closed = true;
        end.stopped = true;
        state.signals.push_back(Signal::Closed { link, side });
    }
}

/// What a fetched completion changes.
fn apply(state: &mut State, completion: Completion) {
    use super::state::Side;
    match completion {
        Completion::Done {
            link,
            side,
            token,
            bytes,
        } => {
            if let Ok(end) = state.end(link, side) {
                end.done.insert(token, bytes);
            }
        }
        Completion::Failed { link, side, error } => {
            if let Ok(end) = state.end(link, side) {
                end.failure.get_or_insert(error);
            }
        }
        Completion::Accepted { listener, link } => match state.listeners.get_mut(&listener) {
            Some(listener) => listener.ready.push_back(link),
            None => close_end(state, link, Side::Recv),
        },
        Completion::Connected { connect, outcome } => match state.connects.get_mut(&connect) {
            Some(connect) => connect.outcome = Some(outcome),
            None => {
                if let Ok(link) = outcome {
                    close_end(state, link, Side::Send);
                }
            }
        },
        Completion::Room => {}
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
