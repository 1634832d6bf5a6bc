//! The engine's thread: drives when nobody else does, and sleeps.
//!
//! | what there is | what the thread does |
//! |---|---|
//! | nothing | dozes once, then parks until it is told |
//! | ends in the background only | dozes a millisecond at a time while others drive; once nobody has, as in the next row |
//! | sleeping owners, set-up futures, ends being closed | sleeps on the backend's descriptor |
//!
//! Dozing keeps a thread that spins in a ping-pong from waking this one for each message.

use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use comm_core::net::WakeSource;
use comm_core::{Armed, Error, ErrorKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Mode, Need, Shared, lock};

/// How long the thread dozes.
const DOZE: Duration = Duration::from_millis(1);

/// How soon a backend without a descriptor is looked at again, at first and at most.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));

/// How soon an end that is being closed is asked again whether it is at rest.
const CLOSE_AGAIN: Duration = Duration::from_millis(5);

/// Runs until the last handle and the last closing end are gone.
pub(super) fn run(engine: &Shared) {
    let mut rounds = Rounds {
        drives: 0,
        alone: false,
        dozed: false,
        look_again: LOOK_AGAIN.0,
    };
    while rounds.round(engine) {}
}

/// What the thread remembers from one round to the next.
struct Rounds {
    /// How often others had driven when the thread last looked.
    drives: u64,
    /// Whether nobody else drove although there was something in the background.
    alone: bool,
    /// Whether there was nothing to do the last time either.
    dozed: bool,
    look_again: Duration,
}

impl Rounds {
    /// Drives once and sleeps; whether to go on.
    fn round(&mut self, engine: &Shared) -> bool {
        let driving = lock(&engine.driving);
        set_mode(engine, Mode::Awake);
        engine.hush();
        // A backend that panics must not leave sleepers asleep.
        let moved = catch_unwind(AssertUnwindSafe(|| engine.drive_locked())).unwrap_or_else(|_| {
            engine.fail(Error::new(
                ErrorKind::Internal,
                "the network backend panicked; see its message on stderr and report it",
            ));
            true
        });
        if moved {
            self.look_again = LOOK_AGAIN.0;
            return true;
        }
        // From here on everybody who has something new rings the bell.
        set_mode(engine, Mode::Parked);
        let (need, until) = needed(engine);
        match need {
            Need::Nothing if engine.orphaned.load(Ordering::Acquire) => return false,
            Need::Nothing => {
                self.alone = false;
                let doze = !std::mem::replace(&mut self.dozed, true);
                if doze {
                    set_mode(engine, Mode::Dozing);
                }
                drop(driving);
                sleep(engine, false, doze.then_some(DOZE));
            }
            Need::Background if !self.alone => {
                self.dozed = false;
                set_mode(engine, Mode::Dozing);
                drop(driving);
                self.doze_while_others_drive(engine);
            }
            Need::Background | Need::Wake => {
                self.dozed = false;
                let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
                match watch(engine) {
                    Watch::Ready => return true,
                    Watch::Fd => {
                        set_mode(engine, Mode::Watching);
                        drop(driving);
                        sleep(engine, true, timeout);
                    }
                    Watch::Poll => {
                        set_mode(engine, Mode::Dozing);
                        drop(driving);
                        let again = self.look_again;
                        self.look_again = (again * 2).min(LOOK_AGAIN.1);
                        sleep(
                            engine,
                            false,
                            Some(timeout.map_or(again, |timeout| timeout.min(again))),
                        );
                    }
                    Watch::Failed => {
                        drop(driving);
                        sleep(engine, false, timeout);
                    }
                }
            }
        }
        true
    }

    /// Leaves the driving to others until a millisecond passes in which nobody does it.
    fn doze_while_others_drive(&mut self, engine: &Shared) {
        let drives = |engine: &Shared| engine.drives.load(Ordering::Relaxed);
        self.drives = drives(engine);
        while !sleep(engine, false, Some(DOZE)) {
            let now = drives(engine);
            if now == self.drives {
                self.alone = true;
                return;
            }
            self.drives = now;
            if lock(&engine.listed).members.is_empty() {
                return;
            }
        }
    }
}

enum Watch {
    /// There is something to do now.
    Ready,
    /// The descriptor will become readable.
    Fd,
    /// There is no descriptor.
    Poll,
    /// The backend has failed: nothing will come.
    Failed,
}

/// Arms the backend.
fn watch(engine: &Shared) -> Watch {
    if engine.failure().is_some() {
        return Watch::Failed;
    }
    match engine.backend.wake_source() {
        WakeSource::Fd(_) => match engine.backend.arm() {
            Ok(Armed::WillRing) => Watch::Fd,
            Ok(Armed::Ready) => Watch::Ready,
            Err(error) => {
                engine.fail(error);
                Watch::Ready
            }
        },
        _ => Watch::Poll,
    }
}

/// What there is to do, and when at the latest the thread must look again.
fn needed(engine: &Shared) -> (Need, Option<Instant>) {
    let listed = {
        let listed = lock(&engine.listed);
        match (listed.members.is_empty(), listed.wake) {
            (true, _) => Need::Nothing,
            (false, false) => Need::Background,
            (false, true) => Need::Wake,
        }
    };
    let setup = lock(&engine.waiting).next_deadline();
    let closing = (engine.closing_count() > 0).then(|| Instant::now() + CLOSE_AGAIN);
    let until = setup.into_iter().chain(closing).min();
    (if until.is_some() { Need::Wake } else { listed }, until)
}

fn set_mode(engine: &Shared, mode: Mode) {
    // Relaxed: ordered by the locks that are taken afterwards, see `Shared::list`.
    engine.mode.store(mode as u8, Ordering::Relaxed);
}

/// Sleeps until the thread is told something, the backend wakes (if `watching`) or the time is
/// over; whether it was told something.
fn sleep(engine: &Shared, watching: bool, timeout: Option<Duration>) -> bool {
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    });
    let ear = engine.ear.as_fd();
    let backend = match engine.backend.wake_source() {
        WakeSource::Fd(fd) if watching => fd,
        // Asking for nothing but errors of our own descriptor is as good as not asking.
        _ => ear,
    };
    let wanted = if watching {
        PollFlags::IN
    } else {
        PollFlags::empty()
    };
    let mut fds = [
        PollFd::new(&ear, PollFlags::IN),
        PollFd::from_borrowed_fd(backend, wanted),
    ];
    // EINTR is as good as a time-out: the caller looks at everything.
    let _ = poll(&mut fds, timeout.as_ref());
    fds[0].revents().contains(PollFlags::IN)
}
