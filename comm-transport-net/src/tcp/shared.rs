//! What all parts of one backend share.
//!
//! # Locks
//!
//! A member's own > the acceptor > `members`, `deadlines`. `members` is never held while a member
//! is called.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use comm_core::{Error, Result};

use super::acceptor::Acceptor;
use super::options::{MAX_SOCKETS, TcpOptions};
use super::poller::{BATCH, Event, Poller, TIMER_KEY};

/// What owns sockets and is told what they have.
pub(crate) trait Member: Send + Sync + fmt::Debug {
    /// Moves on; whether anything moved. `socket` is its number within the member.
    fn ready(&self, shared: &Arc<Shared>, socket: usize, event: Event) -> bool;

    /// The member's deadline has passed.
    fn expired(&self, _shared: &Arc<Shared>) {}
}

/// The state of one backend.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Distinguishes the backends of a process.
    pub(crate) number: u64,
    pub(crate) options: TcpOptions,
    pub(crate) poller: Arc<Poller>,
    pub(crate) acceptor: Mutex<Acceptor>,
    members: Mutex<HashMap<u64, Arc<dyn Member>>>,
    deadlines: Mutex<BTreeSet<(Instant, u64)>>,
    next_member: AtomicU64,
    failure: OnceLock<Error>,
}

impl Shared {
    pub(crate) fn new(options: TcpOptions) -> Result<Arc<Self>> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let poller = Poller::new()
            .map_err(|error| Error::system("making the event set of the TCP network", error))?;
        Ok(Arc::new(Self {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            options,
            poller: Arc::new(poller),
            acceptor: Mutex::default(),
            members: Mutex::default(),
            deadlines: Mutex::default(),
            next_member: AtomicU64::new(0),
            failure: OnceLock::new(),
        }))
    }

    /// A number for a new member.
    pub(crate) fn new_member(&self) -> u64 {
        self.next_member.fetch_add(1, Ordering::Relaxed)
    }

    /// The poller's key of a member's socket.
    pub(crate) const fn key(member: u64, socket: usize) -> u64 {
        member * MAX_SOCKETS as u64 + socket as u64
    }

    /// Adds a member, or replaces it by what it has become.
    pub(crate) fn insert(&self, number: u64, member: Arc<dyn Member>) {
        let before = lock(&self.members).insert(number, member);
        drop(before);
    }

    pub(crate) fn remove(&self, number: u64) {
        let before = lock(&self.members).remove(&number);
        drop(before);
    }

    /// Tells the member when `at` has passed.
    pub(crate) fn set_deadline(&self, at: Instant, member: u64) {
        let mut deadlines = lock(&self.deadlines);
        deadlines.insert((at, member));
        self.set_timer(&deadlines);
    }

    /// Takes the wish back.
    pub(crate) fn clear_deadline(&self, at: Instant, member: u64) {
        let mut deadlines = lock(&self.deadlines);
        if deadlines.remove(&(at, member)) {
            self.set_timer(&deadlines);
        }
    }

    fn set_timer(&self, deadlines: &BTreeSet<(Instant, u64)>) {
        if let Err(error) = self.poller.set_timer(deadlines.first().map(|(at, _)| *at)) {
            self.fail(Error::system("setting the timer of the TCP network", error));
        }
    }

    fn expire(&self, shared: &Arc<Self>) {
        let now = Instant::now();
        let due = {
            let mut deadlines = lock(&self.deadlines);
            let mut due = Vec::new();
            while let Some(&(at, member)) = deadlines.first()
                && at <= now
            {
                deadlines.pop_first();
                due.push(member);
            }
            self.set_timer(&deadlines);
            due
        };
        for number in due {
            let member = lock(&self.members).get(&number).cloned();
            if let Some(member) = member {
                member.expired(shared);
            }
        }
    }

    /// Looks once at all sockets and moves what can be moved; whether anything moved.
    pub(crate) fn progress(self: &Arc<Self>) -> Result<bool> {
        self.check()?;
        let nothing = Event {
            key: 0,
            readable: false,
            writable: false,
        };
        let (mut events, mut count) = ([nothing; BATCH], 0);
        let looked = self.poller.look(&mut |event| {
            if let Some(place) = events.get_mut(count) {
                *place = event;
                count += 1;
            }
        });
        if let Err(error) = looked {
            self.fail(Error::system("looking at the sockets", error));
        }
        let mut moved = false;
        for event in &events[..count] {
            if event.key == TIMER_KEY {
                self.expire(self);
                moved = true;
                continue;
            }
            let (number, socket) = (
                event.key / MAX_SOCKETS as u64,
                event.key % MAX_SOCKETS as u64,
            );
            let member = lock(&self.members).get(&number).cloned();
            if let Some(member) = member {
                moved |= member.ready(self, socket as usize, *event);
            }
        }
        self.check()?;
        Ok(moved)
    }

    pub(crate) fn fail(&self, error: Error) {
        // Only the first failure counts.
        let _ = self.failure.set(error);
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.failure
            .get()
            .map_or(Ok(()), |error| Err(error.clone()))
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
