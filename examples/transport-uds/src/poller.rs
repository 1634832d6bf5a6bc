//! Waking up: which sockets have something to do.
//!
//! # Contract
//!
//! * A socket is in the epoll set as long as its [`Watched`] lives. It is reported once after each
//!   [`Watched::ask`], as soon as what was asked for holds or the connection ends. So a socket that
//!   nobody wants anything of keeps nobody awake.
//! * [`Poller::progress`] hands each report to its [`Member`], which either gets all that it wants
//!   or asks again. A report that one thread has taken is therefore never lost to another one that
//!   sleeps on the set's descriptor.
//! * Locks: a member's own comes before the list of members.

use std::collections::HashMap;
use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use comm_core::{Error, Result};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

/// Reports that are taken at once.
const BATCH: usize = 64;

const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// What is told when its socket has something.
pub(crate) trait Member: Send + Sync + fmt::Debug {
    /// Does what can be done; whether that changed anything for the owner.
    fn ready(&self) -> bool;
}

/// The sockets of one backend.
#[derive(Debug)]
pub(crate) struct Poller {
    set: OwnedFd,
    members: Mutex<Members>,
}

#[derive(Debug, Default)]
struct Members {
    next_key: u64,
    by_key: HashMap<u64, Weak<dyn Member>>,
}

impl Poller {
    pub(crate) fn new() -> Result<Self> {
        let set = epoll::create(CreateFlags::CLOEXEC)
            .map_err(|errno| Error::system("making an epoll set for Unix sockets", errno))?;
        Ok(Self {
            set,
            members: Mutex::default(),
        })
    }

    /// The descriptor that is readable when [`Poller::progress`] has something to do.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }

    /// Watches a non-blocking socket, of which `wanted` is asked for at once, for the member that
    /// `make` makes.
    pub(crate) fn watch<M: Member + 'static>(
        self: &Arc<Self>,
        socket: OwnedFd,
        wanted: EventFlags,
        make: impl FnOnce(Watched) -> M,
    ) -> Result<Arc<M>> {
        // Held until the member is in the list: whoever is told of the socket before waits here.
        let mut members = lock(&self.members);
        let key = members.next_key;
        let flags = wanted | EventFlags::ONESHOT;
        epoll::add(&self.set, &socket, EventData::new_u64(key), flags)
            .map_err(|errno| Error::system("adding a Unix socket to the epoll set", errno))?;
        members.next_key += 1;
        let member = Arc::new(make(Watched {
            socket,
            wanted,
            is_asked: true,
            key,
            poller: Arc::clone(self),
        }));
        members.by_key.insert(key, Arc::downgrade(&member) as _);
        Ok(member)
    }

    /// Tells the members what there is now, without waiting; whether any of them moved.
    pub(crate) fn progress(&self) -> Result<bool> {
        let mut room = [const { MaybeUninit::<Event>::uninit() }; BATCH];
        let (events, _) = match epoll::wait(&self.set, &mut room[..], Some(&NOW)) {
            Ok(found) => found,
            Err(Errno::INTR) => return Ok(true),
            Err(errno) => return Err(Error::system("looking at Unix sockets", errno)),
        };
        let mut moved = false;
        for event in events {
            // Copied out: the kernel's structure is packed.
            let key = { event.data }.u64();
            // Not held while the member works.
            let member = lock(&self.members).by_key.get(&key).and_then(Weak::upgrade);
            moved |= member.is_some_and(|member| member.ready());
        }
        Ok(moved)
    }
}

/// A socket in the epoll set; closed, and no longer in the set, when dropped.
#[derive(Debug)]
pub(crate) struct Watched {
    socket: OwnedFd,
    wanted: EventFlags,
    /// Whether a report is still to come.
    is_asked: bool,
    key: u64,
    poller: Arc<Poller>,
}

impl Watched {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Asks for a report. Costs a system call only once for each report, so that who polls a socket
    /// in vain may ask every time.
    pub(crate) fn ask(&mut self) -> Result<()> {
        if !self.is_asked {
            let flags = self.wanted | EventFlags::ONESHOT;
            let key = EventData::new_u64(self.key);
            epoll::modify(&self.poller.set, &self.socket, key, flags)
                .map_err(|errno| Error::system("asking for reports of a Unix socket", errno))?;
            self.is_asked = true;
        }
        Ok(())
    }

    /// Takes note of a report. To be called by [`Member::ready`] before anything else.
    pub(crate) const fn reported(&mut self) {
        self.is_asked = false;
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Closing would remove it too, unless a child process has a copy of the descriptor.
        let _ = epoll::delete(&self.poller.set, &self.socket);
        lock(&self.poller.members).by_key.remove(&self.key);
    }
}

/// Locks; what panicked while it held the lock has left nothing half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
