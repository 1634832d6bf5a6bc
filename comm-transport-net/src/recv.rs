//! The receiving end of an edge.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use comm_core::doorbell::{Doorbell, Doorbells};
use comm_core::net::{NetRecv, Quiesce, Request, Transfer};
use comm_core::{Armed, Error, ErrorKind, MessageRecv, Result, StepHeader, StepRead};

use crate::closing::Closing;
use crate::engine::{Engine, Member, Need, Shared, lock};
use crate::header;
use crate::place::Place;
use crate::pool::{SLOTS, SlotPool};

/// The end's state, used by its owner and by whoever drives, under a lock.
///
/// Steps are counted from 0 here: `consumed <= arrived <= posted <= consumed + 8`, and slot
/// `step % 8` belongs to the network for `arrived <= step < posted`. It belongs to the owner for
/// `consumed <= step < arrived`.
#[derive(Debug)]
pub(crate) struct RecvState {
    // Declared before `pool`: dropped while the slots are still there.
    end: Box<dyn NetRecv>,
    pool: SlotPool,
    place: Place,
    /// Whether direct transfers are possible.
    direct: bool,
    posted: u64,
    arrived: u64,
    consumed: u64,
    /// Headers of the steps `consumed..arrived`.
    headers: VecDeque<StepHeader>,
    /// Requests of the steps `arrived..posted`.
    requests: VecDeque<Request>,
    failure: Option<Error>,
    sleeper: Option<Sleeper>,
    is_listed: bool,
}

/// Who sleeps, and for what.
#[derive(Debug)]
struct Sleeper {
    doorbells: Arc<Doorbells>,
    number: u32,
    awaited: Awaited,
}

/// What an owner can sleep for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// A step.
    Step,
    /// That a direct transfer can go on.
    Direct,
}

impl RecvState {
    pub(crate) fn new(end: Box<dyn NetRecv>, pool: SlotPool, place: Place, direct: bool) -> Self {
        Self {
            end,
            pool,
            place,
            direct,
            posted: 0,
            arrived: 0,
            consumed: 0,
            headers: VecDeque::with_capacity(SLOTS),
            requests: VecDeque::with_capacity(SLOTS),
            failure: None,
            sleeper: None,
            is_listed: false,
        }
    }

    /// Tests and posts what can be; whether anything changed.
    pub(crate) fn advance(&mut self, engine: &Shared) -> bool {
        let before = (self.arrived, self.posted, self.failure.is_some());
        if self.failure.is_none()
            && let Err(error) = self.try_advance(engine)
        {
            self.failure = Some(self.place.name(error));
        }
        before != (self.arrived, self.posted, self.failure.is_some())
    }

    /// Posts the free slots.
    fn repost(&mut self) {
        if self.failure.is_none()
            && let Err(error) = self.post_free()
        {
            // What completed before the failure is still to be had.
            let _ = self.take_arrived();
            self.fail(error);
        }
    }

    fn try_advance(&mut self, engine: &Shared) -> Result<()> {
        self.take_arrived()?;
        if let Err(error) = self.post_free() {
            // What completed before the failure is still to be had.
            self.take_arrived()?;
            return Err(error);
        }
        engine.failure().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn take_arrived(&mut self) -> Result<()> {
        while let Some(request) = self.requests.front() {
            let Some(message_bytes) = self.end.test(request)? else {
                break;
            };
            self.requests.pop_front();
            // SAFETY: the step's request is done and its slot is posted again only after the step
            // was consumed.
            let line = unsafe { self.pool.read_header(self.arrived) };
            let header = header::decode(&line, self.arrived + 1, message_bytes)?;
            self.headers.push_back(header);
            self.arrived += 1;
        }
        Ok(())
    }

    fn post_free(&mut self) -> Result<()> {
        while self.posted < self.consumed + SLOTS as u64 {
            // SAFETY: the slot's last step was consumed, and from now until `arrived` passes this
            // one (or the end has quiesced) nobody looks at the slot.
            let Some(request) = (unsafe { self.pool.irecv(&mut *self.end, self.posted) })? else {
                break;
            };
            self.requests.push_back(request);
            self.posted += 1;
        }
        Ok(())
    }

    /// Withdraws the posted receives.
    pub(crate) fn quiesce(&mut self, deadline: Instant) -> Quiesce {
        self.end.quiesce(deadline)
    }

    /// Closes the connection and leaks the slots.
    pub(crate) fn quarantine(self) {
        self.pool.quarantine();
    }

    const fn has_step(&self) -> bool {
        self.consumed < self.arrived
    }

    fn need(&self) -> Need {
        let starved = self.requests.is_empty() && self.posted < self.consumed + SLOTS as u64;
        match (&self.sleeper, &self.failure) {
            (Some(_), _) => Need::Wake,
            (None, None) if starved => Need::Background,
            _ => Need::Nothing,
        }
    }

    /// Whether there is something to wake up for.
    fn has(&mut self, awaited: Awaited) -> bool {
        self.failure.is_some()
            || match awaited {
                Awaited::Step => self.has_step(),
                Awaited::Direct => self.end.direct_ready(),
            }
    }

    /// Rings the sleeper's doorbell if it can go on.
    fn ring_if_ready(&mut self) {
        let Some(sleeper) = self.sleeper.take() else {
            return;
        };
        if self.has(sleeper.awaited) {
            sleeper.doorbells.ring(sleeper.number);
        } else {
            self.sleeper = Some(sleeper);
        }
    }

    /// Notes a failure of the connection.
    fn fail(&mut self, error: Error) -> Error {
        let error = self.place.name(error);
        self.failure.get_or_insert(error).clone()
    }

    /// The failure, unless there are steps to be taken before.
    fn check(&self) -> Result<()> {
        match &self.failure {
            Some(error) if !self.has_step() => Err(error.clone()),
            _ => Ok(()),
        }
    }
}

/// What the owner and the engine share of an end; empty while the owner closes it.
#[derive(Debug)]
struct RecvEnd {
    state: Mutex<Option<RecvState>>,
}

impl Member for RecvEnd {
    fn serve(&self, engine: &Shared) -> Need {
        let mut state = lock(&self.state);
        let Some(state) = state.as_mut() else {
            return Need::Nothing;
        };
        state.advance(engine);
        state.ring_if_ready();
        let need = state.need();
        state.is_listed = need != Need::Nothing;
        need
    }
}

/// The owner's side of a receiving end.
#[derive(Debug)]
pub(crate) struct Receiver {
    end: Arc<RecvEnd>,
    engine: Arc<Engine>,
    linger: Duration,
    /// Whether a step was handed out and not consumed.
    /// Steps that were handed out and not consumed.
    taken: usize,
}

impl Receiver {
    /// Posts the slots; the error is that of the connection.
    pub(crate) fn new(mut state: RecvState, engine: Arc<Engine>, linger: Duration) -> Result<Self> {
        state.advance(&engine);
        state.check()?;
        let need = state.need();
        let end = Arc::new(RecvEnd {
            state: Mutex::new(Some(state)),
        });
        let receiver = Self {
            end,
            engine,
            linger,
            taken: 0,
        };
        receiver.with(|state| {
            receiver
                .engine
                .list(&receiver.end, &mut state.is_listed, need);
            Ok(())
        })?;
        Ok(receiver)
    }

    /// Calls `act` with the state.
    fn with<T>(&self, act: impl FnOnce(&mut RecvState) -> Result<T>) -> Result<T> {
        match lock(&self.end.state).as_mut() {
            Some(state) => act(state),
            None => Err(Error::new(
                ErrorKind::Internal,
                "an end is used while it is being closed",
            )),
        }
    }
}

impl Receiver {
    /// Arranges for `doorbell` to be rung; whether there is something to wait for.
    fn sleep_on(&self, doorbell: &Doorbell, awaited: Awaited) -> Result<Armed> {
        self.with(|state| {
            state.sleeper = Some(Sleeper {
                doorbells: Arc::clone(doorbell.set()),
                number: doorbell.number(),
                awaited,
            });
            // Listed first, tested afterwards: see the engine's contract.
            self.engine
                .list(&self.end, &mut state.is_listed, Need::Wake);
            state.advance(&self.engine);
            if state.has(awaited) {
                state.sleeper = None;
                state.check()?;
                return Ok(Armed::Ready);
            }
            Ok(Armed::WillRing)
        })
    }
}

impl MessageRecv for Receiver {
    fn slots(&self) -> usize {
        SLOTS
    }

    fn try_step(&mut self) -> Result<Option<StepRead>> {
        self.try_step_ahead(0)
    }

    fn try_step_ahead(&mut self, ahead: usize) -> Result<Option<StepRead>> {
        if ahead > self.taken {
            return Ok(None);
        }
        let step = self.with(|state| {
            if state.headers.len() <= ahead {
                state.advance(&self.engine);
            }
            // What has arrived is handed out before the failure.
            if state.headers.len() <= ahead && ahead > 0 {
                return Ok(None);
            }
            state.check()?;
            let header = state.headers.get(ahead).copied();
            Ok(header.map(|header| StepRead {
                data: state.pool.payload(state.consumed + ahead as u64),
                header,
            }))
        })?;
        if step.is_some() {
            self.taken = self.taken.max(ahead + 1);
        }
        Ok(step)
    }

    fn consume(&mut self) -> Result<()> {
        if self.taken == 0 {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "no step was taken to be consumed",
            ));
        }
        self.taken -= 1;
        self.with(|state| {
            state.headers.pop_front();
            state.consumed += 1;
            // What has come is not looked for now: that is a system call for many networks.
            state.repost();
            let need = state.need();
            self.engine.list(&self.end, &mut state.is_listed, need);
            Ok(())
        })
    }

    fn progress(&mut self) -> Result<bool> {
        let advance = |state: &mut RecvState| Ok(state.advance(&self.engine));
        let moved = self.with(advance)? || self.engine.drive() | self.with(advance)?;
        self.with(|state| state.check())?;
        Ok(moved)
    }

    fn arm(&mut self, doorbell: &Doorbell) -> Result<Armed> {
        self.sleep_on(doorbell, Awaited::Step)
    }

    fn supports_direct(&self) -> bool {
        matches!(self.with(|state| Ok(state.direct)), Ok(true))
    }

    fn recv_direct(&mut self, data: &mut [u8]) -> Result<Transfer> {
        self.with(|state| {
            state.check()?;
            state
                .end
                .recv_direct(data)
                .map_err(|error| state.fail(error))
        })
    }

    fn arm_direct(&mut self, doorbell: &Doorbell) -> Result<Armed> {
        self.sleep_on(doorbell, Awaited::Direct)
    }

    fn quiesce(&mut self, deadline: Instant) -> bool {
        // Taken out, so that the engine does not wait for the lock meanwhile.
        let Some(mut state) = lock(&self.end.state).take() else {
            return true;
        };
        state.sleeper = None;
        let at_rest = state.quiesce(deadline) == Quiesce::Quiesced;
        let cancelled = Error::new(ErrorKind::Cancelled, "this end of the edge was quiesced");
        let cancelled = state.place.name(cancelled);
        state.failure.get_or_insert(cancelled);
        state.is_listed = false;
        *lock(&self.end.state) = Some(state);
        // Quiescing may have fetched what others wait for.
        self.engine.nudge();
        at_rest
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let Some(mut state) = lock(&self.end.state).take() else {
            return;
        };
        state.sleeper = None;
        let now = Instant::now();
        if let Some(rest) = Closing::recv(state, now + self.linger).advance(&self.engine, now) {
            self.engine.close_later(rest);
        }
        // Quiescing may have fetched what others wait for.
        self.engine.nudge();
    }
}
