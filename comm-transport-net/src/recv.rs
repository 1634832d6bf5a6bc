//! The receiving end of an edge.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use comm_core::doorbell::Doorbell;
use comm_core::net::{NetRecv, Quiesce, Request, Transfer};
use comm_core::{Armed, Error, ErrorKind, MessageRecv, Result, StepHeader, StepRead};

use crate::closing::Rest;
use crate::end::{End, Notes, State};
use crate::engine::{Engine, Need, Shared};
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
    /// Whether direct transfers are possible.
    direct: bool,
    posted: u64,
    arrived: u64,
    consumed: u64,
    /// Headers of the steps `consumed..arrived`.
    headers: VecDeque<StepHeader>,
    /// Requests of the steps `arrived..posted`.
    requests: VecDeque<Request>,
    notes: Notes<Awaited>,
}

/// What an owner can sleep for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
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
            direct,
            posted: 0,
            arrived: 0,
            consumed: 0,
            headers: VecDeque::with_capacity(SLOTS),
            requests: VecDeque::with_capacity(SLOTS),
            notes: Notes::new(place),
        }
    }

    /// Posts the free slots.
    fn repost(&mut self) {
        if !self.notes.has_failed()
            && let Err(error) = self.post_free()
        {
            // What completed before the failure is still to be had.
            let _ = self.take_arrived();
            self.notes.fail(error);
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

    const fn has_step(&self) -> bool {
        self.consumed < self.arrived
    }
}

impl State for RecvState {
    type Awaited = Awaited;

    fn advance(&mut self, engine: &Shared) -> bool {
        let before = (self.arrived, self.posted, self.notes.has_failed());
        if !self.notes.has_failed()
            && let Err(error) = self.try_advance(engine)
        {
            self.notes.fail(error);
        }
        before != (self.arrived, self.posted, self.notes.has_failed())
    }

    fn need(&self) -> Need {
        let starved = self.requests.is_empty() && self.posted < self.consumed + SLOTS as u64;
        match (self.notes.has_sleeper(), self.notes.has_failed()) {
            (true, _) => Need::Wake,
            (false, false) if starved => Need::Background,
            _ => Need::Nothing,
        }
    }

    fn has(&mut self, awaited: Awaited) -> bool {
        self.notes.has_failed()
            || match awaited {
                Awaited::Step => self.has_step(),
                Awaited::Direct => self.end.direct_ready(),
            }
    }

    /// The failure, unless there are steps to be taken before.
    fn check(&self) -> Result<()> {
        match &self.notes.failure {
            Some(error) if !self.has_step() => Err(error.clone()),
            _ => Ok(()),
        }
    }

    fn notes(&mut self) -> &mut Notes<Awaited> {
        &mut self.notes
    }
}

impl Rest for RecvState {
    fn rest(&mut self, _engine: &Shared, now: Instant, _expired: bool) -> bool {
        self.end.quiesce(now) == Quiesce::Quiesced
    }

    fn quarantine(self: Box<Self>) {
        self.pool.quarantine();
    }
}

/// The owner's side of a receiving end.
#[derive(Debug)]
pub(crate) struct Receiver {
    end: End<RecvState>,
    /// Steps that were handed out and not consumed.
    taken: usize,
}

impl Receiver {
    /// Posts the slots; the error is that of the connection.
    pub(crate) fn new(mut state: RecvState, engine: Arc<Engine>, linger: Duration) -> Result<Self> {
        state.advance(&engine);
        state.check()?;
        Ok(Self {
            end: End::new(state, engine, linger),
            taken: 0,
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
        let step = self.end.with(|state, engine| {
            if state.headers.len() <= ahead {
                state.advance(engine);
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
        self.end.with_listed(|state, _| {
            state.headers.pop_front();
            state.consumed += 1;
            // What has come is not looked for now: that is a system call for many networks.
            state.repost();
            Ok(())
        })
    }

    fn progress(&mut self) -> Result<bool> {
        self.end.progress()
    }

    fn arm(&mut self, doorbell: &Doorbell) -> Result<Armed> {
        self.end.sleep_on(doorbell, Awaited::Step)
    }

    fn supports_direct(&self) -> bool {
        matches!(self.end.with(|state, _| Ok(state.direct)), Ok(true))
    }

    fn recv_direct(&mut self, data: &mut [u8]) -> Result<Transfer> {
        self.end.with(|state, _| {
            state.check()?;
            state
                .end
                .recv_direct(data)
                .map_err(|error| state.notes.fail(error))
        })
    }

    fn arm_direct(&mut self, doorbell: &Doorbell) -> Result<Armed> {
        self.end.sleep_on(doorbell, Awaited::Direct)
    }

    fn quiesce(&mut self, deadline: Instant) -> bool {
        let quiesce = |state: &mut RecvState| {
            let at_rest = state.end.quiesce(deadline) == Quiesce::Quiesced;
            let cancelled = Error::new(ErrorKind::Cancelled, "this end of the edge was quiesced");
            state.notes.fail(cancelled);
            at_rest
        };
        self.end.apart(quiesce).unwrap_or(true)
    }
}
