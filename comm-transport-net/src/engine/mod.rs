//! The progress engine: one per backend and process.
//!
//! # Contract
//!
//! * [`Shared::drive`] makes the backend progress and then serves every end that is *listed*:
//!   ends whose owner sleeps, and ends with sends that the network has not taken or finished. It
//!   is a try-lock: whoever does not get it knows that somebody else drives.
//! * Whoever drives also serves, so what one thread fetches from the backend reaches every
//!   sleeping owner, whoever that is.
//! * Where the network's calls move what they concern by themselves
//!   ([`NetProperties::inline_progress`]), driving is left out while nobody is listed, set up or
//!   closed.
//! * The thread (see [`thread`]) drives when nobody else does. It is told ([`Shared::nudge`]) when
//!   it has to look anew.
//!
//! # Locks
//!
//! `driving` > an end's state > `listed`, `waiting` and the backend's own. An end's owner never
//! drives while it holds its state. `driving` > `closing` > the backend's own.
//!
//! # No lost wake-up
//!
//! An owner lists its end, then tests it, then sleeps. A driver makes progress, then takes the
//! list. If the driver took the list before the end was on it, its progress came before the
//! owner's test, which saw what there was. Otherwise the driver serves the end. What comes later
//! makes the backend's descriptor readable (clause N16), on which the thread sleeps while any owner
//! does.

mod thread;
mod waiting;

use std::fmt;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::task::Waker;
use std::time::Instant;

use comm_core::net::NetBackend;
#[cfg(doc)]
use comm_core::net::NetProperties;
use comm_core::{Error, Result};

pub(crate) use self::waiting::Ready;
use self::waiting::Waiting;
use crate::closing::Closing;
use crate::stats::Counters;

/// How urgently an end needs the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// Not at all: it is taken off the list.
    Nothing,
    /// Its owner is busy elsewhere; it must not be forgotten.
    Background,
    /// Its owner sleeps.
    Wake,
}

/// An end as the engine sees it.
pub(crate) trait Member: Send + Sync + fmt::Debug {
    /// Advances the end, rings its owner if that can go on, and says what remains to be done.
    ///
    /// An end that answers [`Need::Nothing`] has noted that it is no longer listed.
    fn serve(&self, engine: &Shared) -> Need;
}

/// What the thread does at the moment, as far as others must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Mode {
    /// It will look at everything before it sleeps.
    Awake = 0,
    /// It looks again within a millisecond.
    Dozing = 1,
    /// It sleeps on the backend's descriptor.
    Watching = 2,
    /// It sleeps until it is told, or is about to.
    Parked = 3,
}

/// The engine, shared by its handles, the thread and nobody else.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) backend: Arc<dyn NetBackend>,
    pub(crate) counters: Arc<Counters>,
    driving: Mutex<()>,
    listed: Mutex<Listed>,
    waiting: Mutex<Waiting>,
    closing: Mutex<Vec<Closing>>,
    failure: OnceLock<Error>,
    /// Whether nobody has to drive for himself.
    inline: bool,
    /// Whether driving may serve somebody.
    ///
    /// Relaxed: whoever needs to be served notes it after he was listed, under the lock of the
    /// list; a driver clears it before he takes the list.
    in_demand: AtomicBool,
    /// Times that somebody drove; tells the thread whether it is needed.
    drives: AtomicU64,
    mode: AtomicU8,
    /// Written to in order to wake the thread, which reads the other end.
    bell: UnixStream,
    ear: UnixStream,
    /// Whether the last handle is gone.
    orphaned: AtomicBool,
}

#[derive(Debug, Default)]
struct Listed {
    members: Vec<Arc<dyn Member>>,
    /// Whether some owner may sleep.
    wake: bool,
}

/// A handle of the engine; the thread ends after the last one is dropped.
#[derive(Debug)]
pub(crate) struct Engine {
    shared: Arc<Shared>,
}

impl std::ops::Deref for Engine {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.orphaned.store(true, Ordering::Release);
        self.shared.nudge();
    }
}

impl Engine {
    /// Makes the engine of a backend and starts its thread, which sleeps.
    pub(crate) fn start(backend: Arc<dyn NetBackend>) -> Result<Arc<Self>> {
        let refused = |what: &'static str| move |error: std::io::Error| Error::system(what, error);
        let (bell, ear) = UnixStream::pair().map_err(refused(
            "making the descriptors that wake the network's thread",
        ))?;
        for end in [&bell, &ear] {
            end.set_nonblocking(true).map_err(refused(
                "setting up the descriptors that wake the network's thread",
            ))?;
        }
        let devices = backend.devices();
        let shared = Arc::new(Shared {
            inline: devices.iter().all(|device| device.inline_progress),
            in_demand: AtomicBool::new(false),
            backend,
            counters: Arc::default(),
            driving: Mutex::default(),
            listed: Mutex::default(),
            waiting: Mutex::default(),
            closing: Mutex::default(),
            failure: OnceLock::new(),
            drives: AtomicU64::new(0),
            mode: AtomicU8::new(Mode::Awake as u8),
            bell,
            ear,
            orphaned: AtomicBool::new(false),
        });
        let engine = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("comm-net-engine".to_owned())
            .spawn(move || thread::run(&engine))
            .map_err(refused("starting the network's thread"))?;
        Ok(Arc::new(Self { shared }))
    }
}

impl Shared {
    /// The failure of the whole backend, if it has failed.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }

    /// Drives, unless somebody else does; whether anything moved.
    pub(crate) fn drive(&self) -> bool {
        if self.inline && !self.in_demand.load(Ordering::Relaxed) {
            return false;
        }
        let _driving = match self.driving.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        // Relaxed: a hint for the thread.
        self.drives.fetch_add(1, Ordering::Relaxed);
        self.drive_locked()
    }

    /// As [`Shared::drive`], by whoever holds `driving`.
    fn drive_locked(&self) -> bool {
        self.in_demand.store(false, Ordering::Relaxed);
        let moved = self.failure.get().is_none()
            && self.backend.progress().unwrap_or_else(|error| {
                self.fail(error);
                true
            });
        self.close_some();
        self.serve();
        let due = {
            let mut waiting = lock(&self.waiting);
            // Nobody's clock is read for nobody.
            if waiting.is_empty() {
                Vec::new()
            } else {
                let due = waiting.due(moved, Instant::now());
                if !waiting.is_empty() {
                    self.demand();
                }
                due
            }
        };
        due.into_iter().for_each(Waker::wake);
        moved
    }

    /// Notes that driving may serve somebody.
    fn demand(&self) {
        self.in_demand.store(true, Ordering::Relaxed);
    }

    fn fail(&self, error: Error) {
        // Only the first failure counts.
        let _ = self.failure.set(error);
    }

    fn serve(&self) {
        let mut members = {
            let mut listed = lock(&self.listed);
            listed.wake = false;
            std::mem::take(&mut listed.members)
        };
        let mut wake = false;
        members.retain(|member| {
            let need = member.serve(self);
            wake |= need == Need::Wake;
            need != Need::Nothing
        });
        if !members.is_empty() {
            let mut listed = lock(&self.listed);
            listed.wake |= wake;
            listed.members.append(&mut members);
            self.demand();
        }
    }

    /// Puts an end on the list, unless it is there, and tells the thread if that must know.
    ///
    /// Called under the end's lock, which guards `is_listed`.
    pub(crate) fn list(
        &self,
        member: &Arc<impl Member + 'static>,
        is_listed: &mut bool,
        need: Need,
    ) {
        if need == Need::Nothing {
            return;
        }
        {
            let mut listed = lock(&self.listed);
            listed.wake |= need == Need::Wake;
            if !std::mem::replace(is_listed, true) {
                listed.members.push(Arc::clone(member) as Arc<dyn Member>);
            }
            self.demand();
        }
        // Relaxed: the thread sets `Parked` before it takes the lock of the list. If it found the
        // list without the end, its unlock came before our lock, and we see `Parked`.
        let mode = self.mode.load(Ordering::Relaxed);
        let heard = mode == Mode::Awake as u8
            || mode == Mode::Watching as u8
            || mode == Mode::Dozing as u8 && need == Need::Background;
        if !heard {
            self.ring();
        }
    }

    /// Tells the thread to look at everything anew.
    pub(crate) fn nudge(&self) {
        self.ring();
    }

    fn ring(&self) {
        // A full buffer means that the thread has been told often enough.
        let _ = (&self.bell).write(&[0]);
    }

    /// Forgets what the thread was told so far; it looks at everything afterwards.
    fn hush(&self) {
        let mut told = [0; 64];
        while matches!((&self.ear).read(&mut told), Ok(1..)) {}
    }

    /// Takes over an end that was dropped before it was at rest.
    pub(crate) fn close_later(&self, closing: Closing) {
        {
            let mut ends = lock(&self.closing);
            ends.push(closing);
            self.demand();
        }
        self.ring();
    }

    /// Ends that are being closed.
    pub(crate) fn closing_count(&self) -> usize {
        lock(&self.closing).len()
    }

    fn close_some(&self) {
        let mut closing = lock(&self.closing);
        if !closing.is_empty() {
            let now = Instant::now();
            let ends = std::mem::take(&mut *closing);
            *closing = ends
                .into_iter()
                .filter_map(|end| end.advance(self, now))
                .collect();
            if !closing.is_empty() {
                self.demand();
            }
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
