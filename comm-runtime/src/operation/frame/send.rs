//! The sending half of a frame.

use comm_core::fifo::SMALL_BYTES;
use comm_core::{Result, Tensor};
use comm_kernels as kernels;

use super::preface::{ENTRY_BYTES, PREFACE_BYTES, Preface};
use super::short::Short;
use super::{frame_signature, is_in_stream, segment_identity};
use crate::communicator::frames::FrameRef;
use crate::edge::ends::{Identity, Outgoing, SendEnd};
use crate::operation::{BlockedOn, Buffers, Ends, Progress, SendRun};

/// Bytes of preface and table that need no allocation: 28 segments.
const SHORT_BYTES: usize = PREFACE_BYTES + 28 * ENTRY_BYTES;

/// Pieces of the stream before the segments: preface with table, and header.
const FIRST_PIECES: usize = 2;

/// A frame on its way.
///
/// The caller passes the same frame to every call, and keeps its memory unchanged until the run is
/// done or dropped: large segments may be offered to the peer in between.
#[derive(Debug)]
pub(crate) struct FrameSend {
    sequence: u64,
    identity: Identity,
    step_bytes: usize,
    /// Preface and table.
    prefix: Short<u8, SHORT_BYTES>,
    /// Bytes of the stream that are not in a step yet.
    left_bytes: usize,
    /// The piece of the stream to be sent next, and where in it.
    piece: usize,
    at: usize,
    /// The first segment that may still have to be sent as a message of its own.
    segment: usize,
    /// The large segment under way.
    large: Option<SendRun>,
}

impl FrameSend {
    /// `None` for a frame that was cancelled before it began.
    pub(crate) fn new(sequence: u64, frame: Option<FrameRef<'_>>, step_bytes: usize) -> Self {
        let (tag, header, segments): (u8, &[u8], &[Tensor]) = match frame {
            Some(frame) => (frame.tag, frame.header, frame.segments),
            None => (0, &[], &[]),
        };
        let preface = Preface {
            tag,
            is_cancelled: frame.is_none(),
            segments: segments.len(),
            header_bytes: header.len(),
            sequence,
        };
        let mut prefix = Short::new();
        prefix.grow(PREFACE_BYTES + segments.len() * ENTRY_BYTES);
        let mut left_bytes = prefix.as_slice().len() + header.len();
        let (fixed, table) = prefix.as_mut_slice().split_at_mut(PREFACE_BYTES);
        fixed.copy_from_slice(&preface.encode());
        for (entry, segment) in table.chunks_exact_mut(ENTRY_BYTES).zip(segments) {
            let bytes = segment.len_bytes();
            entry.copy_from_slice(&(bytes as u64).to_le_bytes());
            if is_in_stream(bytes, step_bytes) {
                left_bytes += bytes;
            }
        }
        Self {
            sequence,
            identity: Identity::new(frame_signature(sequence)),
            step_bytes,
            prefix,
            left_bytes,
            piece: 0,
            at: 0,
            segment: 0,
            large: None,
        }
    }

    pub(crate) const fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(crate) fn blocked_on(&self) -> BlockedOn {
        match &self.large {
            Some(large) => large.blocked_on(),
            None => BlockedOn::Credit(0),
        }
    }

    /// Sends on; done when the frame's memory is its owner's again.
    pub(crate) fn advance(
        &mut self,
        frame: Option<FrameRef<'_>>,
        ends: &mut Ends,
        budget_bytes: usize,
    ) -> Result<Progress> {
        let mut budget = budget_bytes;
        while self.left_bytes > 0 {
            let bytes = self.left_bytes.min(self.step_bytes);
            if !self.send_step(frame, &mut ends.send[0], bytes)? {
                return Ok(stopped(budget, budget_bytes));
            }
            self.left_bytes -= bytes;
            budget = budget.saturating_sub(bytes);
            if budget == 0 && self.left_bytes > 0 {
                return Ok(Progress::Moved);
            }
        }
        let segments = frame.map_or(&[][..], |frame| frame.segments);
        loop {
            if let Some(large) = &mut self.large {
                match large.advance(ends, budget.max(1))? {
                    Progress::Done => self.large = None,
                    Progress::Blocked => return Ok(stopped(budget, budget_bytes)),
                    Progress::Moved => return Ok(Progress::Moved),
                }
                self.segment += 1;
                budget = budget.saturating_sub(self.step_bytes);
            }
            let Some(segment) = segments.get(self.segment) else {
                return Ok(Progress::Done);
            };
            let bytes = segment.len_bytes();
            if is_in_stream(bytes, self.step_bytes) {
                self.segment += 1;
                continue;
            }
            let buffers = Buffers {
                input: segment.as_ptr(),
                output: std::ptr::null_mut(),
            };
            let identity = segment_identity(self.sequence, self.segment, bytes);
            self.large = Some(SendRun::new(identity, buffers, bytes, self.step_bytes));
        }
    }

    /// Sends the next `bytes` of the stream as one step; `false` if there is no credit.
    fn send_step(
        &mut self,
        frame: Option<FrameRef<'_>>,
        end: &mut SendEnd,
        bytes: usize,
    ) -> Result<bool> {
        match end.try_reserve(bytes)? {
            None => return Ok(false),
            Some(Outgoing::Small) => {
                let mut small = [0; SMALL_BYTES];
                // `bytes` is at most `SMALL_BYTES` here.
                self.fill(frame, small.as_mut_ptr(), bytes)?;
                end.publish_small(&small[..bytes], &self.identity)?;
            }
            Some(Outgoing::Slot(slot)) => {
                // `bytes` is at most the capacity of a step.
                self.fill(frame, slot.data.as_ptr(), bytes)?;
                end.publish(bytes, &self.identity)?;
            }
        }
        Ok(true)
    }

    /// Writes the next `bytes` of the stream to memory that has room for them.
    fn fill(
        &mut self,
        frame: Option<FrameRef<'_>>,
        mut to: *mut u8,
        mut bytes: usize,
    ) -> Result<()> {
        while bytes > 0 {
            let piece = match (self.piece, frame) {
                (0, _) => self.prefix.as_slice(),
                (1, Some(frame)) => frame.header,
                (index, Some(frame)) => match frame.segments.get(index - FIRST_PIECES) {
                    Some(segment) if is_in_stream(segment.len_bytes(), self.step_bytes) => {
                        segment.as_bytes()?
                    }
                    Some(_) => &[],
                    // The lengths were added up from the same frame.
                    None => return Ok(()),
                },
                (_, None) => return Ok(()),
            };
            let rest = &piece[self.at..];
            let part = rest.len().min(bytes);
            // SAFETY: `part` bytes are there, and the caller has room for as many.
            unsafe { kernels::copy_far(to, rest.as_ptr(), part) };
            to = to.wrapping_add(part);
            bytes -= part;
            if part == rest.len() {
                self.piece += 1;
                self.at = 0;
            } else {
                self.at += part;
            }
        }
        Ok(())
    }
}

/// Blocked, or moved if part of the budget was spent.
const fn stopped(left_bytes: usize, budget_bytes: usize) -> Progress {
    if left_bytes == budget_bytes {
        Progress::Blocked
    } else {
        Progress::Moved
    }
}
