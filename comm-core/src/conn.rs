//! What the data path needs of a connected edge: [`ConnInfo`].
//!
//! Two things must not be confused. A [`ConnectHandle`](crate::ConnectHandle) says how the *other
//! process* can reach my memory and is thrown away after set-up; [`ConnInfo`] is what the hot loop
//! of *this* process works on.
//!
//! All kinds of edges speak in **steps**: numbered from 1, each carrying at most
//! `step_bytes` of payload, delivered exactly once and in order, with the sender's
//! [`Signature`](crate::Signature) beside the payload.
//!
//! * [`ConnInfo::MemorySend`] / [`ConnInfo::MemoryRecv`]: both ends see the same memory; the step
//!   FIFO ([`crate::fifo`]) is the whole protocol and the runtime inlines it. Whether both ends also
//!   use the same addresses, so that a step may offer memory, is a property of the FIFO
//!   ([`ConnInfo::shares_address_space`]).
//! * [`ConnInfo::MessageSend`] / [`ConnInfo::MessageRecv`]: a network carries the steps; the
//!   transport implements [`MessageSend`] / [`MessageRecv`].

use std::fmt;
use std::ptr::NonNull;
use std::time::Instant;

use crate::doorbell::Doorbell;
use crate::fifo::{FifoReceiver, FifoSender};
use crate::net::Transfer;
use crate::{Error, ErrorKind, PackedSignature, Result};

/// One connected end of an edge.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnInfo {
    /// Sending end of a step FIFO in memory that both ends can address.
    MemorySend(FifoSender),
    /// Receiving end of a step FIFO in memory that both ends can address.
    MemoryRecv(FifoReceiver),
    /// Sending end of a connection that carries whole steps as messages.
    MessageSend(Box<dyn MessageSend>),
    /// Receiving end of a connection that carries whole steps as messages.
    MessageRecv(Box<dyn MessageRecv>),
}

impl ConnInfo {
    /// Whether both ends are threads of one process and steps may [offer](crate::fifo::Offers)
    /// memory by its address.
    #[must_use]
    pub const fn shares_address_space(&self) -> bool {
        match self {
            Self::MemorySend(end) => end.carries_offers(),
            Self::MemoryRecv(end) => end.carries_offers(),
            Self::MessageSend(_) | Self::MessageRecv(_) => false,
        }
    }
}

/// What travels beside a step's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepHeader {
    /// Length of the payload; at most the slot's capacity.
    pub bytes: usize,
    /// Hash of the operation's signature.
    pub signature_hash: u32,
    /// The whole signature, for the text of a mismatch.
    pub signature: PackedSignature,
}

/// A slot that the sender may fill.
///
/// The memory belongs to the connection and stays valid until the step is published or the
/// connection is dropped. For shared memory the peer can write to it at any time, so no Rust
/// reference to its contents may be made.
#[derive(Clone, Copy, Debug)]
pub struct SlotWrite {
    /// Start of the payload.
    pub data: NonNull<u8>,
    /// Capacity of the slot.
    pub capacity_bytes: usize,
}

/// A step that has arrived.
///
/// The payload belongs to the connection and stays valid until the step is consumed. For shared
/// memory the peer can still write to it, so it is only read through raw pointers, once.
#[derive(Clone, Copy, Debug)]
pub struct StepRead {
    /// Start of the payload.
    pub data: NonNull<u8>,
    /// Length, hash and signature. `bytes` was checked against the slot's capacity.
    pub header: StepHeader,
}

/// Whether [`MessageSend::arm`] or [`MessageRecv::arm`] may be followed by sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// The doorbell will be rung when the end can make progress.
    WillRing,
    /// The end can make progress now: try again instead of sleeping.
    Ready,
}

/// Sending end of a message connection.
///
/// # Contract
///
/// * Used by one thread at a time. No method blocks.
/// * Slots are handed out in order; at most [`MessageSend::slots`] steps occupy memory of this
///   process (back-pressure). What the network itself buffers comes on top and is bounded.
/// * [`MessageSend::progress`] is called whenever somebody waits; an implementation that has a
///   progress engine may do the work of other connections there too.
/// * An error is final for the connection; every later call repeats it.
/// * Dropping it returns at once. Steps that were published are still sent for a while by the
///   transport's engine; a program that is about to exit calls [`MessageSend::quiesce`] first.
///   Memory that the network may still read is not handed back: it is leaked and counted.
pub trait MessageSend: Send + fmt::Debug {
    /// Number of slots.
    fn slots(&self) -> usize;

    /// The next slot to fill, or `None` while all slots are on their way.
    ///
    /// Calling it again before [`MessageSend::publish`] yields the same slot.
    ///
    /// # Errors
    ///
    /// The connection's failure.
    fn try_slot(&mut self) -> Result<Option<SlotWrite>>;

    /// The slot `ahead` places behind the one that [`MessageSend::try_slot`] yields.
    ///
    /// For senders that fill slots asynchronously, as from a device's memory: several can be under
    /// way at a time, and each is published in its turn when it is full. A slot is handed out only
    /// when all slots before it are. `None` while it is on its way, and always for connections that
    /// hand out one slot at a time (the default).
    ///
    /// # Errors
    ///
    /// The connection's failure.
    fn try_slot_ahead(&mut self, ahead: usize) -> Result<Option<SlotWrite>> {
        if ahead == 0 {
            return self.try_slot();
        }
        Ok(None)
    }

    /// Sends the first slot that was handed out and not published.
    ///
    /// # Errors
    ///
    /// The connection's failure; [`ErrorKind::InvalidArgument`](crate::ErrorKind) if no slot was
    /// taken or the header's length exceeds its capacity.
    fn publish(&mut self, header: StepHeader) -> Result<()>;

    /// Moves data as far as possible without blocking; whether anything moved.
    ///
    /// # Errors
    ///
    /// The connection's failure.
    fn progress(&mut self) -> Result<bool>;

    /// Asks for `doorbell` to be rung when a slot becomes free or the connection fails.
    ///
    /// # Errors
    ///
    /// The connection's failure.
    fn arm(&mut self, doorbell: &Doorbell) -> Result<Armed>;

    /// Whether [`MessageSend::send_direct`] can be used; the same answer as that of the other end.
    fn supports_direct(&self) -> bool {
        false
    }

    /// Sends what the network takes of `data`, without slots.
    ///
    /// Called with the same data until the answer is [`Transfer::Done`], and nothing else is published
    /// in between. Each call copies and keeps no pointer, so the memory may be only borrowed. The
    /// transfer has a place in the order of the edge behind the steps published before. It meets
    /// the peer's [`MessageRecv::recv_direct`] of the same length; a step should have told the
    /// peer of it, since a transfer carries no signature.
    ///
    /// # Errors
    ///
    /// The connection's failure; [`ErrorKind::Unsupported`](crate::ErrorKind) unless
    /// [`MessageSend::supports_direct`] says yes.
    fn send_direct(&mut self, _data: &[u8]) -> Result<Transfer> {
        Err(no_direct())
    }

    /// Asks for `doorbell` to be rung when the direct transfer under way can go on or the
    /// connection fails.
    ///
    /// # Errors
    ///
    /// As for [`MessageSend::send_direct`].
    fn arm_direct(&mut self, _doorbell: &Doorbell) -> Result<Armed> {
        Err(no_direct())
    }

    /// Waits until everything published has left this process's memory; whether it has.
    ///
    /// Blocks until `deadline` at most.
    fn quiesce(&mut self, deadline: Instant) -> bool;
}

/// Receiving end of a message connection.
///
/// # Contract
///
/// As for [`MessageSend`]; the receiving end posts buffers by itself and gives each one back to
/// the network when its step was consumed, so memory is bounded by [`MessageRecv::slots`] steps.
pub trait MessageRecv: Send + fmt::Debug {
    /// Number of slots.
    fn slots(&self) -> usize;

    /// The next step, or `None` if it has not arrived.
    ///
    /// Calling it again before [`MessageRecv::consume`] yields the same step.
    ///
    /// # Errors
    ///
    /// The connection's failure, once every step that arrived before it was consumed.
    fn try_step(&mut self) -> Result<Option<StepRead>>;

    /// The step `ahead` places behind the one that [`MessageRecv::try_step`] yields.
    ///
    /// For receivers that copy asynchronously, as to a device's memory. A step is handed out only
    /// when all steps before it are. `None` if it has not arrived, and always for connections that
    /// hand out one step at a time (the default).
    ///
    /// # Errors
    ///
    /// As for [`MessageRecv::try_step`].
    fn try_step_ahead(&mut self, ahead: usize) -> Result<Option<StepRead>> {
        if ahead == 0 {
            return self.try_step();
        }
        Ok(None)
    }

    /// Gives the first step that was handed out and not consumed back to the network.
    ///
    /// # Errors
    ///
    /// The connection's failure; [`ErrorKind::InvalidArgument`](crate::ErrorKind) if no step was
    /// taken.
    fn consume(&mut self) -> Result<()>;

    /// Moves data as far as possible without blocking; whether anything moved.
    ///
    /// # Errors
    ///
    /// The connection's failure.
    fn progress(&mut self) -> Result<bool>;

    /// Asks for `doorbell` to be rung when a step arrives or the connection fails.
    ///
    /// # Errors
    ///
    /// The connection's failure.
    fn arm(&mut self, doorbell: &Doorbell) -> Result<Armed>;

    /// Whether [`MessageRecv::recv_direct`] can be used; the same answer as that of the other end.
    fn supports_direct(&self) -> bool {
        false
    }

    /// Receives what has come of a direct transfer into `data`.
    ///
    /// As for [`MessageSend::send_direct`]; every step before the transfer was consumed.
    ///
    /// # Errors
    ///
    /// The connection's failure, which a transfer of another length is;
    /// [`ErrorKind::Unsupported`](crate::ErrorKind) unless [`MessageRecv::supports_direct`] says
    /// yes.
    fn recv_direct(&mut self, _data: &mut [u8]) -> Result<Transfer> {
        Err(no_direct())
    }

    /// Asks for `doorbell` to be rung when the direct transfer can go on or the connection fails.
    ///
    /// # Errors
    ///
    /// As for [`MessageRecv::recv_direct`].
    fn arm_direct(&mut self, _doorbell: &Doorbell) -> Result<Armed> {
        Err(no_direct())
    }

    /// Waits until the network can no longer write to this end's memory; whether it cannot.
    ///
    /// Blocks until `deadline` at most.
    fn quiesce(&mut self, deadline: Instant) -> bool;
}

fn no_direct() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "this edge has no direct transfers; use its slots",
    )
}
