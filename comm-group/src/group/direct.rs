//! One tensor without any message around it: `send_tensor` and `recv_tensor`.
//!
//! # Contract
//!
//! * They have their places in the same order as `send` and `recv`, but only go with each other.
//! * Element type and shape are compared before anything is written; a difference ends this
//!   direction between the two workers, on both sides.

use comm_core::{Error, ErrorKind, Result, Tensor, TensorMut, Work};
use comm_runtime::{Arrived, FrameHead, FrameOptions};

use super::recv::{check_buffer, fits, frame_options};
use super::{CollectiveGroup, DIRECT};
use crate::message::wire::{Reader, Writer};
use crate::message::{Encoded, MessageKind, check_tensor};
use crate::options::{RecvOptions, SendOptions};

impl CollectiveGroup {
    /// Sends a tensor to the other member, which receives it with
    /// [`CollectiveGroup::recv_tensor`]; returns when it has.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the tensor is not contiguous: nothing was sent then. The
    /// failure of this direction, of the group or of its join otherwise.
    pub fn send_tensor(&self, tensor: &Tensor) -> Result<()> {
        self.send_tensor_with(tensor, &SendOptions::new())
    }

    /// As [`CollectiveGroup::send_tensor`], with options, of which a piggyback cannot be one.
    ///
    /// # Errors
    ///
    /// As for [`CollectiveGroup::send_tensor`].
    pub fn send_tensor_with(&self, tensor: &Tensor, options: &SendOptions) -> Result<()> {
        let peer = self.peer(options.to)?;
        let encoded = self.direct(tensor, options)?;
        self.send_frame(peer, DIRECT, encoded, options)
    }

    /// Sends a tensor to the other member; the handle is done when it has been received.
    ///
    /// # Errors
    ///
    /// As for [`CollectiveGroup::send_tensor`]; what goes wrong later is the handle's result.
    pub fn send_tensor_async(&self, tensor: &Tensor) -> Result<Work<()>> {
        self.send_tensor_async_with(tensor, &SendOptions::new())
    }

    /// As [`CollectiveGroup::send_tensor_async`], with options, of which a piggyback cannot be one.
    ///
    /// # Errors
    ///
    /// As for [`CollectiveGroup::send_tensor_async`].
    pub fn send_tensor_async_with(
        &self,
        tensor: &Tensor,
        options: &SendOptions,
    ) -> Result<Work<()>> {
        let peer = self.peer(options.to)?;
        let encoded = self.direct(tensor, options)?;
        self.submit_frame(peer, DIRECT, encoded, options)
    }

    /// Receives a tensor from the other member into `tensor`, which has its element type and shape.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the tensor is not contiguous host memory; nothing was
    /// received then. The failure of this direction, of the group or of its join otherwise; a tensor
    /// of another type or shape is such a failure.
    pub fn recv_tensor(&self, tensor: TensorMut) -> Result<TensorMut> {
        self.recv_tensor_with(tensor, &RecvOptions::new())
    }

    /// As [`CollectiveGroup::recv_tensor`], with options, of which an allocator has no effect.
    ///
    /// # Errors
    ///
    /// As for [`CollectiveGroup::recv_tensor`].
    pub fn recv_tensor_with(&self, tensor: TensorMut, options: &RecvOptions) -> Result<TensorMut> {
        let peer = self.peer(options.from)?;
        check_buffer(&tensor).map_err(|error| self.inner.of_group(error))?;
        let frame_options = frame_options(options.timeout);
        let Some(communicator) = self.inner.link.ready() else {
            return self.submit_direct(peer, tensor, frame_options)?.take();
        };
        let token = self.token(peer);
        let open = move |head: &FrameHead<'_>| open(head, tensor);
        communicator
            .recv_frame_blocking(peer, open, &frame_options)
            .and_then(filled)
            .map_err(|error| token.explain(error))
    }

    /// Receives a tensor from the other member into `tensor`; the handle gives it back.
    ///
    /// # Errors
    ///
    /// As for [`CollectiveGroup::recv_tensor`]; what goes wrong later is the handle's result.
    pub fn recv_tensor_async(&self, tensor: TensorMut) -> Result<Work<TensorMut>> {
        self.recv_tensor_async_with(tensor, &RecvOptions::new())
    }

    /// As [`CollectiveGroup::recv_tensor_async`], with options, of which an allocator has no effect.
    ///
    /// # Errors
    ///
    /// As for [`CollectiveGroup::recv_tensor_async`].
    pub fn recv_tensor_async_with(
        &self,
        tensor: TensorMut,
        options: &RecvOptions,
    ) -> Result<Work<TensorMut>> {
        let peer = self.peer(options.from)?;
        check_buffer(&tensor).map_err(|error| self.inner.of_group(error))?;
        self.submit_direct(peer, tensor, frame_options(options.timeout))
    }

    fn submit_direct(
        &self,
        peer: comm_core::Rank,
        tensor: TensorMut,
        options: FrameOptions,
    ) -> Result<Work<TensorMut>> {
        let token = self.token(peer);
        let open = move |head: &FrameHead<'_>| open(head, tensor);
        match self.submit(move |communicator| communicator.recv_frame(peer, open, &options)) {
            Ok(work) => Ok(work.map(move |arrived| {
                arrived
                    .and_then(filled)
                    .map_err(|error| token.explain(error))
            })),
            Err(error) => Err(token.explain(error)),
        }
    }

    /// The frame of a tensor alone.
    fn direct(&self, tensor: &Tensor, options: &SendOptions) -> Result<Encoded> {
        let encode = || {
            if options.piggyback.is_some() {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "send_tensor carries no piggyback; use send",
                ));
            }
            let tensor = if options.pack {
                tensor.pack()?
            } else {
                tensor.clone()
            };
            check_tensor(&tensor)?;
            let mut header = Writer::with_capacity(16);
            header.layout(tensor.dtype(), tensor.shape());
            Ok(Encoded {
                kind: MessageKind::Tensor,
                header: header.finish().into(),
                segments: vec![tensor],
            })
        };
        encode().map_err(|error| self.inner.of_group(error))
    }
}

/// Looks at the head of a frame and lets it into `tensor` if it belongs there.
fn open(head: &FrameHead<'_>, tensor: TensorMut) -> Result<Vec<TensorMut>> {
    if head.tag != DIRECT {
        let kind = MessageKind::from_wire(head.tag)?;
        return Err(Error::new(
            ErrorKind::Mismatch,
            format!(
                "a message (of kind {kind}) that was sent with send met recv_tensor; pair send with \
                 recv, and send_tensor with recv_tensor"
            ),
        ));
    }
    let mut reader = Reader::new(head.header);
    let layout = reader.layout()?;
    reader.end()?;
    fits(&tensor, &layout)?;
    Ok(vec![tensor])
}

fn filled(mut arrived: Arrived) -> Result<TensorMut> {
    arrived.segments.pop().ok_or_else(|| {
        Error::new(
            ErrorKind::Internal,
            "a tensor arrived without its destination",
        )
    })
}
