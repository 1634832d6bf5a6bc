//! What the two ends of an edge have in common: an owner, and the engine that stands in for him.
//!
//! # Contract
//!
//! * The [`State`] of an end is used by its owner and by whoever drives the engine, under a lock that
//!   nobody holds while waiting.
//! * An owner sleeps only while his end is on the engine's list, and is rung once it has what he
//!   sleeps for, or has failed.
//! * A dropped end returns at once; the engine [closes](Closing) what the network still holds.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use comm_core::doorbell::{Doorbell, Doorbells};
use comm_core::{Armed, Error, ErrorKind, Result};

use crate::closing::{Closing, Rest};
use crate::engine::{Engine, Member, Need, Shared, lock};
use crate::place::Place;

/// The state of a sending or receiving end.
pub(crate) trait State: Rest + Debug + Send + 'static {
    /// What its owner can sleep for.
    type Awaited: Copy + Debug + Send;

    /// Tests and posts what can be; whether anything changed.
    fn advance(&mut self, engine: &Shared) -> bool;

    /// How urgently the end needs the engine.
    fn need(&self) -> Need;

    /// Whether there is something to wake up for.
    fn has(&mut self, awaited: Self::Awaited) -> bool;

    /// The failure, unless there is something to be had before it.
    fn check(&self) -> Result<()>;

    fn notes(&mut self) -> &mut Notes<Self::Awaited>;
}

/// What every end knows of itself.
#[derive(Debug)]
pub(crate) struct Notes<A> {
    place: Place,
    pub(crate) failure: Option<Error>,
    sleeper: Option<Sleeper<A>>,
    is_listed: bool,
}

/// Who sleeps, and for what.
#[derive(Debug)]
struct Sleeper<A> {
    doorbells: Arc<Doorbells>,
    number: u32,
    awaited: A,
}

impl<A> Notes<A> {
    pub(crate) const fn new(place: Place) -> Self {
        Self {
            place,
            failure: None,
            sleeper: None,
            is_listed: false,
        }
    }

    pub(crate) const fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    pub(crate) const fn has_sleeper(&self) -> bool {
        self.sleeper.is_some()
    }

    /// Notes a failure of the connection; the first one.
    pub(crate) fn fail(&mut self, error: Error) -> Error {
        let error = self.place.name(error);
        self.failure.get_or_insert(error).clone()
    }
}

/// Rings the sleeper's doorbell if he can go on.
fn ring_if_ready<S: State>(state: &mut S) {
    let Some(sleeper) = state.notes().sleeper.take() else {
        return;
    };
    if state.has(sleeper.awaited) {
        sleeper.doorbells.ring(sleeper.number);
    } else {
        state.notes().sleeper = Some(sleeper);
    }
}

/// What the owner and the engine share; empty while the owner has the state to himself.
#[derive(Debug)]
struct Common<S> {
    state: Mutex<Option<S>>,
}

impl<S: State> Member for Common<S> {
    fn serve(&self, engine: &Shared) -> Need {
        let mut state = lock(&self.state);
        let Some(state) = state.as_mut() else {
            return Need::Nothing;
        };
        state.advance(engine);
        ring_if_ready(state);
        let need = state.need();
        state.notes().is_listed = need != Need::Nothing;
        need
    }
}

/// The owner's side of an end.
#[derive(Debug)]
pub(crate) struct End<S: State> {
    common: Arc<Common<S>>,
    engine: Arc<Engine>,
    linger: Duration,
}

impl<S: State> End<S> {
    pub(crate) fn new(state: S, engine: Arc<Engine>, linger: Duration) -> Self {
        let end = Self {
            common: Arc::new(Common {
                state: Mutex::new(Some(state)),
            }),
            engine,
            linger,
        };
        if let Some(state) = lock(&end.common.state).as_mut() {
            end.list(state);
        }
        end
    }

    /// Calls `act` with the state.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut S, &Engine) -> Result<T>) -> Result<T> {
        match lock(&self.common.state).as_mut() {
            Some(state) => act(state, &self.engine),
            None => Err(Error::new(
                ErrorKind::Internal,
                "an end is used while it is being closed",
            )),
        }
    }

    /// Calls `act` with the state, and tells the engine what it needs afterwards.
    pub(crate) fn with_listed<T>(
        &self,
        act: impl FnOnce(&mut S, &Engine) -> Result<T>,
    ) -> Result<T> {
        self.with(|state, engine| {
            let result = act(state, engine)?;
            self.list(state);
            Ok(result)
        })
    }

    fn list(&self, state: &mut S) {
        let need = state.need();
        let is_listed = &mut state.notes().is_listed;
        self.engine.list(&self.common, is_listed, need);
    }

    /// Calls `act` with the state taken out, so that the engine does not wait for its lock meanwhile;
    /// `None` if somebody else has it.
    pub(crate) fn apart<T>(&self, act: impl FnOnce(&mut S) -> T) -> Option<T> {
        let mut state = lock(&self.common.state).take()?;
        // Its owner is here.
        state.notes().sleeper = None;
        let result = act(&mut state);
        // The engine may have dropped the end from its list while the state was away.
        state.notes().is_listed = false;
        self.list(lock(&self.common.state).insert(state));
        // The network may have been asked for what others wait for.
        self.engine.nudge();
        Some(result)
    }

    /// Looks for what can be done, by driving the engine if need be; whether anything changed.
    pub(crate) fn progress(&self) -> Result<bool> {
        let advance = |state: &mut S, engine: &Engine| Ok(state.advance(engine));
        let moved = self.with(advance)? || self.engine.drive() | self.with(advance)?;
        self.with(|state, _| state.check())?;
        Ok(moved)
    }

    /// Drives the engine once; whether anything moved.
    pub(crate) fn drive(&self) -> bool {
        self.engine.drive()
    }

    /// Arranges for `doorbell` to be rung; whether there is something to wait for.
    pub(crate) fn sleep_on(&self, doorbell: &Doorbell, awaited: S::Awaited) -> Result<Armed> {
        self.with(|state, engine| {
            state.notes().sleeper = Some(Sleeper {
                doorbells: Arc::clone(doorbell.set()),
                number: doorbell.number(),
                awaited,
            });
            // Listed first, tested afterwards: see the engine's contract.
            let is_listed = &mut state.notes().is_listed;
            engine.list(&self.common, is_listed, Need::Wake);
            state.advance(engine);
            if state.has(awaited) {
                state.notes().sleeper = None;
                state.check()?;
                return Ok(Armed::Ready);
            }
            Ok(Armed::WillRing)
        })
    }

    /// Takes back what was asked for by [`End::sleep_on`].
    pub(crate) fn sleep_no_more(&self) -> Result<()> {
        self.with(|state, _| {
            state.notes().sleeper = None;
            Ok(())
        })
    }
}

impl<S: State> Drop for End<S> {
    fn drop(&mut self) {
        let Some(mut state) = lock(&self.common.state).take() else {
            return;
        };
        state.notes().sleeper = None;
        let now = Instant::now();
        let closing = Closing::new(Box::new(state), now + self.linger);
        if let Some(rest) = closing.advance(&self.engine, now) {
            self.engine.close_later(rest);
        }
        // Bringing it to rest may have fetched what others wait for.
        self.engine.nudge();
    }
}
