//! A list of sockets for `poll(2)`.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use comm_core::net::WakeSource;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::Socket;

use super::{BATCH, Event, Interest, TIMER_KEY};

/// See the [module above](super) for the contract.
#[derive(Debug, Default)]
pub(crate) struct Poller {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sockets: BTreeMap<u64, (Arc<Socket>, Interest)>,
    timer: Option<Instant>,
    /// Where the next look begins, so that a busy socket does not hide those behind it.
    next_key: u64,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self::default())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, socket: &Arc<Socket>, key: u64, want: Interest) -> io::Result<()> {
        self.state().sockets.insert(key, (Arc::clone(socket), want));
        Ok(())
    }

    pub(crate) fn modify(&self, socket: &Arc<Socket>, key: u64, want: Interest) -> io::Result<()> {
        self.add(socket, key, want)
    }

    pub(crate) fn remove(&self, _socket: &Arc<Socket>, key: u64) {
        self.state().sockets.remove(&key);
    }

    pub(crate) fn set_timer(&self, at: Option<Instant>) -> io::Result<()> {
        self.state().timer = at;
        Ok(())
    }

    /// Calls `report` for everything that there is now, up to [`BATCH`] sockets.
    pub(crate) fn look(&self, report: &mut dyn FnMut(Event)) -> io::Result<()> {
        let (sockets, timer) = {
            let mut state = self.state();
            let from = state.next_key;
            let (before, behind) = (state.sockets.range(..from), state.sockets.range(from..));
            let sockets: Vec<_> = behind
                .chain(before)
                .take(BATCH)
                .map(|(&key, (socket, want))| (key, Arc::clone(socket), *want))
                .collect();
            state.next_key = sockets.last().map_or(0, |(key, ..)| key.wrapping_add(1));
            (sockets, state.timer)
        };
        if timer.is_some_and(|at| at <= Instant::now()) {
            report(Event {
                key: TIMER_KEY,
                readable: true,
                writable: false,
            });
        }
        let mut fds: Vec<_> = sockets
            .iter()
            .map(|(_, socket, want)| PollFd::new(socket, flags(*want)))
            .collect();
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        match poll(&mut fds, Some(&now)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
        for ((key, ..), fd) in sockets.iter().zip(&fds) {
            let found = fd.revents();
            let both = found.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
            let event = Event {
                key: *key,
                readable: both || found.contains(PollFlags::IN),
                writable: both || found.contains(PollFlags::OUT),
            };
            if event.readable || event.writable {
                report(event);
            }
        }
        Ok(())
    }

    #[cfg_attr(target_os = "linux", expect(dead_code, reason = "only tested there"))]
    pub(crate) fn wake_source(&self) -> WakeSource<'_> {
        WakeSource::Poll
    }
}

fn flags(want: Interest) -> PollFlags {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, want.read);
    flags.set(PollFlags::OUT, want.write);
    flags
}
