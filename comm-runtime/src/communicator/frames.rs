//! Frames: ordered exchange between two ranks, acknowledged by the receiver.
//!
//! # Contract
//!
//! * **Order.** The k-th frame sent from rank a to rank b meets the k-th receive of b from a,
//!   whoever submits them. Directions, pairs, messages and collectives do not wait for each other.
//! * **Sizes.** The receiver needs to know nothing beforehand: `open` gets tag, header and lengths
//!   of the segments, and returns a destination for each. It is called once, by whoever drives the
//!   lane, and must not block or call the communicator's blocking operations.
//! * **Completion.** A send is done when the receiver has received the whole frame in its matching
//!   receive; with [`eager`](FrameOptions::eager) as soon as its memory is reusable.
//! * **Back-pressure.** What may be on its way to one peer without acknowledgement is bounded
//!   (`COMM_FRAME_WINDOW_BYTES`, and the slots of the edge).
//! * **Failure.** An error of `open`, a panic in it, a deadline that passes, a frame that makes no
//!   sense or a broken edge ends this direction between the two ranks, on both, with that cause;
//!   everything under way or queued there gets it. All else goes on.
//! * **Cancelling** works until the frame is begun, and keeps the order: a receive that was
//!   cancelled takes its frame and drops it, and the sender gets
//!   [`ErrorKind::CancelledByPeer`]; in place of a send
//!   that was cancelled, the receiver's matching receive gets that error.
//! * A handle that is dropped detaches: its frame goes its way. Memory is given back at the end of
//!   the operation at the latest.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use comm_core::{Error, ErrorKind, Rank, Result, Tensor, TensorMut, Work, WorkBuilder};

use super::memory::check_tensor;
use super::{Communicator, Core, no_such_rank};
use crate::drive::LaneDriver;
use crate::drive::frames::{Guest, opened_twice};
use crate::lane::frames::{
    Limit, RecvBody, RecvOp, RecvRequest, SendBody, SendOp, SendRequest, Source, Ticket,
};
use crate::lane::{Lane, LaneKey, Submitted};
use crate::operation::frame::preface::check_sizes;

/// A frame to be sent.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// The user's own mark.
    pub tag: u8,
    /// Opaque bytes, at most 16 MiB; large data goes into segments.
    pub header: Bytes,
    /// Contiguous host tensors, whose bytes travel uncopied. At most 65536.
    pub segments: Vec<Tensor>,
}

impl Frame {
    /// The frame as a borrowed one.
    #[must_use]
    pub fn as_ref(&self) -> FrameRef<'_> {
        FrameRef {
            tag: self.tag,
            header: &self.header,
            segments: &self.segments,
        }
    }
}

/// A borrowed [`Frame`], for blocking calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameRef<'a> {
    /// As [`Frame::tag`].
    pub tag: u8,
    /// As [`Frame::header`].
    pub header: &'a [u8],
    /// As [`Frame::segments`].
    pub segments: &'a [Tensor],
}

impl FrameRef<'_> {
    fn to_frame(self) -> Frame {
        Frame {
            tag: self.tag,
            header: Bytes::copy_from_slice(self.header),
            segments: self.segments.to_vec(),
        }
    }

    /// Checks what can be checked before anything is sent; the bytes of header and segments.
    fn check(&self) -> Result<u64> {
        check_sizes(self.header.len(), self.segments.len())?;
        let mut bytes = self.header.len() as u64;
        for segment in self.segments {
            let (contiguous, host) = (segment.is_contiguous(), segment.memory_kind().is_host());
            check_tensor("send_frame", contiguous, host)?;
            bytes += segment.len_bytes() as u64;
        }
        Ok(bytes)
    }
}

/// What a receiver knows of a frame before it provides memory for it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FrameHead<'a> {
    /// The sender's mark.
    pub tag: u8,
    /// The frame's place in the order of this direction, from 0.
    pub sequence: u64,
    /// The sender's header.
    pub header: &'a [u8],
    /// The length of each segment, in bytes. Their sum is at most 2^47; whether that much memory
    /// should be provided is the receiver's decision.
    pub segment_bytes: &'a [u64],
}

/// A frame that was received.
#[derive(Debug)]
#[non_exhaustive]
pub struct Arrived {
    /// The sender's mark.
    pub tag: u8,
    /// The sender's header.
    pub header: Bytes,
    /// The destinations, filled.
    pub segments: Vec<TensorMut>,
}

/// How a frame is sent or received.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct FrameOptions {
    /// Whether a send is done as soon as its memory is reusable.
    pub eager: bool,
    /// How long the operation may take from its turn in the order on; by default as long as any
    /// operation of the communicator.
    pub timeout: Option<Duration>,
}

impl FrameOptions {
    /// Sends wait for the acknowledgement, for as long as operations may take.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            eager: false,
            timeout: None,
        }
    }

    /// Sets whether a send is done as soon as its memory is reusable, received or not.
    #[must_use]
    pub const fn eager(mut self, eager: bool) -> Self {
        self.eager = eager;
        self
    }

    /// Sets how long the operation may take; when it takes longer, this direction between the two
    /// ranks ends, on both.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    fn limit(&self, core: &Core) -> Limit {
        Limit::new(self.timeout.or(core.operation_timeout))
    }
}

impl Communicator {
    /// Sends a frame to `peer`; the handle is done when the peer has received it.
    ///
    /// Returns at once; a small frame may already be on its way then.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if there is no such rank, a segment is not contiguous host
    /// memory, or the frame exceeds a limit; the failure of this direction or of the communicator.
    /// What goes wrong later is the handle's result.
    pub fn send_frame(&self, peer: Rank, frame: Frame, options: &FrameOptions) -> Result<Work<()>> {
        let lane = self.core.frame_lane(LaneKey::FrameSend(peer))?;
        let bytes = frame.as_ref().check()?;
        let ticket: Arc<Ticket<SendBody>> = Ticket::new();
        let cancelled = Arc::clone(&ticket);
        let (work, completer) = self
            .frame_work(lane.key)
            .try_cancel(move || match cancelled.cancel() {
                None => false,
                Some(SendBody { frame, complete }) => {
                    drop(frame);
                    complete(Err(cancelled_here()));
                    true
                }
            })
            .channel();
        ticket.fill(SendBody {
            frame,
            complete: Box::new(move |result| completer.complete(result)),
        });
        let request = SendRequest {
            ticket,
            bytes,
            is_eager: options.eager,
            limit: options.limit(&self.core),
        };
        self.core.submit_frame(lane, Submitted::Send(request));
        Ok(work)
    }

    /// Receives the next frame from `peer` into the destinations that `open` returns.
    ///
    /// Returns at once. `open` gets the frame's head when it has arrived, and returns one contiguous
    /// host tensor of exactly the announced length for each segment.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if there is no such rank; the failure of this direction or of
    /// the communicator. What goes wrong later is the handle's result.
    pub fn recv_frame<F>(
        &self,
        peer: Rank,
        open: F,
        options: &FrameOptions,
    ) -> Result<Work<Arrived>>
    where
        F: FnOnce(&FrameHead<'_>) -> Result<Vec<TensorMut>> + Send + 'static,
    {
        let lane = self.core.frame_lane(LaneKey::FrameRecv(peer))?;
        let ticket: Arc<Ticket<RecvBody>> = Ticket::new();
        let cancelled = Arc::clone(&ticket);
        let (work, completer) = self
            .frame_work(lane.key)
            .try_cancel(move || match cancelled.cancel() {
                None => false,
                Some(RecvBody { open, complete }) => {
                    drop(open);
                    complete(Err(cancelled_here()));
                    true
                }
            })
            .channel();
        ticket.fill(RecvBody {
            open: Some(Box::new(open)),
            complete: Box::new(move |result| completer.complete(result)),
        });
        let request = RecvRequest {
            ticket,
            limit: options.limit(&self.core),
        };
        self.core.submit_frame(lane, Submitted::Recv(request));
        Ok(work)
    }

    /// Sends a frame to `peer` and waits until the peer has received it.
    ///
    /// Runs on the calling thread if nothing else is queued for the peer.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::send_frame`], and what goes wrong while it is sent.
    pub fn send_frame_blocking(
        &self,
        peer: Rank,
        frame: FrameRef<'_>,
        options: &FrameOptions,
    ) -> Result<()> {
        let lane = self.core.frame_lane(LaneKey::FrameSend(peer))?;
        let bytes = frame.check()?;
        let Some(mut driving) = lane.try_acquire_idle() else {
            lane.may_wait()?;
            return self.send_frame(peer, frame.to_frame(), options)?.wait();
        };
        driving.send.current = Some(SendOp {
            run: None,
            source: Source::Driver,
            bytes,
            is_eager: options.eager,
            limit: options.limit(&self.core),
        });
        self.core
            .drive_guest(lane, driving, &mut Guest::Send(frame), |driving| {
                driving.send.ended.take()
            })
    }

    /// Receives the next frame from `peer` and waits for it.
    ///
    /// Runs on the calling thread if nothing else is queued from the peer.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::recv_frame`], and what goes wrong while it is received.
    pub fn recv_frame_blocking<F>(
        &self,
        peer: Rank,
        open: F,
        options: &FrameOptions,
    ) -> Result<Arrived>
    where
        F: FnOnce(&FrameHead<'_>) -> Result<Vec<TensorMut>> + Send + 'static,
    {
        let lane = self.core.frame_lane(LaneKey::FrameRecv(peer))?;
        let Some(mut driving) = lane.try_acquire_idle() else {
            lane.may_wait()?;
            return self.recv_frame(peer, open, options)?.take();
        };
        let run = self.core.new_receive(lane, &mut driving);
        driving.recv.current = Some(RecvOp {
            run,
            source: Source::Driver,
            limit: options.limit(&self.core),
        });
        let mut open = Some(open);
        let mut open = |head: &FrameHead<'_>| match open.take() {
            Some(open) => open(head),
            None => Err(opened_twice()),
        };
        self.core
            .drive_guest(lane, driving, &mut Guest::Recv(&mut open), |driving| {
                driving.recv.ended.take()
            })
    }

    fn frame_work(&self, key: LaneKey) -> WorkBuilder {
        WorkBuilder::new().driver(Arc::new(LaneDriver {
            core: Arc::clone(&self.core),
            key,
        }))
    }
}

impl Core {
    /// The lane, if new frames may go over it.
    fn frame_lane(&self, key: LaneKey) -> Result<&Lane> {
        self.note_user();
        let lane = self
            .lane(key)
            .ok_or_else(|| no_such_rank(key, self.world_size()))?;
        self.check_usable()?;
        lane.poison.check_new()?;
        Ok(lane)
    }

    /// Queues a request; a small frame leaves at once if nobody drives the lane.
    fn submit_frame(&self, lane: &Lane, submitted: Submitted) {
        let step_bytes = self.planner.config().step_bytes as u64;
        let is_small = match &submitted {
            Submitted::Send(request) => request.bytes <= step_bytes,
            // Its user's function runs on the thread that drives, which is not this one.
            Submitted::Recv(_) | Submitted::Operation(_) => false,
        };
        lane.submit(submitted);
        match lane.try_acquire() {
            Some(mut driving) => {
                if is_small {
                    self.drive_frames(lane, &mut driving, &mut Guest::Nobody);
                }
                self.leave(lane, driving);
            }
            // Whoever drives sees it at the latest when it leaves, but may be asleep.
            None => lane.wake(self.process.doorbells()),
        }
    }
}

#[cold]
fn cancelled_here() -> Error {
    Error::new(
        ErrorKind::Cancelled,
        "the frame was cancelled before it was begun",
    )
}
