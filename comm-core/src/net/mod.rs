//! What carries whole messages between processes: [`NetBackend`], the contract of NET backends.
//!
//! A backend brings one kind of network (sockets, verbs, a vendor's fabric, a mock) and nothing
//! else: slots, steps, headers, threads and sleeping are the business of the NET transport, which
//! works over `dyn NetBackend`. The rules of order and back-pressure are those of NCCL's network
//! plugins (interface version 11), so that such a network can be brought in; waking, quiescing and
//! memory registration are stricter.
//!
//! # Contract
//!
//! Whoever implements the traits promises every clause; the conformance suite of `comm-testkit`
//! has a test for each. The traits are `unsafe` because memory safety rests on N9 to N12.
//!
//! **Connecting**
//!
//! * **N1 One direction.** A connection goes from one [`NetSend`] to one [`NetRecv`]. The receiver
//!   listens, its [`NetListener::handle`] travels to the sender by other means, the sender
//!   connects. Every connect leads to one accepted connection. Both ends may be in one process and
//!   on one backend. The handle is at most [`MAX_HANDLE_BYTES`] long and nobody who lacks it gets
//!   accepted by accident.
//! * **N2 Nothing blocks.** `listen`, `connect`, `accept` and everything else returns at once,
//!   except `quiesce`, which has a deadline. `Ok(None)` means "not yet: call again". A connect may
//!   be ready before the peer has accepted.
//! * **N3 Dropped is closed.** Dropping a listener, a connect or an end releases it.
//!
//! **Messages**
//!
//! * **N4 Order.** The k-th accepted `isend` of a connection meets its k-th accepted `irecv`,
//!   whichever comes first. Requests may complete in any order.
//! * **N5 Sizes.** A receive may be longer than its message: `test` gives the message's length and
//!   the bytes behind it are untouched. Empty messages are messages. A send is done with its full
//!   length.
//! * **N6 Truncation.** A message that is longer than its receive fails the connection: the
//!   receive with [`Truncated`](crate::ErrorKind::Truncated), the send with an error unless it was
//!   done already, and so does everything behind them.
//! * **N7 Back-pressure.** `Ok(None)` from `isend` or `irecv` means "no room now" and has no
//!   effect. At least [`NetProperties::max_outstanding`] requests fit if earlier ones are tested
//!   until done. A send whose receive has not been posted may be held up or buffered, but a
//!   connection buffers a bounded number of bytes: a sender that is not received from gets `None`
//!   or pending requests in the end, not memory.
//! * **N8 Tested once.** [`NetSend::test`] and [`NetRecv::test`] say `Some` once for each request;
//!   asking again is [`InvalidArgument`](crate::ErrorKind::InvalidArgument). What a receive that
//!   tested done holds is visible to the CPU, or to the device whose memory it is (no flush is
//!   needed).
//!
//! **Memory**
//!
//! * **N9 Registered.** Only [`MrSlice`]s of regions registered with this backend and the
//!   connection's device are taken; others are `InvalidArgument`. Bounds were checked when the
//!   slice was made; the backend stays inside.
//! * **N10 Touched only in between.** The backend touches a region only for requests that it
//!   accepted, and never after the request tested done or after the connection quiesced. It reads
//!   what it sends and writes what it receives, nothing else.
//! * **N11 Quiesce.** `quiesce` withdraws all requests of the connection. [`Quiesce::Quiesced`]
//!   means that neither backend nor device will touch their memory again. [`Quiesce::StillBusy`]
//!   means that this could not be made sure by the deadline; the call may be repeated. From the
//!   first call on the connection is failed with [`Cancelled`](crate::ErrorKind::Cancelled). A
//!   deadline that has passed asks once, without waiting. Where
//!   [`NetProperties::cancels_at_once`] is set, the answer is always `Quiesced`.
//! * **N12 Kept alive.** As long as backend or device may touch a slice, the backend holds a clone
//!   of it, also if the connection was dropped; if it can never know, for ever.
//!
//! **Failure**
//!
//! * **N13 Final.** Any error except `InvalidArgument` (which has no effect) is final for the
//!   connection, is repeated by every later call and concerns no other connection. Requests that
//!   completed before still test done.
//! * **N14 The peer is gone.** If the other end is dropped or its process dies, messages whose
//!   send tested done before are still received; then the end fails with
//!   [`PeerDied`](crate::ErrorKind::PeerDied). A host that has silently vanished may be noticed
//!   later, by time-outs of the network.
//!
//! **Progress and sleep**
//!
//! * **N15 Driven.** Nothing is promised to move unless somebody calls [`NetBackend::progress`],
//!   on any thread. `isend`, `irecv` and `test` may also move data, of their own connection only:
//!   no call but `progress` and `quiesce` changes what another connection's `test` would say, or
//!   whether a listener or connect has something. The answer of `progress` is `true` if there may
//!   be more to do now.
//! * **N16 Woken.** With [`WakeSource::Fd`], after [`NetBackend::arm`] said
//!   [`Armed::WillRing`], the descriptor is readable whenever there is something for `progress` to
//!   do: data, room after `None` (N7), a connection, a failure. That holds until the next call of
//!   `arm`, however often `progress` is called in between by whom. [`Armed::Ready`] means: call
//!   `progress` now. Spurious readability is allowed, an idle backend is not always readable.
//! * **N17 Device failure.** An error of `progress` or `arm` is the failure of the whole backend
//!   and is repeated; all connections fail.
//!
//! **Direct transfers**, where [`NetProperties::copies_synchronously`] is set
//!
//! * **N18 Direct.** [`NetSend::send_direct`] and [`NetRecv::recv_direct`] move the contents of
//!   memory that is not registered: each call copies what the network takes or has, and keeps no
//!   pointer. They are called with the same memory until they say [`Transfer::Done`]. A transfer has a
//!   place in the order of the connection like a message, and the k-th transfer sent meets the
//!   k-th received; `isend` says `None` while one is under way. A transfer of another length than
//!   the receiver's fails the connection with [`Protocol`](crate::ErrorKind::Protocol). The
//!   waking of N16 holds for what `direct_ready` would answer, after a call that did not finish.

mod connection;
mod properties;
mod region;

use std::fmt;
use std::os::fd::BorrowedFd;

use bytes::Bytes;

pub use connection::{NetRecv, NetSend, Quiesce, RemoteSlice, Request, Transfer};
pub use properties::{NetProperties, Reach};
pub use region::{MemoryRegion, MrSlice, Region};

use crate::{Armed, Error, ErrorKind, Result};

/// The longest handle of a listener.
pub const MAX_HANDLE_BYTES: usize = 512;

/// How a thread learns that a backend has something to do.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum WakeSource<'a> {
    /// This descriptor becomes readable, once armed (N16).
    Fd(BorrowedFd<'a>),
    /// There is no such descriptor: call [`NetBackend::progress`] every now and then.
    Poll,
}

/// A network; see the [module documentation](self) for the contract.
///
/// # Safety
///
/// The implementor promises N9 to N12 for itself and for everything that it hands out.
pub unsafe trait NetBackend: Send + Sync + fmt::Debug {
    /// The network's name, in lower case: `tcp`, `verbs`.
    fn name(&self) -> &str;

    /// The devices that can be used, best first. The answer does not change.
    fn devices(&self) -> &[NetProperties];

    /// Starts to listen on a device.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if there is no such device; what the system refuses.
    fn listen(&self, device: usize) -> Result<Box<dyn NetListener>>;

    /// Starts to connect from a device to the listener with this handle.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if there is no such device, [`ErrorKind::Protocol`] if the
    /// handle is none of this network; what the system refuses.
    fn connect(&self, device: usize, handle: &[u8]) -> Result<Box<dyn NetConnect>>;

    /// Makes memory known to a device. It is made unknown when the last clone of the region and
    /// of its slices is dropped.
    ///
    /// Cheap for networks that set [`NetProperties::cheap_registration`]; otherwise up to a
    /// millisecond per 16 MiB, so regions are registered once and kept.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if there is no such device, [`ErrorKind::Unsupported`] if it
    /// cannot reach this kind of memory, [`ErrorKind::ResourceExhausted`] if no more memory can be
    /// locked.
    fn register(&self, device: usize, region: Region) -> Result<MemoryRegion>;

    /// Moves what can be moved, of all connections, in bounded time (N15).
    ///
    /// # Errors
    ///
    /// The failure of the whole backend (N17).
    fn progress(&self) -> Result<bool>;

    /// How to learn that [`NetBackend::progress`] has something to do. The answer does not change.
    fn wake_source(&self) -> WakeSource<'_>;

    /// Asks for the wake source to become readable (N16).
    ///
    /// Called by one thread at a time. A backend with [`WakeSource::Poll`] always answers
    /// [`Armed::Ready`].
    ///
    /// # Errors
    ///
    /// The failure of the whole backend (N17).
    fn arm(&self) -> Result<Armed>;

    /// Opens a region for [`NetSend::put`] by peers; what they need to know for it.
    ///
    /// The window is open until the last clone of the region is dropped. Peers then write to the
    /// region at any time: only through raw pointers may it be read.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] unless [`NetProperties::put`] is set (the default);
    /// [`ErrorKind::InvalidArgument`] if the region is not registered here.
    fn window(&self, region: &MemoryRegion) -> Result<Bytes> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "this network has no put; send a message instead",
        )
        .with("backend", self.name())
        .with("bytes", region.len_bytes()))
    }
}

/// A place to which senders connect.
///
/// # Safety
///
/// As for [`NetBackend`].
pub unsafe trait NetListener: Send + fmt::Debug {
    /// What a sender needs to know in order to connect, at most [`MAX_HANDLE_BYTES`] long. It is
    /// a secret of the job.
    fn handle(&self) -> &[u8];

    /// The next connection, or `None` if nobody has connected yet.
    ///
    /// # Errors
    ///
    /// The listener's failure. What a stranger does to the listener is not an error.
    fn accept(&mut self) -> Result<Option<Box<dyn NetRecv>>>;
}

/// A connection of which the sending end is being made.
///
/// # Safety
///
/// As for [`NetBackend`].
pub unsafe trait NetConnect: Send + fmt::Debug {
    /// The connection, or `None` if it is not ready yet. Not called again after it was handed out.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::PeerDied`] if nobody listens there (any more); what the system refuses.
    fn poll(&mut self) -> Result<Option<Box<dyn NetSend>>>;
}
