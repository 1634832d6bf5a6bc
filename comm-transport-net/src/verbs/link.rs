//! A connection: its queue, its requests and its failure; the two ends.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use comm_core::net::{MrSlice, NetRecv, NetSend, Quiesce, RemoteSlice, Request};
use comm_core::{Error, ErrorKind, Result};

use super::device::Device;
use super::ffi::{Completion, Context, Queue, Status, Work};
use super::requests::Requests;
use super::shared::{Memory, Shared, Window, lock};

/// Completions that are taken at once.
const BATCH: usize = 16;

/// A connection as its end and the backend share it.
pub(super) struct Link {
    pub(super) number: u64,
    pub(super) device: Arc<Device>,
    /// Whether an event was asked for that has not come.
    armed: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` once quiesced.
    queue: Option<Queue>,
    requests: Requests,
    failure: Option<Error>,
    /// The peer has closed its socket: what has arrived is still taken.
    is_ending: bool,
    receives: bool,
}

impl Link {
    pub(super) fn new(
        number: u64,
        device: Arc<Device>,
        mut queue: Queue,
        receives: bool,
    ) -> Result<Arc<Self>> {
        queue.request_event()?;
        Ok(Arc::new(Self {
            number,
            device,
            armed: AtomicBool::new(true),
            state: Mutex::new(State {
                queue: Some(queue),
                requests: Requests::default(),
                failure: None,
                is_ending: false,
                receives,
            }),
        }))
    }

    /// Takes completions; whether there were any.
    pub(super) fn progress(&self) -> bool {
        lock(&self.state).progress(&self.device.context)
    }

    /// Notes that the peer has closed its socket.
    pub(super) fn peer_is_gone(&self) {
        let mut state = lock(&self.state);
        state.is_ending = true;
    }

    /// Whether the end of the connection is still to be settled.
    pub(super) fn is_ending(&self) -> bool {
        let state = lock(&self.state);
        state.is_ending && state.failure.is_none()
    }

    /// Notes that the event that was asked for has come.
    pub(super) fn rang(&self) {
        self.armed.store(false, Ordering::Relaxed);
    }

    /// Asks for an event unless one is asked for; whether something has come meanwhile.
    pub(super) fn arm(&self) -> Result<bool> {
        if self.armed.swap(true, Ordering::Relaxed) {
            return Ok(false);
        }
        let mut state = lock(&self.state);
        let Some(queue) = &mut state.queue else {
            return Ok(false);
        };
        queue.request_event()?;
        Ok(state.progress(&self.device.context))
    }

    fn post(
        &self,
        shared: &Shared,
        work: Work,
        slice: &MrSlice,
        len_bytes: usize,
    ) -> Result<Option<Request>> {
        let memory = Memory::of(slice, shared, &self.device)?;
        shared.check()?;
        let mut state = lock(&self.state);
        let state = &mut *state;
        if state.requests.len() >= self.device.properties.max_outstanding {
            state.progress(&self.device.context);
        }
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        if state.requests.len() >= self.device.properties.max_outstanding {
            return Ok(None);
        }
        let Some(queue) = &mut state.queue else {
            return Err(cancelled());
        };
        let token = state.requests.token();
        let len = u32::try_from(len_bytes).unwrap_or(u32::MAX);
        // SAFETY: the slice is kept with the request until it has completed or the queue was
        // dropped, it holds its registration, and who sends or receives promises the rest.
        let posted = unsafe { queue.post(work, token, slice, len, memory.local_key()) };
        if let Err(error) = posted {
            state.failure = Some(error.clone());
            return Err(error);
        }
        state.requests.posted(token, slice.clone());
        Ok(Some(Request::from_token(token)))
    }

    fn test(&self, request: &Request) -> Result<Option<usize>> {
        let mut state = lock(&self.state);
        let state = &mut *state;
        let failure = state.failure.clone();
        match state.requests.test(request.token(), failure.as_ref()) {
            Ok(None) if failure.is_none() && state.progress(&self.device.context) => {
                let failure = state.failure.clone();
                state.requests.test(request.token(), failure.as_ref())
            }
            answer => answer,
        }
    }

    fn quiesce(&self) -> Quiesce {
        let mut state = lock(&self.state);
        state.progress(&self.device.context);
        // Returns when the device has left the memory.
        state.queue = None;
        state.requests.release();
        state.failure = Some(cancelled());
        Quiesce::Quiesced
    }
}

impl State {
    fn progress(&mut self, context: &Context) -> bool {
        let mut moved = false;
        let mut completions = [Completion::default(); BATCH];
        while let Some(queue) = &mut self.queue {
            let count = match queue.poll(&mut completions) {
                Ok(count) => count,
                Err(error) => {
                    self.failure.get_or_insert(error);
                    return true;
                }
            };
            for completion in &completions[..count] {
                self.take(completion, context);
            }
            moved |= count > 0;
            if count < BATCH {
                break;
            }
        }
        // What was sent before the end has arrived before it: nothing is left to be taken.
        if self.is_ending && !moved && self.failure.is_none() {
            self.failure = Some(gone());
            return true;
        }
        moved
    }

    fn take(&mut self, completion: &Completion, context: &Context) {
        let token = completion.wr_id;
        if completion.status() == Status::Success {
            let received = self.receives.then_some(completion.byte_len as usize);
            self.requests.complete(token, received);
            return;
        }
        self.requests.fail(token);
        let error = match completion.status() {
            Status::LocalOperation if !self.receives => unexpected(completion),
            Status::LocalLength | Status::LocalOperation | Status::RemoteInvalidRequest => {
                Error::new(ErrorKind::Truncated, "a message is longer than its receive")
            }
            Status::RemoteAccess => Error::new(
                ErrorKind::Protocol,
                "a put goes to no open window of the peer, or beyond its end",
            ),
            Status::RetryExceeded => Error::new(
                ErrorKind::PeerDied,
                "the peer's network card does not answer any more",
            ),
            // Flushed because the peer closed its end; another failure came first otherwise.
            Status::Flushed => gone(),
            Status::Success | Status::Other => unexpected(completion),
        };
        self.failure
            .get_or_insert_with(|| error.with("device", context.name()));
    }
}

fn unexpected(completion: &Completion) -> Error {
    Error::new(ErrorKind::System, "a work request failed")
        .with("status", completion.status)
        .with("vendor_code", completion.vendor_err)
}

fn gone() -> Error {
    Error::new(ErrorKind::PeerDied, "the peer has closed the connection")
}

fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "the connection was quiesced")
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("number", &self.number)
            .field("device", &self.device.properties.name)
            .finish_non_exhaustive()
    }
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct End {
    pub(super) shared: Arc<Shared>,
    pub(super) link: Arc<Link>,
}

impl Drop for End {
    fn drop(&mut self) {
        // First the queue, so that the peer's socket does not end before what was sent is there.
        let _ = self.link.quiesce();
        self.shared.forget(self.link.number);
    }
}

/// The sending end.
#[derive(Debug)]
pub(super) struct VerbsSend(pub(super) End);

/// The receiving end.
#[derive(Debug)]
pub(super) struct VerbsRecv(pub(super) End);

// SAFETY: the device touches memory for posted requests only, and not after their completion or
// after the queue pair was destroyed; requests keep their slices until then.
unsafe impl NetSend for VerbsSend {
    unsafe fn isend(&mut self, message: &MrSlice) -> Result<Option<Request>> {
        let End { shared, link } = &self.0;
        let limit = link.device.properties.max_message_bytes;
        if message.len_bytes() > limit {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the message is longer than this device sends at once",
            )
            .with("bytes", message.len_bytes())
            .with("limit", limit));
        }
        link.post(shared, Work::Send, message, message.len_bytes())
    }

    fn test(&mut self, request: &Request) -> Result<Option<usize>> {
        self.0.link.test(request)
    }

    unsafe fn put(&mut self, source: &MrSlice, target: &RemoteSlice) -> Result<Option<Request>> {
        let End { shared, link } = &self.0;
        let work = Window::decode(&target.window)?.at(target.offset_bytes);
        link.post(shared, work, source, source.len_bytes())
    }

    fn quiesce(&mut self, _deadline: Instant) -> Quiesce {
        self.0.link.quiesce()
    }
}

// SAFETY: as for the sending end.
unsafe impl NetRecv for VerbsRecv {
    unsafe fn irecv(&mut self, target: &MrSlice) -> Result<Option<Request>> {
        let End { shared, link } = &self.0;
        // No message is longer, so no more room is needed.
        let room = target
            .len_bytes()
            .min(link.device.properties.max_message_bytes);
        link.post(shared, Work::Receive, target, room)
    }

    fn test(&mut self, request: &Request) -> Result<Option<usize>> {
        self.0.link.test(request)
    }

    fn quiesce(&mut self, _deadline: Instant) -> Quiesce {
        self.0.link.quiesce()
    }
}
