//! What the receiver of frames tells their sender.
//!
//! # Contract
//!
//! * An acknowledgement says that every frame up to a number was received, or that one frame was
//!   read and dropped since its receive had been cancelled. Those before it are then received.
//! * The receiver sends it when there is room, and joins those that have to wait, so their number
//!   is bounded by that of cancelled receives. Nobody waits in order to send one.
//! * The sender believes only numbers of frames that it has sent and that are not acknowledged yet.

use std::collections::VecDeque;

use comm_core::{Algorithm, Error, ErrorKind, OperationKind, Result, Signature};
use comm_kernels as kernels;

use super::preface::corrupt;
use crate::edge::ends::{Identity, Outgoing, RecvEnd, SendEnd};

/// Length of an acknowledgement on the wire.
const ACK_BYTES: usize = 16;

const MAGIC: u16 = 0xc3ac;
const VERSION: u8 = 1;

const RECEIVED: u8 = 0;
const CANCELLED: u8 = 1;

/// All acknowledgements have the same identity; the number is part of the contents.
const IDENTITY: Identity = Identity::new(Signature {
    sequence: 0,
    kind: OperationKind::FrameAck,
    algorithm: Algorithm::Direct,
    dtype: None,
    op: None,
    root: 0,
    count: 0,
});

/// What became of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ack {
    /// Every frame up to and with this one was received.
    ReceivedThrough(u64),
    /// This frame was dropped because its receive was cancelled.
    Cancelled(u64),
}

impl Ack {
    pub(crate) const fn sequence(self) -> u64 {
        match self {
            Self::ReceivedThrough(sequence) | Self::Cancelled(sequence) => sequence,
        }
    }

    fn encode(self) -> [u8; ACK_BYTES] {
        let mut bytes = [0; ACK_BYTES];
        bytes[0..2].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[2] = VERSION;
        bytes[3] = match self {
            Self::ReceivedThrough(_) => RECEIVED,
            Self::Cancelled(_) => CANCELLED,
        };
        bytes[8..16].copy_from_slice(&self.sequence().to_le_bytes());
        bytes
    }

    fn parse(bytes: [u8; ACK_BYTES]) -> Result<Self> {
        let mut sequence = [0; 8];
        sequence.copy_from_slice(&bytes[8..16]);
        let sequence = u64::from_le_bytes(sequence);
        let known = u16::from_le_bytes([bytes[0], bytes[1]]) == MAGIC && bytes[2] == VERSION;
        match bytes[3] {
            RECEIVED if known => Ok(Self::ReceivedThrough(sequence)),
            CANCELLED if known => Ok(Self::Cancelled(sequence)),
            _ => Err(corrupt("acknowledgement")),
        }
    }

    /// The next acknowledgement, if one has arrived.
    #[inline]
    pub(crate) fn try_receive(end: &mut RecvEnd) -> Result<Option<Self>> {
        let Some(step) = end.try_take_any(&IDENTITY)? else {
            return Ok(None);
        };
        if step.bytes < ACK_BYTES {
            return Err(corrupt("length of an acknowledgement"));
        }
        let mut bytes = [0; ACK_BYTES];
        // SAFETY: the step holds at least as many bytes.
        unsafe { kernels::copy(bytes.as_mut_ptr(), step.data, ACK_BYTES) };
        end.consume()?;
        Self::parse(bytes).map(Some)
    }

    fn try_send(self, end: &mut SendEnd) -> Result<bool> {
        let bytes = self.encode();
        match end.try_reserve(ACK_BYTES)? {
            None => return Ok(false),
            Some(Outgoing::Small) => end.publish_small(&bytes, &IDENTITY)?,
            Some(Outgoing::Slot(slot)) => {
                // SAFETY: a slot of these edges holds more than an acknowledgement.
                unsafe { kernels::copy(slot.data.as_ptr(), bytes.as_ptr(), ACK_BYTES) };
                end.publish(ACK_BYTES, &IDENTITY)?;
            }
        }
        Ok(true)
    }
}

/// Acknowledgements that are to be sent.
#[derive(Debug, Default)]
pub(crate) struct PendingAcks {
    pending: VecDeque<Ack>,
}

impl PendingAcks {
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Adds one, joined with the one before it if that says nothing else.
    pub(crate) fn push(&mut self, ack: Ack) {
        match (self.pending.back_mut(), ack) {
            (Some(Ack::ReceivedThrough(last)), Ack::ReceivedThrough(sequence)) => *last = sequence,
            _ => self.pending.push_back(ack),
        }
    }

    /// Sends what there is room for; whether any was sent.
    ///
    /// An end that has failed takes them all: nobody is there any more to read them.
    #[inline]
    pub(crate) fn flush(&mut self, end: Option<&mut SendEnd>) -> bool {
        let Some(end) = end else { return false };
        let mut moved = false;
        while let Some(ack) = self.pending.front() {
            match ack.try_send(end) {
                Ok(true) => {
                    self.pending.pop_front();
                    moved = true;
                }
                Ok(false) => break,
                Err(error) => {
                    tracing::debug!(%error, "a frame is not acknowledged: its sender is gone");
                    self.pending.clear();
                }
            }
        }
        moved
    }
}

/// What is to happen when a sent frame is acknowledged.
pub(crate) enum Completion {
    /// Nothing: its sender did not wait, or cancelled it.
    Nothing,
    /// The handle of the send ends.
    Handle(Box<dyn FnOnce(Result<()>) + Send>),
    /// The driver itself waits for it.
    Driver,
}

impl std::fmt::Debug for Completion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Handle(_) => "Handle",
            Self::Driver => "Driver",
        })
    }
}

/// A frame that was sent and is not acknowledged.
#[derive(Debug)]
pub(crate) struct Sent<L> {
    pub(crate) sequence: u64,
    pub(crate) bytes: u64,
    /// How long its sender waits.
    pub(crate) limit: L,
    pub(crate) completion: Completion,
}

/// The frames that were sent and are not acknowledged, in order.
#[derive(Debug)]
pub(crate) struct Unacknowledged<L> {
    sent: VecDeque<Sent<L>>,
    bytes: u64,
    /// Those of them for which somebody waits.
    awaited: usize,
}

impl<L> Default for Unacknowledged<L> {
    fn default() -> Self {
        Self {
            sent: VecDeque::new(),
            bytes: 0,
            awaited: 0,
        }
    }
}

impl<L> Unacknowledged<L> {
    pub(crate) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Bytes of all of them together.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether somebody waits for an acknowledgement.
    pub(crate) const fn is_awaited(&self) -> bool {
        self.awaited > 0
    }

    /// Those for which somebody waits.
    pub(crate) fn awaited_mut(&mut self) -> impl Iterator<Item = &mut Sent<L>> {
        self.sent
            .iter_mut()
            .filter(|sent| !matches!(sent.completion, Completion::Nothing))
    }

    /// The oldest one for which somebody waits.
    pub(crate) fn oldest_awaited(&self) -> Option<&Sent<L>> {
        self.sent
            .iter()
            .find(|sent| !matches!(sent.completion, Completion::Nothing))
    }

    pub(crate) fn push(&mut self, sent: Sent<L>) {
        self.bytes += sent.bytes;
        if !matches!(sent.completion, Completion::Nothing) {
            self.awaited += 1;
        }
        self.sent.push_back(sent);
    }

    pub(crate) fn pop(&mut self) -> Option<Sent<L>> {
        let sent = self.sent.pop_front()?;
        self.bytes -= sent.bytes;
        if !matches!(sent.completion, Completion::Nothing) {
            self.awaited -= 1;
        }
        Some(sent)
    }

    /// Hands every frame that `ack` concerns to `end`, with what became of it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] if no such frame is waiting for its acknowledgement.
    pub(crate) fn take(
        &mut self,
        ack: Ack,
        mut end: impl FnMut(Sent<L>, Result<()>),
    ) -> Result<()> {
        let sequence = ack.sequence();
        let waits = |at: Option<&Sent<L>>| at.map(|sent| sent.sequence);
        let (first, last) = (waits(self.sent.front()), waits(self.sent.back()));
        if !first
            .zip(last)
            .is_some_and(|(first, last)| (first..=last).contains(&sequence))
        {
            return Err(corrupt("number of an acknowledgement").with("sequence", sequence));
        }
        while let Some(sent) = self.sent.front().filter(|sent| sent.sequence <= sequence) {
            let dropped = ack == Ack::Cancelled(sent.sequence);
            let result = if dropped {
                Err(cancelled_by_peer())
            } else {
                Ok(())
            };
            if let Some(sent) = self.pop() {
                end(sent, result);
            }
        }
        Ok(())
    }
}

/// The error of a send whose receive was cancelled.
#[cold]
fn cancelled_by_peer() -> Error {
    Error::new(
        ErrorKind::CancelledByPeer,
        "the receiving rank cancelled the receive that this send met; send again if the data still \
         matters",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sent(sequence: u64) -> Sent<()> {
        Sent {
            sequence,
            bytes: 10,
            limit: (),
            completion: Completion::Driver,
        }
    }

    fn window(sequences: std::ops::Range<u64>) -> Unacknowledged<()> {
        let mut window = Unacknowledged::default();
        for sequence in sequences {
            window.push(sent(sequence));
        }
        window
    }

    #[test]
    fn an_acknowledgement_ends_all_frames_up_to_its_own() {
        let mut window = window(3..8);
        let mut ended = Vec::new();
        window
            .take(Ack::ReceivedThrough(5), |sent, result| {
                ended.push((sent.sequence, result.is_ok()));
            })
            .unwrap();
        assert_eq!(ended, [(3, true), (4, true), (5, true)]);
        assert_eq!(window.bytes(), 20);
    }

    #[test]
    fn only_the_frame_of_the_cancelled_receive_is_cancelled() {
        let mut window = window(3..8);
        let mut ended = Vec::new();
        window
            .take(Ack::Cancelled(4), |sent, result| {
                ended.push((sent.sequence, result.map_err(|error| error.kind())));
            })
            .unwrap();
        assert_eq!(ended, [(3, Ok(())), (4, Err(ErrorKind::CancelledByPeer))]);
    }

    #[test]
    fn an_acknowledgement_of_another_frame_is_a_protocol_error() {
        for sequence in [2, 8, u64::MAX] {
            let error = window(3..8)
                .take(Ack::ReceivedThrough(sequence), |_, _| {})
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol);
        }
        assert!(window(0..0).take(Ack::Cancelled(0), |_, _| {}).is_err());
    }

    #[test]
    fn acknowledgements_that_have_to_wait_are_joined() {
        let mut acks = PendingAcks::default();
        for sequence in 0..5 {
            acks.push(Ack::ReceivedThrough(sequence));
        }
        acks.push(Ack::Cancelled(5));
        acks.push(Ack::ReceivedThrough(6));
        acks.push(Ack::ReceivedThrough(7));
        assert_eq!(
            acks.pending,
            [
                Ack::ReceivedThrough(4),
                Ack::Cancelled(5),
                Ack::ReceivedThrough(7)
            ]
        );
        assert!(!acks.flush(None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_acknowledgement_or_a_protocol_error(bytes: [u8; ACK_BYTES], valid: bool) {
            let mut bytes = bytes;
            if valid {
                bytes[..8].copy_from_slice(&Ack::Cancelled(0).encode()[..8]);
            }
            match Ack::parse(bytes) {
                Ok(ack) => prop_assert_eq!(Ack::parse(ack.encode()).unwrap(), ack),
                Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Protocol),
            }
        }
    }
}
