//! Receiving messages.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use comm_core::{Error, ErrorKind, Rank, Result, TensorLayout, TensorMut, Work};
use comm_runtime::{Arrived, FrameHead, FrameOptions};
use serde::de::DeserializeOwned;

use super::{CollectiveGroup, DIRECT, Inner};
use crate::compression::Packed;
use crate::message::{MessageKind, Received, announced, check_contiguous, decode};
use crate::options::{Placement, RecvOptions};
use crate::pool::ReceivePool;

impl CollectiveGroup {
    /// Receives the next message of the other member.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Mismatch`] if the message has arrived but is not a `T`; later messages can be
    /// received. The failure of this direction, of the group or of its join otherwise.
    pub fn recv<T: DeserializeOwned>(&self) -> Result<Received<T>> {
        self.recv_with(RecvOptions::new())
    }

    /// As [`CollectiveGroup::recv`], with options.
    ///
    /// # Errors
    ///
    /// As for [`CollectiveGroup::recv`].
    pub fn recv_with<T: DeserializeOwned>(&self, options: RecvOptions) -> Result<Received<T>> {
        let peer = self.peer(options.from)?;
        let destination = Self::destination(options.placement);
        self.recv_frame(peer, destination, frame_options(options.timeout))
    }

    /// Receives the next message of the other member into these buffers, one for each different
    /// tensor of the message in the order in which they are serialised, of its element type and
    /// shape; the tensors of the message are the buffers.
    ///
    /// [`Tensor::try_into_mut`](comm_core::Tensor::try_into_mut) gives a buffer back for the next
    /// message.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if a buffer is not contiguous host memory; nothing was received
    /// then. As for [`CollectiveGroup::recv`] otherwise; buffers of other types or shapes than those
    /// of the message are a [`ErrorKind::Mismatch`] that ends this direction.
    pub fn recv_into<T: DeserializeOwned>(&self, buffers: Vec<TensorMut>) -> Result<Received<T>> {
        let peer = self.peer(None)?;
        let destination = self.buffers(buffers)?;
        self.recv_frame(peer, destination, FrameOptions::new())
    }

    /// As [`CollectiveGroup::recv_into`], asynchronously.
    ///
    /// # Errors
    ///
    /// As for [`CollectiveGroup::recv_into`]; what goes wrong later is the handle's result.
    pub fn recv_into_async<T: DeserializeOwned + Send + 'static>(
        &self,
        buffers: Vec<TensorMut>,
    ) -> Result<Work<Received<T>>> {
        let peer = self.peer(None)?;
        let destination = self.buffers(buffers)?;
        self.submit_recv(peer, destination, FrameOptions::new())
    }

    /// Receives the next message of the other member; the handle yields it.
    ///
    /// # Errors
    ///
    /// As for [`CollectiveGroup::recv`]; what goes wrong later is the handle's result.
    pub fn recv_async<T: DeserializeOwned + Send + 'static>(&self) -> Result<Work<Received<T>>> {
        self.recv_async_with(RecvOptions::new())
    }

    /// As [`CollectiveGroup::recv_async`], with options.
    ///
    /// # Errors
    ///
    /// As for [`CollectiveGroup::recv_async`].
    pub fn recv_async_with<T: DeserializeOwned + Send + 'static>(
        &self,
        options: RecvOptions,
    ) -> Result<Work<Received<T>>> {
        let peer = self.peer(options.from)?;
        let destination = Self::destination(options.placement);
        self.submit_recv(peer, destination, frame_options(options.timeout))
    }

    /// Receives on the calling thread if the group has come together.
    fn recv_frame<T: DeserializeOwned>(
        &self,
        peer: Rank,
        destination: Destination,
        options: FrameOptions,
    ) -> Result<Received<T>> {
        let token = self.token(peer);
        let (open, arriving) = self.arriving(destination);
        let arrived = match self.inner.link.ready() {
            Some(communicator) => communicator.recv_frame_blocking(peer, open, &options),
            None => self
                .submit(move |communicator| communicator.recv_frame(peer, open, &options))
                .and_then(|work| work.take()),
        };
        arrived
            .and_then(|arrived| arriving.message(arrived))
            .map_err(|error| token.explain(error))
    }

    fn submit_recv<T: DeserializeOwned + Send + 'static>(
        &self,
        peer: Rank,
        destination: Destination,
        options: FrameOptions,
    ) -> Result<Work<Received<T>>> {
        let token = self.token(peer);
        let (open, arriving) = self.arriving(destination);
        let work = self
            .submit(move |communicator| communicator.recv_frame(peer, open, &options))
            .map_err(|error| token.explain(error))?;
        Ok(work.map_later(move |arrived, completer| {
            let group = Arc::clone(&arriving.group);
            let is_packed = arrived.is_ok() && arriving.packed().is_some();
            let finish = move || {
                let message = arrived.and_then(|arrived| arriving.message(arrived));
                completer.complete(message.map_err(|error| token.explain(error)));
            };
            // This thread drives the lane, which has other messages to receive.
            if is_packed {
                group.compression.later(finish);
            } else {
                finish();
            }
        }))
    }

    /// What provides the memory of the next message, and what makes the message of it.
    fn arriving(
        &self,
        destination: Destination,
    ) -> (
        impl FnOnce(&FrameHead<'_>) -> Result<Vec<TensorMut>> + Send + 'static,
        Arc<Arriving>,
    ) {
        let arriving = Arc::new(Arriving {
            group: Arc::clone(&self.inner),
            is_pooled: matches!(destination, Destination::Pool),
            packed: Mutex::default(),
        });
        let opening = Arc::clone(&arriving);
        let open = move |head: &FrameHead<'_>| destination.open(head, &opening);
        (open, arriving)
    }

    fn destination(placement: Placement) -> Destination {
        match placement {
            Placement::Pool => Destination::Pool,
            Placement::Allocator(allocator) => Destination::Allocator(allocator),
        }
    }

    fn buffers(&self, buffers: Vec<TensorMut>) -> Result<Destination> {
        for buffer in &buffers {
            check_buffer(buffer).map_err(|error| self.inner.of_group(error))?;
        }
        Ok(Destination::Buffers(buffers))
    }
}

pub(super) fn frame_options(timeout: Option<std::time::Duration>) -> FrameOptions {
    match timeout {
        Some(timeout) => FrameOptions::new().timeout(timeout),
        None => FrameOptions::new(),
    }
}

/// Whether a buffer can be received into.
pub(super) fn check_buffer(buffer: &TensorMut) -> Result<()> {
    if !buffer.memory_kind().is_host() {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            "messages can be received into host memory only; copy them to the device afterwards",
        )
        .with("memory", buffer.memory_kind()));
    }
    check_contiguous(
        buffer.is_contiguous(),
        buffer.shape(),
        buffer.layout().strides(),
    )
}

/// Where the tensors of one message go.
enum Destination {
    Pool,
    Allocator(crate::options::Allocator),
    Buffers(Vec<TensorMut>),
}

impl Destination {
    /// Looks at the head of a frame and provides memory for it.
    fn open(self, head: &FrameHead<'_>, arriving: &Arriving) -> Result<Vec<TensorMut>> {
        if head.tag == DIRECT {
            return Err(Error::new(
                ErrorKind::Mismatch,
                "a tensor that was sent with send_tensor met recv; pair send_tensor with \
                 recv_tensor, and send with recv",
            ));
        }
        MessageKind::from_wire(head.tag)?;
        let announced = announced(head.header, head.segment_bytes)?;
        let has_body = usize::from(announced.has_body);
        let (tensors, body) = announced
            .layouts
            .split_at(announced.layouts.len() - has_body);
        let Inner {
            pool, compression, ..
        } = &*arriving.group;
        let mut memory = self.provide(tensors, pool)?;
        for layout in body {
            // Large, and gone as soon as the message is put together.
            memory.push(match arriving.is_pooled {
                true => pool.provide(layout)?,
                false => TensorMut::zeros(layout.dtype(), layout.shape())?,
            });
        }
        if let Some(blocks) = announced.blocks {
            *arriving.packed() = Some(compression.set_aside(blocks, &mut memory, pool)?);
        }
        Ok(memory)
    }

    /// Memory for tensors with these layouts.
    fn provide(self, tensors: &[TensorLayout], pool: &ReceivePool) -> Result<Vec<TensorMut>> {
        match self {
            Self::Pool => tensors.iter().map(|layout| pool.provide(layout)).collect(),
            Self::Allocator(allocate) => tensors
                .iter()
                .map(|layout| {
                    let memory = allocate(layout.dtype(), layout.shape())?;
                    check_buffer(&memory)?;
                    fits(&memory, layout)?;
                    Ok(memory)
                })
                .collect(),
            Self::Buffers(buffers) => {
                if buffers.len() != tensors.len() {
                    return Err(Error::new(
                        ErrorKind::Mismatch,
                        "the message has another number of tensors than there are buffers for it",
                    )
                    .with("tensors", tensors.len())
                    .with("buffers", buffers.len()));
                }
                for (buffer, layout) in buffers.iter().zip(tensors) {
                    fits(buffer, layout)?;
                }
                Ok(buffers)
            }
        }
    }
}

/// Whether a buffer has the element type and shape of the tensor that is to go there.
pub(super) fn fits(buffer: &TensorMut, tensor: &TensorLayout) -> Result<()> {
    if buffer.dtype() == tensor.dtype() && buffer.shape() == tensor.shape() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Mismatch,
        format!(
            "a tensor of {} {:?} was sent, the buffer for it holds {} {:?}",
            tensor.dtype(),
            tensor.shape(),
            buffer.dtype(),
            buffer.shape()
        ),
    ))
}

/// What is known of one message between its head and its end.
struct Arriving {
    group: Arc<Inner>,
    /// Whether the tensors' memory is the pool's.
    is_pooled: bool,
    /// Where compressed tensors go when they have arrived.
    packed: Mutex<Option<Packed>>,
}

impl Arriving {
    fn packed(&self) -> MutexGuard<'_, Option<Packed>> {
        self.packed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The message of a frame that has arrived; decompresses it if it is compressed.
    fn message<T: DeserializeOwned>(&self, arrived: Arrived) -> Result<Received<T>> {
        let kind = MessageKind::from_wire(arrived.tag)?;
        let mut segments = arrived.segments;
        let (pool, compression) = (&self.group.pool, &self.group.compression);
        // The lock is not held while it is unpacked.
        let packed = self.packed().take();
        if let Some(packed) = packed {
            compression.unpack(packed, &mut segments, pool)?;
        }
        let segments = segments.into_iter().map(TensorMut::freeze);
        let segments = segments.inspect(|tensor| {
            if self.is_pooled {
                pool.adopt(tensor);
            }
        });
        decode(kind, &arrived.header, segments.collect())
    }
}
