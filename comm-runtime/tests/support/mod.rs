//! Ranks as threads of the test process.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use comm_core::{Error, PeerInfo, Rank, Rendezvous, Result};
use comm_runtime::control::rendezvous::TcpRendezvous;
use comm_runtime::control::{
    ControlHandler, ControlPlane, JobSecret, JoinOptions, Message, Process, ProcessOptions,
};
pub(crate) use comm_testkit::ports::free_port;

/// How long what must happen may take on a machine that stands still for a while.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Ends the test process if the test is stuck.
pub(crate) fn watchdog() -> Watchdog {
    let (alive, ended) = channel::<()>();
    thread::spawn(move || {
        if ended.recv_timeout(Duration::from_secs(300))
            == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
        {
            eprintln!("the test is stuck");
            std::process::abort();
        }
    });
    Watchdog { _alive: alive }
}

pub(crate) struct Watchdog {
    _alive: Sender<()>,
}

/// Passes everything that comes in on to the test.
pub(crate) struct Recorder {
    messages: Sender<(Rank, Message)>,
    failures: Sender<Error>,
    leaves: Sender<Rank>,
}

/// What a [`Recorder`] passes on.
pub(crate) struct Recorded {
    pub(crate) messages: Receiver<(Rank, Message)>,
    pub(crate) failures: Receiver<Error>,
    pub(crate) leaves: Receiver<Rank>,
}

impl Recorder {
    pub(crate) fn new() -> (Arc<Self>, Recorded) {
        let (messages, messages_out) = channel();
        let (failures, failures_out) = channel();
        let (leaves, leaves_out) = channel();
        (
            Arc::new(Self {
                messages,
                failures,
                leaves,
            }),
            Recorded {
                messages: messages_out,
                failures: failures_out,
                leaves: leaves_out,
            },
        )
    }
}

// A test may have stopped to listen.
impl ControlHandler for Recorder {
    fn on_message(&self, from: Rank, message: Message) {
        let _ = self.messages.send((from, message));
    }

    fn on_failure(&self, failure: &Error) {
        let _ = self.failures.send(failure.clone());
    }

    fn on_leave(&self, rank: Rank) {
        let _ = self.leaves.send(rank);
    }
}

/// One joined rank.
pub(crate) struct Joined {
    pub(crate) plane: Arc<ControlPlane>,
    pub(crate) facts: Vec<PeerInfo>,
    pub(crate) recorded: Recorded,
}

pub(crate) fn soon() -> Instant {
    Instant::now() + PATIENCE
}

pub(crate) fn process() -> Arc<Process> {
    Process::acquire(&ProcessOptions::new()).unwrap()
}

pub(crate) fn secret(text: &str) -> Option<JobSecret> {
    Some(JobSecret::from_text(text).unwrap())
}

pub(crate) fn tcp(process: &Process, port: u16) -> Arc<dyn Rendezvous> {
    Arc::new(TcpRendezvous::new(process, &format!("127.0.0.1:{port}"), None, false).unwrap())
}

/// Joins with the given options and no transports.
pub(crate) fn join(process: &Arc<Process>, options: JoinOptions) -> Result<Joined> {
    join_with(process, options, |_| {})
}

pub(crate) fn join_with(
    process: &Arc<Process>,
    options: JoinOptions,
    edit: impl FnOnce(&mut PeerInfo),
) -> Result<Joined> {
    let (handler, recorded) = Recorder::new();
    let mut facts = PeerInfo::new(0, process.host(), process.id());
    edit(&mut facts);
    let (plane, facts) = ControlPlane::join(Arc::clone(process), options, facts, handler)?;
    Ok(Joined {
        plane,
        facts,
        recorded,
    })
}

/// Runs one closure per rank, each in its own thread, and returns their results in rank order.
pub(crate) fn ranks<T: Send>(count: u32, body: impl Fn(Rank) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> = (0..count)
            .map(|rank| scope.spawn(move || body(rank)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

/// A world of ranks that are threads of this process.
pub(crate) fn world(count: u32) -> Vec<Joined> {
    let process = process();
    let port = free_port();
    ranks(count, |rank| {
        let options = JoinOptions::new(rank, count, tcp(&process, port)).deadline(soon());
        join(&process, options).unwrap()
    })
}

/// Ends a world in good order.
pub(crate) fn leave(world: Vec<Joined>) {
    thread::scope(|scope| {
        for joined in world {
            scope.spawn(move || joined.plane.leave(PATIENCE));
        }
    });
}

/// The control planes of a world, to be shared between threads.
pub(crate) fn planes(world: &[Joined]) -> Vec<Arc<ControlPlane>> {
    world
        .iter()
        .map(|joined| Arc::clone(&joined.plane))
        .collect()
}
