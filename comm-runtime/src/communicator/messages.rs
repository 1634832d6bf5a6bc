//! Messages between two ranks, blocking and asynchronous.
//!
//! The k-th send from rank a to rank b meets the k-th receive of b from a. Both pass the same
//! element type and number of elements; a difference is an error that names both.

use comm_core::fifo::{Arrived, SMALL_BYTES};
use comm_core::tensor::{element_bytes, element_bytes_mut};
use comm_core::{Element, Rank, Result, Tensor, TensorMut, Work};

use super::Communicator;
use super::memory::check_tensor;
use crate::call::{Call, Message, message_signature};
use crate::edge::ends::RecvEnd;
use crate::lane::{Driving, LaneKey};
use crate::operation::Buffers;

impl Communicator {
    /// Sends `buffer` to `peer`; returns when the buffer is reusable.
    ///
    /// That does not mean that the message was received. Blocks while the edge is full: up to
    /// eight steps (see [`PlanConfig::step_bytes`](crate::PlanConfig)) are on their way before the
    /// peer receives.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](comm_core::ErrorKind) if there is no such rank, and the
    /// communicator's failure.
    #[inline]
    pub fn send<T: Element>(&self, buffer: &[T], peer: Rank) -> Result<()> {
        let len_bytes = size_of_val(buffer);
        if len_bytes <= SMALL_BYTES
            && let Some(lane) = self.core.lane(LaneKey::Send(peer))
            && let Some(mut driving) = lane.try_acquire_idle()
        {
            let bytes = element_bytes(buffer);
            let signature = message_signature(driving.next_sequence, T::DTYPE, buffer.len());
            // An error is met and treated by the general path.
            if self.core.is_open()
                && let Some(end) = driving.ends.send.first_mut()
                && let Some(fifo) = end.fifo()
                && matches!(fifo.try_send_small(bytes, signature.hash()), Ok(true))
            {
                lane.history.record(&signature);
                driving.next_sequence += 1;
                self.finish_fast(LaneKey::Send(peer), driving);
                return Ok(());
            }
            self.core.leave(lane, driving);
        }
        let input = buffer.as_ptr().cast::<u8>();
        let buffers = Buffers {
            input,
            output: std::ptr::null_mut(),
        };
        self.message::<T>(peer, true, buffer.len(), buffers)
    }

    /// Receives the next message from `peer` into `buffer`, which it fills exactly.
    ///
    /// Blocks until the message is there.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Mismatch`](comm_core::ErrorKind) if the message has another element type or
    /// length, [`ErrorKind::InvalidArgument`](comm_core::ErrorKind) if there is no such rank, and
    /// the communicator's failure.
    #[inline]
    pub fn recv<T: Element>(&self, buffer: &mut [T], peer: Rank) -> Result<()> {
        let len_bytes = size_of_val(buffer);
        if len_bytes <= SMALL_BYTES
            && let Some(lane) = self.core.lane(LaneKey::Recv(peer))
            && let Some(mut driving) = lane.try_acquire_idle()
        {
            let signature = message_signature(driving.next_sequence, T::DTYPE, buffer.len());
            let hash = signature.hash();
            let bytes = element_bytes_mut(buffer);
            if self.core.is_open() && self.recv_small(&mut driving, hash, bytes) {
                lane.history.record(&signature);
                driving.next_sequence += 1;
                self.finish_fast(LaneKey::Recv(peer), driving);
                return Ok(());
            }
            self.core.leave(lane, driving);
        }
        let output = buffer.as_mut_ptr().cast::<u8>();
        let buffers = Buffers {
            input: std::ptr::null(),
            output,
        };
        self.message::<T>(peer, false, buffer.len(), buffers)
    }

    /// Takes a small step if one arrives while the policy allows to spin; anything unusual, errors
    /// included, is left to the general path.
    #[inline]
    fn recv_small(&self, driving: &mut Driving<'_>, hash: u32, bytes: &mut [u8]) -> bool {
        let Some(fifo) = driving.ends.recv.first_mut().and_then(RecvEnd::fifo) else {
            return false;
        };
        for _ in 0..=self.core.policy.spins {
            match fifo.try_step() {
                Ok(Some(Arrived::Small { signature_hash })) if signature_hash == hash => {
                    if fifo.read_small(bytes).is_err() {
                        return false;
                    }
                    fifo.consume();
                    return true;
                }
                Ok(None) => std::hint::spin_loop(),
                Ok(Some(_)) | Err(_) => return false,
            }
        }
        false
    }

    #[inline]
    fn finish_fast(&self, key: LaneKey, driving: Driving<'_>) {
        self.core.note_user();
        if let Some(lane) = self.core.lane(key) {
            self.core.leave(lane, driving);
        }
    }

    fn message<T: Element>(
        &self,
        peer: Rank,
        sends: bool,
        count: usize,
        buffers: Buffers,
    ) -> Result<()> {
        let message = Message {
            peer,
            sends,
            dtype: T::DTYPE,
            count,
            buffers,
        };
        self.core
            .run_blocking(lane_of(&message), Call::Message(message))
    }

    /// Sends a tensor; the handle is done when the tensor's memory is reusable.
    ///
    /// Returns at once. Runs after everything that was sent to `peer` before, also if the handle
    /// is dropped.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](comm_core::ErrorKind) if there is no such rank or the tensor
    /// is not contiguous host memory, [`ErrorKind::Poisoned`](comm_core::ErrorKind) if the
    /// communicator has failed; what goes wrong later is the handle's result.
    pub fn send_async(&self, tensor: &Tensor, peer: Rank) -> Result<Work<()>> {
        check_tensor(
            "send",
            tensor.is_contiguous(),
            tensor.memory_kind().is_host(),
        )?;
        let (dtype, count, input) = (tensor.dtype(), tensor.element_count(), tensor.as_ptr());
        let buffers = Buffers {
            input,
            output: std::ptr::null_mut(),
        };
        let message = Message {
            peer,
            sends: true,
            dtype,
            count,
            buffers,
        };
        // The clone keeps the memory alive; nobody can write to a shared tensor.
        self.submit_work(
            lane_of(&message),
            Call::Message(message),
            tensor.clone(),
            drop,
        )
    }

    /// Receives the next message from `peer` into a tensor; the handle yields the tensor.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::send_async`].
    pub fn recv_async(&self, mut tensor: TensorMut, peer: Rank) -> Result<Work<TensorMut>> {
        check_tensor(
            "recv",
            tensor.is_contiguous(),
            tensor.memory_kind().is_host(),
        )?;
        let buffers = Buffers {
            input: std::ptr::null(),
            output: tensor.as_mut_ptr(),
        };
        let (dtype, count) = (tensor.dtype(), tensor.element_count());
        let message = Message {
            peer,
            sends: false,
            dtype,
            count,
            buffers,
        };
        self.submit_work(
            lane_of(&message),
            Call::Message(message),
            tensor,
            |tensor| tensor,
        )
    }
}

const fn lane_of(message: &Message) -> LaneKey {
    if message.sends {
        LaneKey::Send(message.peer)
    } else {
        LaneKey::Recv(message.peer)
    }
}
