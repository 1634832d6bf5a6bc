//! The smallest transport that fulfils the contract: step FIFOs on the heap of one process.
//!
//! It shows implementers what each method has to do, and proves the suite: a clause that it fails
//! is a wrong clause.
//!
//! Each set-up has a numbered place in a table of the process, and its handle is that number. The
//! receiving side makes both ends of the FIFO and offers the sending one at its place. If the
//! sending side connects first, it takes the end from there. If the receiving side connects first,
//! it moves the end to the sending side's place. Either way the end belongs to a set-up that still
//! lives, so dropping whatever is left releases everything.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use comm_core::doorbell::{Doorbells, RingTarget};
use comm_core::fifo::{FifoLayout, FifoMemory, FifoReceiver, FifoSender};
use comm_core::{
    Capabilities, ConnInfo, ConnectHandle, Edge, Error, ErrorKind, RecvSetup, Result, SendSetup,
    Transport, Verdict, async_trait,
};

const NAME: &str = "loopback";

/// Connects ranks that are threads of one process and wait at the same doorbells.
#[derive(Debug)]
pub struct LoopbackTransport {
    doorbells: Arc<Doorbells>,
}

impl LoopbackTransport {
    /// A transport for the threads that wait at `doorbells`.
    #[must_use]
    pub const fn new(doorbells: Arc<Doorbells>) -> Self {
        Self { doorbells }
    }
}

#[async_trait]
impl Transport for LoopbackTransport {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.same_process = true;
        capabilities
    }

    fn facts(&self) -> Result<Bytes> {
        // That the rank has this transport is all that there is to know.
        Ok(Bytes::new())
    }

    fn can_connect(&self, edge: &Edge<'_>) -> Verdict {
        if edge.sender.process != edge.receiver.process {
            return Verdict::No("the ranks are not threads of one process".to_owned());
        }
        match [edge.sender, edge.receiver]
            .iter()
            .find(|info| info.transport_facts(NAME).is_none())
        {
            Some(info) => Verdict::No(format!("rank {} has no loopback transport", info.rank)),
            None => Verdict::Yes,
        }
    }

    async fn setup_send(&self, edge: &Edge<'_>, _deadline: Instant) -> Result<Box<dyn SendSetup>> {
        let layout = FifoLayout::new(edge.step_bytes)?;
        Ok(Box::new(SendSide {
            layout,
            place: Place::take(State::Announced),
        }))
    }

    async fn setup_recv(&self, edge: &Edge<'_>, _deadline: Instant) -> Result<Box<dyn RecvSetup>> {
        let target = RingTarget::Local(Arc::clone(&self.doorbells));
        let memory = FifoMemory::heap(FifoLayout::new(edge.step_bytes)?);
        let (sender, receiver) = memory.into_ends(target.clone(), target);
        Ok(Box::new(RecvSide {
            receiver,
            place: Place::take(State::Offered(sender)),
        }))
    }
}

/// What is at a place.
#[derive(Debug)]
enum State {
    /// A sending side that has no end yet.
    Announced,
    /// A receiving side whose sending end waits here.
    Offered(FifoSender),
    /// A receiving side whose sending end went to the sending side with this number.
    TakenBy(u64),
    /// A sending side whose end was brought by the receiving side with this number.
    BroughtBy(u64, FifoSender),
}

static TABLE: Mutex<Option<HashMap<u64, State>>> = Mutex::new(None);

/// Numbers are never used twice, so a stale handle finds nothing.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A number in the table; its entry goes with it.
#[derive(Debug)]
struct Place(u64);

impl Place {
    fn take(state: State) -> Self {
        // Relaxed: only the number itself matters.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        table().get_or_insert_default().insert(number, state);
        Self(number)
    }

    fn handle(&self) -> ConnectHandle {
        ConnectHandle::from_bytes(Bytes::copy_from_slice(&self.0.to_le_bytes()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let left = table().as_mut().and_then(|table| table.remove(&self.0));
        // After the lock was given back: dropping an end may ring.
        drop(left);
    }
}

fn table() -> MutexGuard<'static, Option<HashMap<u64, State>>> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct SendSide {
    layout: FifoLayout,
    place: Place,
}

#[async_trait]
impl SendSetup for SendSide {
    fn handle(&mut self) -> Result<ConnectHandle> {
        Ok(self.place.handle())
    }

    async fn connect(self: Box<Self>, remote: ConnectHandle, _: Instant) -> Result<ConnInfo> {
        let (ours, theirs) = (self.place.0, number_in(&remote)?);
        let mut guard = table();
        let table = guard.get_or_insert_default();
        let mut take = |number, wanted: fn(&State, u64) -> bool, left| match table.get_mut(&number)
        {
            Some(state) if wanted(state, theirs) => Some(std::mem::replace(state, left)),
            _ => None,
        };
        let offered = take(
            theirs,
            |state, _| matches!(state, State::Offered(_)),
            State::TakenBy(ours),
        );
        let brought =
            |state: &State, theirs| matches!(state, State::BroughtBy(by, _) if *by == theirs);
        let Some(State::Offered(end) | State::BroughtBy(_, end)) =
            offered.or_else(|| take(ours, brought, State::Announced))
        else {
            return Err(refused("nobody offers an end there"));
        };
        drop(guard);
        if end.step_bytes() != self.layout.step_bytes() {
            return Err(refused("the step sizes differ"));
        }
        Ok(ConnInfo::MemorySend(end))
    }
}

#[derive(Debug)]
struct RecvSide {
    receiver: FifoReceiver,
    place: Place,
}

#[async_trait]
impl RecvSetup for RecvSide {
    fn handle(&mut self) -> Result<ConnectHandle> {
        Ok(self.place.handle())
    }

    async fn connect(self: Box<Self>, remote: ConnectHandle, _: Instant) -> Result<ConnInfo> {
        let theirs = number_in(&remote)?;
        let mut guard = table();
        let table = guard.get_or_insert_default();
        match (table.remove(&self.place.0), table.get_mut(&theirs)) {
            (Some(State::TakenBy(by)), _) if by == theirs => {}
            (Some(State::Offered(end)), Some(state @ State::Announced)) => {
                *state = State::BroughtBy(self.place.0, end);
            }
            (left, _) => {
                drop(guard);
                drop(left);
                return Err(refused("nobody wants an end there"));
            }
        }
        drop(guard);
        Ok(ConnInfo::MemoryRecv(self.receiver))
    }
}

fn number_in(handle: &ConnectHandle) -> Result<u64> {
    if !handle.fds.is_empty() {
        return Err(refused("it holds descriptors"));
    }
    let bytes: [u8; 8] = handle.bytes[..]
        .try_into()
        .map_err(|_| refused("it is not a number"))?;
    Ok(u64::from_le_bytes(bytes))
}

fn refused(why: &'static str) -> Error {
    Error::new(ErrorKind::Protocol, "a loopback handle does not fit").with("because", why)
}
