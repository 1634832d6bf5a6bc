//! An epoll set with a timer in it.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use comm_core::net::WakeSource;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{Timespec, epoll::Event as Raw};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use socket2::Socket;
use std::sync::Arc;

use super::{BATCH, Event, Interest, TIMER_KEY};

const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// See the [module above](super) for the contract.
#[derive(Debug)]
pub(crate) struct Poller {
    set: OwnedFd,
    timer: OwnedFd,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        let set = epoll::create(CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        epoll::add(&set, &timer, EventData::new_u64(TIMER_KEY), EventFlags::IN)?;
        Ok(Self { set, timer })
    }

    pub(crate) fn add(&self, socket: &Arc<Socket>, key: u64, want: Interest) -> io::Result<()> {
        epoll::add(&self.set, socket, EventData::new_u64(key), flags(want))?;
        Ok(())
    }

    pub(crate) fn modify(&self, socket: &Arc<Socket>, key: u64, want: Interest) -> io::Result<()> {
        epoll::modify(&self.set, socket, EventData::new_u64(key), flags(want))?;
        Ok(())
    }

    /// Closing a socket would do the same, unless a child process holds a copy of it.
    pub(crate) fn remove(&self, socket: &Arc<Socket>, _key: u64) {
        // Fails only for a socket that is not there.
        let _ = epoll::delete(&self.set, socket);
    }

    pub(crate) fn set_timer(&self, at: Option<Instant>) -> io::Result<()> {
        let left = at.map_or(NOW, |at| {
            let left = at.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                // Zero would switch the timer off.
                tv_nsec: i64::from(left.subsec_nanos().max(1)),
            }
        });
        let value = Itimerspec {
            it_interval: NOW,
            it_value: left,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &value)?;
        Ok(())
    }

    /// Calls `report` for everything that there is now, up to [`BATCH`] events.
    pub(crate) fn look(&self, report: &mut dyn FnMut(Event)) -> io::Result<()> {
        let mut raw = [const { MaybeUninit::<Raw>::uninit() }; BATCH];
        let (events, _) = match epoll::wait(&self.set, &mut raw[..], Some(&NOW)) {
            Ok(found) => found,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        for event in events {
            // The structure is packed: its fields are copied out.
            let (data, flags) = (event.data, event.flags);
            let both = flags.intersects(EventFlags::ERR | EventFlags::HUP);
            report(Event {
                key: data.u64(),
                readable: both || flags.intersects(EventFlags::IN | EventFlags::RDHUP),
                writable: both || flags.contains(EventFlags::OUT),
            });
        }
        Ok(())
    }

    pub(crate) fn wake_source(&self) -> WakeSource<'_> {
        WakeSource::Fd(self.set.as_fd())
    }
}

fn flags(want: Interest) -> EventFlags {
    let mut flags = EventFlags::empty();
    flags.set(EventFlags::IN | EventFlags::RDHUP, want.read);
    flags.set(EventFlags::OUT, want.write);
    flags
}
