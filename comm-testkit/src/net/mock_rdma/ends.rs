//! Listeners, connects and the ends of connections.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use comm_core::net::{
    MrSlice, NetConnect, NetListener, NetRecv, NetSend, Quiesce, RemoteSlice, Request,
};
use comm_core::{Error, ErrorKind, Result};

use super::MockKey;
use super::fabric::{Fabric, close_end, close_listener};
use super::nic::scribble;
use super::state::{Connect, Listener, Posted, Rest, Side, Signal, Target, Undead};

const MAGIC: &[u8; 8] = b"comm-moc";

pub(super) struct MockListener {
    fabric: Arc<Fabric>,
    port: usize,
    device: usize,
    id: u64,
    handle: Vec<u8>,
}

impl MockListener {
    pub(super) fn new(fabric: &Arc<Fabric>, port: usize, device: usize) -> Result<Self> {
        let mut state = fabric.state();
        state.enter(port)?;
        let id = state.id();
        state.listeners.insert(
            id,
            Listener {
                port,
                ready: VecDeque::new(),
            },
        );
        drop(state);
        let handle = [MAGIC.as_slice(), &id.to_le_bytes()].concat();
        Ok(Self {
            fabric: Arc::clone(fabric),
            port,
            device,
            id,
            handle,
        })
    }
}

// SAFETY: as for `MockRdma`.
unsafe impl NetListener for MockListener {
    fn handle(&self) -> &[u8] {
        &self.handle
    }

    fn accept(&mut self) -> Result<Option<Box<dyn NetRecv>>> {
        let mut state = self.fabric.state();
        state.enter(self.port)?;
        let link = state
            .listeners
            .get_mut(&self.id)
            .and_then(|own| own.ready.pop_front());
        Ok(link.map(|link| -> Box<dyn NetRecv> {
            Box::new(MockRecv(MockEnd::new(
                &self.fabric,
                self.port,
                self.device,
                link,
                Side::Recv,
            )))
        }))
    }
}

impl Drop for MockListener {
    fn drop(&mut self) {
        close_listener(&mut self.fabric.state(), self.id);
        self.fabric.nic.notify_all();
    }
}

pub(super) struct MockConnect {
    fabric: Arc<Fabric>,
    port: usize,
    device: usize,
    id: u64,
}

impl MockConnect {
    pub(super) fn new(
        fabric: &Arc<Fabric>,
        port: usize,
        device: usize,
        handle: &[u8],
    ) -> Result<Self> {
        let listener = handle.strip_prefix(MAGIC).and_then(|id| id.try_into().ok());
        let Some(listener) = listener.map(u64::from_le_bytes) else {
            return Err(
                Error::new(ErrorKind::Protocol, "the handle is none of this network")
                    .with("bytes", handle.len()),
            );
        };
        let mut state = fabric.state();
        state.enter(port)?;
        let id = state.id();
        state.connects.insert(
            id,
            Connect {
                port,
                outcome: None,
            },
        );
        state.signals.push_back(Signal::Connecting {
            connect: id,
            listener,
        });
        drop(state);
        fabric.nic.notify_all();
        Ok(Self {
            fabric: Arc::clone(fabric),
            port,
            device,
            id,
        })
    }
}

// SAFETY: as for `MockRdma`.
unsafe impl NetConnect for MockConnect {
    fn poll(&mut self) -> Result<Option<Box<dyn NetSend>>> {
        let mut state = self.fabric.state();
        state.enter(self.port)?;
        let outcome = state
            .connects
            .get_mut(&self.id)
            .and_then(|own| own.outcome.take());
        let link = outcome.transpose()?;
        Ok(link.map(|link| -> Box<dyn NetSend> {
            Box::new(MockSend(MockEnd::new(
                &self.fabric,
                self.port,
                self.device,
                link,
                Side::Send,
            )))
        }))
    }
}

impl Drop for MockConnect {
    fn drop(&mut self) {
        let mut state = self.fabric.state();
        let own = state.connects.remove(&self.id);
        if let Some(Ok(link)) = own.and_then(|own| own.outcome) {
            close_end(&mut state, link, Side::Send);
        }
        drop(state);
        self.fabric.nic.notify_all();
    }
}

struct MockSend(MockEnd);
struct MockRecv(MockEnd);

/// Either end of a link.
struct MockEnd {
    fabric: Arc<Fabric>,
    port: usize,
    device: usize,
    link: u64,
    side: Side,
}

impl MockEnd {
    fn new(fabric: &Arc<Fabric>, port: usize, device: usize, link: u64, side: Side) -> Self {
        Self {
            fabric: Arc::clone(fabric),
            port,
            device,
            link,
            side,
        }
    }

    fn post(&self, slice: &MrSlice, put: Option<Target>) -> Result<Option<Request>> {
        MockKey::check(slice.region(), &self.fabric, self.port, self.device)?;
        let mut state = self.fabric.state();
        state
            .enter_end(self.link, self.side)
            .inspect_err(|_| self.fabric.nic.notify_all())?;
        let token = state.id();
        let refuse_one_in = self.fabric.config.refuse_one_in;
        let refused = refuse_one_in > 0 && state.rng.below(refuse_one_in) == 0;
        let end = state.end(self.link, self.side)?;
        if let Some(error) = &end.failure {
            return Err(error.clone());
        }
        if end.outstanding.len() >= self.fabric.config.max_outstanding {
            return Ok(None);
        }
        if refused {
            state.signals.push_back(Signal::Room { port: self.port });
        } else {
            end.outstanding.push(token);
            end.posted.push_back(Posted {
                token,
                slice: slice.clone(),
                put,
            });
        }
        drop(state);
        self.fabric.nic.notify_all();
        Ok((!refused).then(|| Request::from_token(token)))
    }

    fn test(&self, request: &Request) -> Result<Option<usize>> {
        let mut state = self.fabric.state();
        state
            .enter_end(self.link, self.side)
            .inspect_err(|_| self.fabric.nic.notify_all())?;
        let end = state.end(self.link, self.side)?;
        let token = request.token();
        if !end.outstanding.contains(&token) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "no such request is outstanding on this connection",
            ));
        }
        if let Some(bytes) = end.done.remove(&token) {
            end.outstanding.retain(|&other| other != token);
            return Ok(Some(bytes));
        }
        end.failure.clone().map_or(Ok(None), Err)
    }

    fn quiesce(&self, deadline: Instant) -> Quiesce {
        loop {
            let now = Instant::now();
            let mut state = self.fabric.state();
            let error = Error::new(ErrorKind::Cancelled, "the connection was quiesced");
            state.fail_end(self.link, self.side, &error);
            self.fabric.nic.notify_all();
            let Ok(end) = state.end(self.link, self.side) else {
                return Quiesce::Quiesced;
            };
            if end.posted.is_empty() {
                return Quiesce::Quiesced;
            }
            let rest = *end.rests_at.get_or_insert_with(|| self.rest_from(now));
            match rest {
                Rest::At(at) if at <= now => {
                    let posted = std::mem::take(&mut end.posted);
                    drop(state);
                    if self.side == Side::Recv {
                        posted.iter().for_each(scribble);
                    }
                    return Quiesce::Quiesced;
                }
                _ if deadline <= now => return Quiesce::StillBusy,
                Rest::At(at) => {
                    drop(state);
                    thread::sleep(at.min(deadline).saturating_duration_since(now));
                }
                Rest::Never => {
                    drop(state);
                    thread::sleep(deadline.saturating_duration_since(now));
                }
            }
        }
    }

    fn rest_from(&self, now: Instant) -> Rest {
        self.fabric
            .config
            .quiesce_delay
            .map_or(Rest::Never, |delay| Rest::At(now + delay))
    }
}

impl Drop for MockEnd {
    fn drop(&mut self) {
        let mut state = self.fabric.state();
        if let Ok(end) = state.end(self.link, self.side) {
            end.closed = true;
            end.stopped = true;
            let posted: Vec<_> = std::mem::take(&mut end.posted).into();
            let rest = end.rests_at;
            if !posted.is_empty() {
                let rest = rest.unwrap_or_else(|| self.rest_from(Instant::now()));
                state.undead.push(Undead {
                    port: self.port,
                    side: self.side,
                    rest,
                    posted,
                });
            }
        }
        state.signals.push_back(Signal::Closed {
            link: self.link,
            side: self.side,
        });
        drop(state);
        self.fabric.nic.notify_all();
    }
}

// SAFETY: as for `MockRdma`.
unsafe impl NetSend for MockSend {
    unsafe fn isend(&mut self, message: &MrSlice) -> Result<Option<Request>> {
        self.0.post(message, None)
    }

    fn test(&mut self, request: &Request) -> Result<Option<usize>> {
        self.0.test(request)
    }

    unsafe fn put(&mut self, source: &MrSlice, target: &RemoteSlice) -> Result<Option<Request>> {
        // A window that no card can have made is one that is not open.
        let window = target
            .window
            .as_ref()
            .try_into()
            .map_or(0, u64::from_le_bytes);
        self.0.post(
            source,
            Some(Target {
                window,
                offset_bytes: target.offset_bytes,
            }),
        )
    }

    fn quiesce(&mut self, deadline: Instant) -> Quiesce {
        self.0.quiesce(deadline)
    }
}

// SAFETY: as for `MockRdma`.
unsafe impl NetRecv for MockRecv {
    unsafe fn irecv(&mut self, target: &MrSlice) -> Result<Option<Request>> {
        self.0.post(target, None)
    }

    fn test(&mut self, request: &Request) -> Result<Option<usize>> {
        self.0.test(request)
    }

    fn quiesce(&mut self, deadline: Instant) -> Quiesce {
        self.0.quiesce(deadline)
    }
}

macro_rules! opaque_debug {
    ($($name:ident),*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )*};
}
opaque_debug!(MockListener, MockConnect, MockSend, MockRecv);
