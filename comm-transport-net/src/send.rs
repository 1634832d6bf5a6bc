//! The sending end of an edge.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use comm_core::doorbell::{Doorbell, Doorbells};
use comm_core::net::{NetSend, Quiesce, Request, Transfer};
use comm_core::{Armed, Error, ErrorKind, MessageSend, Result, SlotWrite, StepHeader};

use crate::closing::Rest;
use crate::end::{End, Notes, State};
use crate::engine::{Engine, Need, Shared};
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
    /// Whether direct transfers are possible.
    direct: bool,
    published: u64,
    posted: u64,
    done: u64,
    /// Payload lengths of published steps.
    lengths: [usize; SLOTS],
    /// Requests of the steps `done..posted`.
    requests: VecDeque<Request>,
    notes: Notes<Awaited>,
}

/// What an owner can sleep for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
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
            direct,
            published: 0,
            posted: 0,
            done: 0,
            lengths: [0; SLOTS],
            requests: VecDeque::with_capacity(SLOTS),
            notes: Notes::new(place),
        }
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

    /// Whether everything published has left the slots.
    const fn is_drained(&self) -> bool {
        self.done == self.published
    }

    /// Whether the next `count` slots can be filled.
    const fn has_slots(&self, count: usize) -> bool {
        self.published + count as u64 <= self.done + SLOTS as u64
    }
}

impl State for SendState {
    type Awaited = Awaited;

    fn advance(&mut self, engine: &Shared) -> bool {
        let before = (self.done, self.posted, self.notes.has_failed());
        if !self.notes.has_failed()
            && let Err(error) = self.try_advance(engine)
        {
            self.notes.fail(error);
        }
        before != (self.done, self.posted, self.notes.has_failed())
    }

    fn need(&self) -> Need {
        match (self.notes.has_sleeper(), self.notes.has_failed()) {
            (true, _) => Need::Wake,
            (false, false) if !self.is_drained() => Need::Background,
            _ => Need::Nothing,
        }
    }

    fn has(&mut self, awaited: Awaited) -> bool {
        self.notes.has_failed()
            || match awaited {
                Awaited::Slot => self.has_slots(1),
                Awaited::AllSent => self.is_drained(),
                Awaited::Direct => self.is_drained() && self.end.direct_ready(),
            }
    }

    fn check(&self) -> Result<()> {
        self.notes.failure.clone().map_or(Ok(()), Err)
    }

    fn notes(&mut self) -> &mut Notes<Awaited> {
        &mut self.notes
    }
}

impl Rest for SendState {
    fn rest(&mut self, engine: &Shared, now: Instant, expired: bool) -> bool {
        self.advance(engine);
        if !self.is_drained() && !self.notes.has_failed() && !expired {
            return false;
        }
        self.is_drained() || self.end.quiesce(now) == Quiesce::Quiesced
    }

    fn quarantine(self: Box<Self>) {
        self.pool.quarantine();
    }
}

/// The owner's side of a sending end.
#[derive(Debug)]
pub(crate) struct Sender {
    end: End<SendState>,
    /// Slots that were handed out and not published.
    taken: usize,
}

impl Sender {
    pub(crate) fn new(state: SendState, engine: Arc<Engine>, linger: Duration) -> Self {
        Self {
            end: End::new(state, engine, linger),
            taken: 0,
        }
    }

    /// Waits until everything is sent; whether it is.
    fn drain(&self, deadline: Instant) -> Result<bool> {
        let doorbell = Doorbells::local().claim()?;
        loop {
            let ticket = doorbell.ticket();
            if self.end.sleep_on(&doorbell, Awaited::AllSent)? == Armed::Ready {
                return Ok(true);
            }
            if self.end.drive() {
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.end.sleep_no_more()?;
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
        let slot = self.end.with(|state, engine| {
            if !state.has_slots(ahead + 1) {
                state.advance(engine);
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
        self.end.with_listed(|state, engine| {
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
            state.advance(engine);
            state.check()
        })?;
        self.taken -= 1;
        Ok(())
    }

    fn progress(&mut self) -> Result<bool> {
        self.end.progress()
    }

    fn arm(&mut self, doorbell: &Doorbell) -> Result<Armed> {
        self.end.sleep_on(doorbell, Awaited::Slot)
    }

    fn supports_direct(&self) -> bool {
        matches!(self.end.with(|state, _| Ok(state.direct)), Ok(true))
    }

    fn send_direct(&mut self, data: &[u8]) -> Result<Transfer> {
        self.end.with(|state, engine| {
            if !state.is_drained() {
                state.advance(engine);
            }
            state.check()?;
            // The steps before it have their place before it.
            if !state.is_drained() {
                return Ok(Transfer::Blocked);
            }
            state
                .end
                .send_direct(data)
                .map_err(|error| state.notes.fail(error))
        })
    }

    fn arm_direct(&mut self, doorbell: &Doorbell) -> Result<Armed> {
        self.end.sleep_on(doorbell, Awaited::Direct)
    }

    fn quiesce(&mut self, deadline: Instant) -> bool {
        if matches!(self.drain(deadline), Ok(true)) {
            return true;
        }
        // What has failed is not sent any more; it can still be brought to rest.
        let quiesce = |state: &mut SendState| {
            state.notes.has_failed() && state.end.quiesce(deadline) == Quiesce::Quiesced
        };
        self.end.apart(quiesce).unwrap_or(true)
    }
}
