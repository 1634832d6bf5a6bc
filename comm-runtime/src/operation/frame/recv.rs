//! The receiving half of a frame.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use comm_core::{Error, ErrorKind, Result, TensorMut};
use comm_kernels as kernels;

use super::preface::{ENTRY_BYTES, PREFACE_BYTES, Preface, corrupt, parse_table};
use super::short::Short;
use super::{frame_signature, is_in_stream, segment_identity};
use crate::communicator::frames::{Arrived, FrameHead};
use crate::edge::ends::{Identity, RecvEnd};
use crate::operation::{BlockedOn, Buffers, Ends, Progress, RecvRun};

/// Segments whose lengths need no allocation.
const SHORT_SEGMENTS: usize = 28;

/// Asks the user for the destinations of a frame's segments.
pub(crate) type Open<'a> = dyn FnMut(&FrameHead<'_>) -> Result<Vec<TensorMut>> + 'a;

/// How far a frame was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Preface,
    Table,
    Header,
    Opening,
    /// The segments of the stream.
    Small,
    /// The segments that are messages of their own.
    Large,
}

/// What came of a frame.
#[derive(Debug)]
pub(crate) enum Received {
    /// All of it.
    Whole(Arrived),
    /// Its sender had cancelled it.
    Cancelled,
}

/// The place in the stream of steps.
#[derive(Debug)]
struct Stream {
    identity: Identity,
    /// Bytes of the step at hand that were read.
    step_at: usize,
}

impl Stream {
    /// Copies what has come of the stream to `to`; how many bytes that is.
    fn read(&mut self, end: &mut RecvEnd, to: &mut [u8]) -> Result<usize> {
        let mut read = 0;
        while read < to.len() {
            let Some(step) = end.try_take_any(&self.identity)? else {
                break;
            };
            if self.step_at >= step.bytes {
                return Err(corrupt("length of a step"));
            }
            let to = &mut to[read..];
            let bytes = (step.bytes - self.step_at).min(to.len());
            let from = step.data.wrapping_add(self.step_at);
            // SAFETY: the step holds `bytes` bytes from there on, and `to` has room for them.
            unsafe { kernels::copy_far(to.as_mut_ptr(), from, bytes) };
            read += bytes;
            self.step_at += bytes;
            if self.step_at == step.bytes {
                end.consume()?;
                self.step_at = 0;
            }
        }
        Ok(read)
    }

    /// The stream is read: nothing but the padding of a small step may be left.
    fn end(&mut self, end: &mut RecvEnd) -> Result<()> {
        if self.step_at == 0 {
            return Ok(());
        }
        match end.try_take_any(&self.identity)? {
            Some(step) if step.is_padded => {
                self.step_at = 0;
                end.consume()
            }
            _ => Err(corrupt("length of the last step")),
        }
    }
}

/// A frame that is being received.
#[derive(Debug)]
pub(crate) struct FrameRecv {
    // Declared before the segments, which it writes to.
    large: Option<RecvRun>,
    sequence: u64,
    step_bytes: usize,
    stream: Stream,
    stage: Stage,
    /// Bytes of the stage's piece that were read.
    at: usize,
    fixed: [u8; PREFACE_BYTES],
    preface: Option<Preface>,
    table: Short<u8, { SHORT_SEGMENTS * ENTRY_BYTES }>,
    sizes: Short<u64, SHORT_SEGMENTS>,
    header: Vec<u8>,
    segments: Vec<TensorMut>,
    segment: usize,
}

impl FrameRecv {
    pub(crate) fn new(sequence: u64, step_bytes: usize) -> Self {
        Self {
            large: None,
            sequence,
            step_bytes,
            stream: Stream {
                identity: Identity::new(frame_signature(sequence)),
                step_at: 0,
            },
            stage: Stage::Preface,
            at: 0,
            fixed: [0; PREFACE_BYTES],
            preface: None,
            table: Short::new(),
            sizes: Short::new(),
            header: Vec::new(),
            segments: Vec::new(),
            segment: 0,
        }
    }

    pub(crate) const fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(crate) fn blocked_on(&self) -> BlockedOn {
        match &self.large {
            Some(large) => large.blocked_on(),
            None => BlockedOn::Step(0),
        }
    }

    /// Whether the frame's first step has arrived; nothing is taken.
    pub(crate) fn has_arrived(&self, ends: &mut Ends) -> Result<bool> {
        let step = ends.recv[0].try_take_any(&self.stream.identity)?;
        Ok(step.is_some())
    }

    /// Receives on. `open` is called once, when the header is there.
    pub(crate) fn advance(
        &mut self,
        ends: &mut Ends,
        budget_bytes: usize,
        open: &mut Open<'_>,
    ) -> Result<Progress> {
        let mut budget = budget_bytes;
        loop {
            let end = &mut ends.recv[0];
            let before = self.at;
            let whole = match self.stage {
                Stage::Preface => self.read_preface(end)?,
                Stage::Table => self.read_table(end)?,
                Stage::Header => self.read_header(end)?,
                Stage::Opening => {
                    self.open(open)?;
                    true
                }
                Stage::Small => {
                    let (whole, bytes) = self.read_small_segment(end)?;
                    budget = budget.saturating_sub(bytes);
                    whole
                }
                Stage::Large => {
                    let progress = self.receive_large(ends, budget.max(1))?;
                    if progress == Progress::Blocked && budget < budget_bytes {
                        return Ok(Progress::Moved);
                    }
                    return Ok(progress);
                }
            };
            if !whole {
                // A step is consumed when its last byte is read.
                let moved = budget < budget_bytes || self.at > before;
                return Ok(if moved {
                    Progress::Moved
                } else {
                    Progress::Blocked
                });
            }
            if budget == 0 {
                return Ok(Progress::Moved);
            }
        }
    }

    /// What came; after [`Progress::Done`].
    pub(crate) fn finish(self) -> Received {
        match self.preface {
            Some(preface) if !preface.is_cancelled => Received::Whole(Arrived {
                tag: preface.tag,
                header: Bytes::from(self.header),
                segments: self.segments,
            }),
            _ => Received::Cancelled,
        }
    }

    fn read_preface(&mut self, end: &mut RecvEnd) -> Result<bool> {
        self.at += self.stream.read(end, &mut self.fixed[self.at..])?;
        if self.at < PREFACE_BYTES {
            return Ok(false);
        }
        let preface = Preface::parse(&self.fixed, self.sequence)?;
        self.table.grow(preface.segments * ENTRY_BYTES);
        self.header = vec![0; preface.header_bytes];
        self.preface = Some(preface);
        self.begin(Stage::Table);
        Ok(true)
    }

    fn read_table(&mut self, end: &mut RecvEnd) -> Result<bool> {
        let table = self.table.as_mut_slice();
        self.at += self.stream.read(end, &mut table[self.at..])?;
        if self.at < table.len() {
            return Ok(false);
        }
        self.sizes.grow(table.len() / ENTRY_BYTES);
        parse_table(table, self.sizes.as_mut_slice())?;
        self.begin(Stage::Header);
        Ok(true)
    }

    fn read_header(&mut self, end: &mut RecvEnd) -> Result<bool> {
        self.at += self.stream.read(end, &mut self.header[self.at..])?;
        let whole = self.at == self.header.len();
        if whole {
            self.begin(Stage::Opening);
        }
        Ok(whole)
    }

    /// Asks for the destinations and checks them.
    fn open(&mut self, open: &mut Open<'_>) -> Result<()> {
        self.begin(Stage::Small);
        let Some(preface) = self.preface.filter(|preface| !preface.is_cancelled) else {
            return Ok(());
        };
        let sizes = self.sizes.as_slice();
        let head = FrameHead {
            tag: preface.tag,
            sequence: self.sequence,
            header: &self.header,
            segment_bytes: sizes,
        };
        let opened = catch_unwind(AssertUnwindSafe(|| open(&head)));
        let mut segments = opened.unwrap_or_else(|panic| {
            let text = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned());
            Err(Error::new(
                ErrorKind::Internal,
                "the function that finds the destinations of a frame panicked",
            )
            .with("panic", text.unwrap_or_default()))
        })?;
        let fits = segments.len() == sizes.len()
            && segments.iter_mut().zip(sizes).all(|(segment, bytes)| {
                segment.len_bytes() as u64 == *bytes
                    && (*bytes == 0 || segment.as_mut_bytes().is_ok())
            });
        if !fits {
            let given: Vec<_> = segments.iter().map(TensorMut::len_bytes).collect();
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the destinations of a frame must be contiguous host tensors, one for each segment \
                 and of its length",
            )
            .with("segment_bytes", format!("{sizes:?}"))
            .with("given_bytes", format!("{given:?}")));
        }
        self.segments = segments;
        Ok(())
    }

    fn read_small_segment(&mut self, end: &mut RecvEnd) -> Result<(bool, usize)> {
        let Some(segment) = self.segments.get_mut(self.segment) else {
            self.stream.end(end)?;
            self.segment = 0;
            self.begin(Stage::Large);
            return Ok((true, 0));
        };
        let len_bytes = segment.len_bytes();
        if !is_in_stream(len_bytes, self.step_bytes) {
            self.segment += 1;
            return Ok((true, 0));
        }
        let to = &mut segment.as_mut_bytes()?[self.at..];
        let bytes = self.stream.read(end, to)?;
        self.at += bytes;
        let whole = self.at == len_bytes;
        if whole {
            self.segment += 1;
            self.at = 0;
        }
        Ok((whole, bytes))
    }

    fn receive_large(&mut self, ends: &mut Ends, budget_bytes: usize) -> Result<Progress> {
        loop {
            if let Some(large) = &mut self.large {
                match large.advance(ends, budget_bytes)? {
                    Progress::Done => self.large = None,
                    other => return Ok(other),
                }
                self.segment += 1;
            }
            let Some(segment) = self.segments.get_mut(self.segment) else {
                return Ok(Progress::Done);
            };
            let bytes = segment.len_bytes();
            if is_in_stream(bytes, self.step_bytes) {
                self.segment += 1;
                continue;
            }
            let buffers = Buffers {
                input: std::ptr::null(),
                output: segment.as_mut_ptr(),
            };
            let identity = segment_identity(self.sequence, self.segment, bytes);
            self.large = Some(RecvRun::new(identity, buffers, bytes, self.step_bytes));
        }
    }

    const fn begin(&mut self, stage: Stage) {
        self.stage = stage;
        self.at = 0;
    }
}

#[cfg(test)]
mod tests;
