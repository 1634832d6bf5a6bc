//! The registered slots of one end. All raw memory access of the crate is here.
//!
//! # Contract
//!
//! A slot is a header and `step_bytes` of payload, one behind the other, so that a step is one
//! message. The pool knows nothing of who may use a slot: its callers keep that in counters, which
//! is why posting a slot is `unsafe`.

use std::ptr::NonNull;
use std::sync::Arc;

use comm_core::device::{ALIGNMENT_BYTES, Device};
use comm_core::net::{MrSlice, NetBackend, NetRecv, NetSend, Region, Request};
use comm_core::{Error, ErrorKind, Result};

use crate::header::HEADER_BYTES;
use crate::stats::Counters;

/// Slots of one end.
pub(crate) const SLOTS: usize = 8;

/// The largest step size.
const MAX_STEP_BYTES: usize = 1 << 30;

/// 8 slots in one registered piece of host memory.
#[derive(Debug)]
pub(crate) struct SlotPool {
    slots: [MrSlice; SLOTS],
    step_bytes: usize,
    total_bytes: usize,
    counters: Arc<Counters>,
}

impl SlotPool {
    /// Allocates the slots from `memory` and registers them with a device of the backend.
    pub(crate) fn new(
        backend: &dyn NetBackend,
        device: usize,
        memory: &dyn Device,
        step_bytes: usize,
        counters: Arc<Counters>,
    ) -> Result<Self> {
        let longest = backend
            .devices()
            .get(device)
            .map_or(0, |device| device.max_message_bytes);
        let message_bytes = HEADER_BYTES.saturating_add(step_bytes);
        if step_bytes == 0 || step_bytes > MAX_STEP_BYTES || message_bytes > longest {
            return Err(Error::new(
                ErrorKind::InvalidConfiguration,
                "the network cannot carry steps of this size; choose another step size",
            )
            .with("step_bytes", step_bytes)
            .with(
                "max_bytes",
                longest.saturating_sub(HEADER_BYTES).min(MAX_STEP_BYTES),
            ));
        }
        // Whole cache lines, so that neighbours do not share one.
        let stride = message_bytes.next_multiple_of(HEADER_BYTES);
        let total_bytes = (stride * SLOTS).next_multiple_of(ALIGNMENT_BYTES);
        let memory = memory.alloc_pinned(total_bytes)?;
        if !memory.kind().is_host() {
            return Err(Error::new(
                ErrorKind::Internal,
                "pinned memory must be host memory",
            ));
        }
        let region = backend.register(device, Region::new(memory))?;
        let mut slots = Vec::with_capacity(SLOTS);
        for number in 0..SLOTS {
            slots.push(region.slice(number * stride, message_bytes)?);
        }
        let slots = slots
            .try_into()
            .map_err(|_| Error::new(ErrorKind::Internal, "a pool has another number of slots"))?;
        counters.allocated(total_bytes);
        Ok(Self {
            slots,
            step_bytes,
            total_bytes,
            counters,
        })
    }

    /// Capacity of a slot's payload.
    pub(crate) const fn step_bytes(&self) -> usize {
        self.step_bytes
    }

    fn slot(&self, number: u64) -> &MrSlice {
        &self.slots[(number % SLOTS as u64) as usize]
    }

    /// Start of the payload of slot `number % 8`.
    pub(crate) fn payload(&self, number: u64) -> NonNull<u8> {
        // SAFETY: the slot is longer than a header.
        unsafe { self.slot(number).as_ptr().add(HEADER_BYTES) }
    }

    /// Writes a header.
    ///
    /// # Safety
    ///
    /// No request is outstanding for the slot.
    pub(crate) unsafe fn write_header(&self, number: u64, header: &[u8; HEADER_BYTES]) {
        let line = self.slot(number).as_ptr().cast();
        // SAFETY: a slot begins with the header, host memory aligned to 64 bytes, and by the
        // caller's promise the network does not access it.
        unsafe { line.write(*header) };
    }

    /// Reads a header.
    ///
    /// # Safety
    ///
    /// No request is outstanding for the slot.
    pub(crate) unsafe fn read_header(&self, number: u64) -> [u8; HEADER_BYTES] {
        let line = self.slot(number).as_ptr().cast();
        // SAFETY: as in `write_header`.
        unsafe { line.read() }
    }

    /// Sends header and payload of a slot.
    ///
    /// # Safety
    ///
    /// Until the request is done or the connection has quiesced, nobody writes to the slot.
    pub(crate) unsafe fn isend(
        &self,
        end: &mut dyn NetSend,
        number: u64,
        payload_bytes: usize,
    ) -> Result<Option<Request>> {
        let message = self.slot(number).prefix(HEADER_BYTES + payload_bytes)?;
        // SAFETY: the caller's promise is the same.
        unsafe { end.isend(&message) }
    }

    /// Receives into a slot.
    ///
    /// # Safety
    ///
    /// Until the request is done or the connection has quiesced, nobody accesses the slot.
    pub(crate) unsafe fn irecv(
        &self,
        end: &mut dyn NetRecv,
        number: u64,
    ) -> Result<Option<Request>> {
        // SAFETY: the caller's promise is the same.
        unsafe { end.irecv(self.slot(number)) }
    }

    /// Leaks the slots, since the network may still touch them, and counts them.
    pub(crate) fn quarantine(self) {
        self.counters.quarantined(self.total_bytes);
        std::mem::forget(self);
    }
}

impl Drop for SlotPool {
    fn drop(&mut self) {
        self.counters.freed(self.total_bytes);
    }
}
