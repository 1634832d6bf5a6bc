//! The sending end of an edge.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use comm_core::doorbell::{Doorbell, Doorbells};
use comm_core::net::{NetSend, Quiesce, Request, Transfer};
use comm_core::{Armed, Error, ErrorKind, MessageSend, Result, SlotWrite, StepHeader};

use crate::closing::Closing;
use crate::engine::{Engine, Member, Need, Shared, lock};
use crate::header;
use crate::place::Place;
use crate::pool::{SLOTS, SlotPool};

/// The end's state, used by its owner and by whoever drives, under a lock.
///
/// Steps are counted from 0 here: `done <= posted <= published <= done + 8`, and slot `step % 8`
/// belongs to the network for `done <= step < posted`. It belongs to the owner otherwise, who
/// writes to it only between `try_slot` and `publish`, when `step == published < done + 8`.
#[derive(Debug)]
pub(crate) struct SendState {
    // Declared before `pool`: dropped while the slots are still there.
    end: Box<dyn NetSend>,
    pool: SlotPool,
    place: Place,
    /// Whether direct transfers are possible.
    direct: bool,
    published: u64,
    posted: u64,
    done: u64,
    /// Payload lengths of published steps.
    lengths: [usize; SLOTS],
    /// Requests of the steps `done..posted`.
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
    /// A slot.
    Slot,
    /// That everything is sent.
    AllSent,
    /// That a direct transfer can go on.
    Direct,
}

impl SendState {
    pub(crate) fn new(end: Box<dyn NetSend>, pool: SlotPool, place: Place, direct: bool) -> Self {
        Self {
            end,
            pool,
            place,
            direct,
            published: 0,
            posted: 0,
            done: 0,
            lengths: [0; SLOTS],
            requests: VecDeque::with_capacity(SLOTS),
            failure: None,
            sleeper: None,
            is_listed: false,
        }
    }

    /// Tests and posts what can be; whether anything changed.
    pub(crate) fn advance(&mut self, engine: &Shared) -> bool {
        let before = (self.done, self.posted, self.failure.is_some());
        if self.failure.is_none()
            && let Err(error) = self.try_advance(engine)
        {
            self.failure = Some(self.place.name(error));
        }
        before != (self.done, self.posted, self.failure.is_some())
    }

    fn try_advance(&mut self, engine: &Shared) -> Result<()> {
        self.take_done()?;
        let before = self.posted;
        self.post_published()?;
        if self.posted > before {
            // Many sends are done at once; then the engine need not know of them.
            self.take_done()?;
        }
        engine.failure().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn take_done(&mut self) -> Result<()> {
        while let Some(request) = self.requests.front() {
            match self.end.test(request)? {
                Some(_) => {
                    self.requests.pop_front();
                    self.done += 1;
                }
                None => break,
            }
        }
        Ok(())
    }

    fn post_published(&mut self) -> Result<()> {
        while self.posted < self.published {
            let payload_bytes = self.lengths[(self.posted % SLOTS as u64) as usize];
            // SAFETY: from now until `done` passes it (or quiesced) the slot belongs to the
            // network: the owner writes only to slots of steps from `published` on.
            let request = unsafe { self.pool.isend(&mut *self.end, self.posted, payload_bytes) }?;
            let Some(request) = request else { break };
            self.requests.push_back(request);
            self.posted += 1;
        }
        Ok(())
    }

    /// Whether there is something to wake up for.
    fn has(&mut self, awaited: Awaited) -> bool {
        self.has_failed()
            || match awaited {
                Awaited::Slot => self.has_slot(),
                Awaited::AllSent => self.is_drained(),
                Awaited::Direct => self.is_drained() && self.end.direct_ready(),
            }
    }

    /// Notes a failure of the connection.
    fn fail(&mut self, error: Error) -> Error {
        let error = self.place.name(error);
        self.failure.get_or_insert(error).clone()
    }

    /// Whether everything published has left the slots.
    pub(crate) const fn is_drained(&self) -> bool {
        self.done == self.published
    }

    pub(crate) const fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    const fn has_slot(&self) -> bool {
        self.has_slots(1)
    }

    /// Whether the next `count` slots can be filled.
    const fn has_slots(&self, count: usize) -> bool {
        self.published + count as u64 <= self.done + SLOTS as u64
    }

    /// Withdraws what has not been sent.
    pub(crate) fn quiesce(&mut self, deadline: Instant) -> Quiesce {
        self.end.quiesce(deadline)
    }

    /// Closes the connection and leaks the slots.
    pub(crate) fn quarantine(self) {
        self.pool.quarantine();
    }

    fn need(&self) -> Need {
        match (&self.sleeper, &self.failure) {
            (Some(_), _) => Need::Wake,
            (None, None) if !self.is_drained() => Need::Background,
            _ => Need::Nothing,
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

    fn check(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }
}

/// What the owner and the engine share of an end; empty while the owner closes it.
#[derive(Debug)]
struct SendEnd {
    state: Mutex<Option<SendState>>,
}

impl Member for SendEnd {
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

/// The owner's side of a sending end.
#[derive(Debug)]
pub(crate) struct Sender {
    end: Arc<SendEnd>,
    engine: Arc<Engine>,
    linger: Duration,
    /// Whether a slot was handed out and not published.
    /// Slots that were handed out and not published.
    taken: usize,
}

impl Sender {
    pub(crate) fn new(state: SendState, engine: Arc<Engine>, linger: Duration) -> Self {
        let end = Arc::new(SendEnd {
            state: Mutex::new(Some(state)),
        });
        Self {
            end,
            engine,
            linger,
            taken: 0,
        }
    }

    /// Calls `act` with the state.
    fn with<T>(&self, act: impl FnOnce(&mut SendState) -> Result<T>) -> Result<T> {
        match lock(&self.end.state).as_mut() {
            Some(state) => act(state),
            None => Err(Error::new(
                ErrorKind::Internal,
                "an end is used while it is being closed",
            )),
        }
    }

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

    /// Waits until everything is sent; whether it is.
    fn drain(&self, deadline: Instant) -> Result<bool> {
        let doorbell = Doorbells::local().claim()?;
        loop {
            let ticket = doorbell.ticket();
            if self.sleep_on(&doorbell, Awaited::AllSent)? == Armed::Ready {
                return Ok(true);
            }
            if self.engine.drive() {
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.with(|state| {
                    state.sleeper = None;
                    Ok(())
                })?;
                return Ok(false);
            }
            doorbell.wait(ticket, Some(left));
        }
    }
}

impl MessageSend for Sender {
    fn slots(&self) -> usize {
        SLOTS
    }

    fn try_slot(&mut self) -> Result<Option<SlotWrite>> {
        self.try_slot_ahead(0)
    }

    fn try_slot_ahead(&mut self, ahead: usize) -> Result<Option<SlotWrite>> {
        if ahead > self.taken {
            return Ok(None);
        }
        let slot = self.with(|state| {
            if !state.has_slots(ahead + 1) {
                state.advance(&self.engine);
            }
            state.check()?;
            Ok(state.has_slots(ahead + 1).then(|| SlotWrite {
                data: state.pool.payload(state.published + ahead as u64),
                capacity_bytes: state.pool.step_bytes(),
            }))
        })?;
        if slot.is_some() {
            self.taken = self.taken.max(ahead + 1);
        }
        Ok(slot)
    }

    fn publish(&mut self, header: StepHeader) -> Result<()> {
        if self.taken == 0 {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "no slot was taken to be published",
            ));
        }
        self.with(|state| {
            state.check()?;
            if header.bytes > state.pool.step_bytes() {
                return Err(
                    Error::new(ErrorKind::InvalidArgument, "the step exceeds its slot")
                        .with("bytes", header.bytes)
                        .with("step_bytes", state.pool.step_bytes()),
                );
            }
            let line = header::encode(state.published + 1, &header);
            // SAFETY: a slot was taken, so `published < done + 8`: the slot's last request is
            // done, and the next one is posted below.
            unsafe { state.pool.write_header(state.published, &line) };
            state.lengths[(state.published % SLOTS as u64) as usize] = header.bytes;
            state.published += 1;
            state.advance(&self.engine);
            let need = state.need();
            self.engine.list(&self.end, &mut state.is_listed, need);
            state.check()
        })?;
        self.taken -= 1;
        Ok(())
    }

    fn progress(&mut self) -> Result<bool> {
        let advance = |state: &mut SendState| Ok(state.advance(&self.engine));
        let moved = self.with(advance)? || self.engine.drive() | self.with(advance)?;
        self.with(|state| state.check())?;
        Ok(moved)
    }

    fn arm(&mut self, doorbell: &Doorbell) -> Result<Armed> {
        self.sleep_on(doorbell, Awaited::Slot)
    }

    fn supports_direct(&self) -> bool {
        matches!(self.with(|state| Ok(state.direct)), Ok(true))
    }

    fn send_direct(&mut self, data: &[u8]) -> Result<Transfer> {
        self.with(|state| {
            if !state.is_drained() {
                state.advance(&self.engine);
            }
            state.check()?;
            // The steps before it have their place before it.
            if !state.is_drained() {
                return Ok(Transfer::Blocked);
            }
            state
                .end
                .send_direct(data)
                .map_err(|error| state.fail(error))
        })
    }

    fn arm_direct(&mut self, doorbell: &Doorbell) -> Result<Armed> {
        self.sleep_on(doorbell, Awaited::Direct)
    }

    fn quiesce(&mut self, deadline: Instant) -> bool {
        if matches!(self.drain(deadline), Ok(true)) {
            return true;
        }
        // What has failed is not sent any more; it can still be brought to rest.
        let Some(mut state) = lock(&self.end.state).take() else {
            return true;
        };
        let at_rest = state.has_failed() && state.quiesce(deadline) == Quiesce::Quiesced;
        // The engine may have dropped the end from its list while the state was away.
        state.is_listed = false;
        let need = state.need();
        self.engine.list(&self.end, &mut state.is_listed, need);
        *lock(&self.end.state) = Some(state);
        self.engine.nudge();
        at_rest
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let Some(mut state) = lock(&self.end.state).take() else {
            return;
        };
        state.sleeper = None;
        let now = Instant::now();
        if let Some(rest) = Closing::send(state, now + self.linger).advance(&self.engine, now) {
            self.engine.close_later(rest);
        }
        // Quiescing may have fetched what others wait for.
        self.engine.nudge();
    }
}
