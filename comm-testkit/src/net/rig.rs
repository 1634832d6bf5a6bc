//! Two connected backends, driven the way the contract describes.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use comm_core::net::{NetBackend, NetRecv, NetSend, Request, WakeSource};
use comm_core::{Armed, Error, ErrorKind, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Buffer;

/// How long a rig waits for something that must come; a watchdog, not a measure of speed.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often a backend without a descriptor is looked at.
const POLL_INTERVAL: Duration = Duration::from_micros(100);

/// What the conformance suite needs to know of a backend.
pub trait NetFixture {
    /// Two backends that can reach each other, as two processes would have them: the sender's
    /// and the receiver's.
    ///
    /// # Errors
    ///
    /// If they cannot be made here; fails the tests.
    fn backends() -> Result<[Arc<dyn NetBackend>; 2]>;

    /// Why the backend cannot be tested on this machine; the tests then print it and pass.
    ///
    /// For networks that need hardware. `None`, the default, for those that work everywhere.
    #[must_use]
    fn unavailable() -> Option<String> {
        None
    }
}

/// Two backends and one connection between their first devices.
///
/// Everything that waits here drives both backends and sleeps on their wake sources *without a
/// timeout*: a backend that forgets to wake fails, it is not just slow.
#[derive(Debug)]
pub struct Rig {
    /// The sender's backend.
    pub sender: Arc<dyn NetBackend>,
    /// The receiver's backend.
    pub receiver: Arc<dyn NetBackend>,
    /// The sending end, until it is dropped by a test.
    pub send: Option<Box<dyn NetSend>>,
    /// The receiving end, until it is dropped by a test.
    pub recv: Option<Box<dyn NetRecv>>,
}

impl Rig {
    /// Two backends of a fixture, not connected.
    ///
    /// # Errors
    ///
    /// The fixture's.
    pub fn unconnected<F: NetFixture>() -> Result<Self> {
        let [sender, receiver] = F::backends()?;
        Ok(Self {
            sender,
            receiver,
            send: None,
            recv: None,
        })
    }

    /// Two connected backends of a fixture.
    ///
    /// # Errors
    ///
    /// Whatever goes wrong while connecting.
    pub fn connected<F: NetFixture>() -> Result<Self> {
        let mut rig = Self::unconnected::<F>()?;
        let (send, recv) = rig.connect()?;
        (rig.send, rig.recv) = (Some(send), Some(recv));
        Ok(rig)
    }

    /// One more connection.
    ///
    /// # Errors
    ///
    /// Whatever goes wrong while connecting.
    pub fn connect(&self) -> Result<(Box<dyn NetSend>, Box<dyn NetRecv>)> {
        let mut listener = self.receiver.listen(0)?;
        let mut connect = self.sender.connect(0, listener.handle())?;
        let (mut send, mut recv) = (None, None);
        self.wait("a connection", || {
            if send.is_none() {
                send = connect.poll()?;
            }
            if recv.is_none() {
                recv = listener.accept()?;
            }
            if send.is_none() || recv.is_none() {
                return Ok(None);
            }
            Ok(send.take().zip(recv.take()))
        })
    }

    /// Drives both backends, asleep whenever nothing moves, until `ready` has a value.
    ///
    /// # Errors
    ///
    /// Those of `ready` and of the backends; [`ErrorKind::Timeout`] if nothing comes for a minute.
    pub fn wait<T>(&self, what: &str, mut ready: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(value) = ready()? {
                return Ok(value);
            }
            if self.sender.progress()? | self.receiver.progress()? {
                continue;
            }
            if self.sender.arm()? == Armed::Ready && is_fd(&*self.sender)
                || self.receiver.arm()? == Armed::Ready && is_fd(&*self.receiver)
            {
                continue;
            }
            if let Some(value) = ready()? {
                return Ok(value);
            }
            let timeout = deadline.saturating_duration_since(Instant::now());
            if timeout.is_zero() {
                let text = "the network neither did what was waited for nor said why not";
                return Err(Error::new(ErrorKind::Timeout, text).with("waiting_for", what));
            }
            let both = [self.sender.wake_source(), self.receiver.wake_source()];
            sleep(&both, timeout)?;
        }
    }

    /// Sends from a buffer as soon as there is room.
    ///
    /// # Errors
    ///
    /// The connection's failure, or that the test has dropped the end.
    pub fn isend(&mut self, buffer: &Buffer) -> Result<Request> {
        self.isend_part(buffer, buffer.slice().len_bytes())
    }

    /// Sends the first `len_bytes` bytes of a buffer as soon as there is room.
    ///
    /// # Errors
    ///
    /// As for [`Rig::isend`].
    pub fn isend_part(&mut self, buffer: &Buffer, len_bytes: usize) -> Result<Request> {
        let slice = buffer.slice().prefix(len_bytes)?;
        let mut send = self.send.take().ok_or_else(dropped)?;
        // SAFETY: by the rule of `Buffer` nobody writes to it while requests are outstanding.
        let request = self.wait("room for a send", || unsafe { send.isend(&slice) });
        self.send = Some(send);
        request
    }

    /// Receives into a buffer as soon as there is room.
    ///
    /// # Errors
    ///
    /// As for [`Rig::isend`].
    pub fn irecv(&mut self, buffer: &Buffer) -> Result<Request> {
        let mut recv = self.recv.take().ok_or_else(dropped)?;
        // SAFETY: by the rule of `Buffer` nobody looks at it while requests are outstanding.
        let request = self.wait("room for a receive", || unsafe {
            recv.irecv(buffer.slice())
        });
        self.recv = Some(recv);
        request
    }

    /// Waits until a send is done.
    ///
    /// # Errors
    ///
    /// As for [`Rig::isend`].
    pub fn sent(&mut self, request: &Request) -> Result<usize> {
        let mut send = self.send.take().ok_or_else(dropped)?;
        let bytes = self.wait("a send", || send.test(request));
        self.send = Some(send);
        bytes
    }

    /// Waits until a receive is done; the length of the message.
    ///
    /// # Errors
    ///
    /// As for [`Rig::isend`].
    pub fn received(&mut self, request: &Request) -> Result<usize> {
        let mut recv = self.recv.take().ok_or_else(dropped)?;
        let bytes = self.wait("a message", || recv.test(request));
        self.recv = Some(recv);
        bytes
    }

    /// The sending end.
    ///
    /// # Errors
    ///
    /// If the test has dropped it.
    pub fn send(&mut self) -> Result<&mut dyn NetSend> {
        self.send
            .as_deref_mut()
            .map_or_else(|| Err(dropped()), |end| Ok(end as _))
    }

    /// The receiving end.
    ///
    /// # Errors
    ///
    /// If the test has dropped it.
    pub fn recv(&mut self) -> Result<&mut dyn NetRecv> {
        self.recv
            .as_deref_mut()
            .map_or_else(|| Err(dropped()), |end| Ok(end as _))
    }

    /// A buffer of the sender.
    ///
    /// # Errors
    ///
    /// What the backend says to the registration.
    pub fn send_buffer(&self, contents: &[u8]) -> Result<Buffer> {
        let buffer = Buffer::new(&*self.sender, 0, contents.len())?;
        buffer.fill(contents);
        Ok(buffer)
    }

    /// A buffer of the receiver.
    ///
    /// # Errors
    ///
    /// What the backend says to the registration.
    pub fn recv_buffer(&self, len_bytes: usize) -> Result<Buffer> {
        Buffer::new(&*self.receiver, 0, len_bytes)
    }
}

fn is_fd(backend: &dyn NetBackend) -> bool {
    matches!(backend.wake_source(), WakeSource::Fd(_))
}

fn dropped() -> Error {
    Error::new(
        ErrorKind::Internal,
        "the test uses an end that it has dropped or never connected",
    )
}

/// Sleeps until one of the sources is readable.
fn sleep(sources: &[WakeSource<'_>], timeout: Duration) -> Result<()> {
    let fds: Vec<BorrowedFd<'_>> = sources
        .iter()
        .filter_map(|source| match source {
            WakeSource::Fd(fd) => Some(*fd),
            _ => None,
        })
        .collect();
    let timeout = if fds.len() == sources.len() {
        timeout
    } else {
        POLL_INTERVAL
    };
    let mut fds: Vec<_> = fds
        .iter()
        .map(|fd| PollFd::new(fd, PollFlags::IN))
        .collect();
    let timeout = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(Error::system("sleeping on a network's descriptor", errno)),
    }
}
