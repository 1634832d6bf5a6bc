//! Sending messages.

use comm_core::{Rank, Result, Work};
use comm_runtime::{Frame, FrameOptions, FrameRef};
use serde::Serialize;

use super::CollectiveGroup;
use crate::message::{Encoded, encode};
use crate::options::SendOptions;

impl CollectiveGroup {
    /// Sends a message to the other member; returns when it has been received.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](comm_core::ErrorKind) if the message does not serialise or a
    /// tensor in it is not contiguous: nothing was sent then. The failure of this direction, of the
    /// group or of its join otherwise.
    pub fn send<T: Serialize + ?Sized>(&self, message: &T) -> Result<()> {
        self.send_with(message, &SendOptions::new())
    }

    /// As [`CollectiveGroup::send`], with options.
    ///
    /// # Errors
    ///
    /// As for [`CollectiveGroup::send`].
    pub fn send_with<T: Serialize + ?Sized>(
        &self,
        message: &T,
        options: &SendOptions,
    ) -> Result<()> {
        let peer = self.peer(options.to)?;
        let encoded = self.encoded(message, options)?;
        self.send_frame(peer, encoded.kind as u8, encoded, options)
    }

    /// Sends a message to the other member; the handle is done when it has been received.
    ///
    /// The message is taken apart, and compressed if it is to be, before the call returns: the value
    /// may change afterwards, and its tensors cannot.
    ///
    /// # Errors
    ///
    /// As for [`CollectiveGroup::send`]; what goes wrong later is the handle's result.
    pub fn send_async<T: Serialize + ?Sized>(&self, message: &T) -> Result<Work<()>> {
        self.send_async_with(message, &SendOptions::new())
    }

    /// As [`CollectiveGroup::send_async`], with options.
    ///
    /// # Errors
    ///
    /// As for [`CollectiveGroup::send_async`].
    pub fn send_async_with<T: Serialize + ?Sized>(
        &self,
        message: &T,
        options: &SendOptions,
    ) -> Result<Work<()>> {
        let peer = self.peer(options.to)?;
        let encoded = self.encoded(message, options)?;
        self.submit_frame(peer, encoded.kind as u8, encoded, options)
    }

    /// Takes a message apart and compresses what is worth it.
    fn encoded<T: Serialize + ?Sized>(
        &self,
        message: &T,
        options: &SendOptions,
    ) -> Result<Encoded> {
        let compression = (!options.uncompressed).then_some(&*self.inner.compression);
        let piggyback = options.piggyback.as_ref();
        encode(message, piggyback, options.pack, compression)
            .map_err(|error| self.inner.of_group(error))
    }

    /// Sends on the calling thread if the group has come together.
    pub(super) fn send_frame(
        &self,
        peer: Rank,
        tag: u8,
        encoded: Encoded,
        options: &SendOptions,
    ) -> Result<()> {
        let Some(communicator) = self.inner.link.ready() else {
            return self.submit_frame(peer, tag, encoded, options)?.wait();
        };
        let token = self.token(peer);
        let frame = FrameRef {
            tag,
            header: &encoded.header,
            segments: &encoded.segments,
        };
        communicator
            .send_frame_blocking(peer, frame, &frame_options(options))
            .map_err(|error| token.explain(error))
    }

    pub(super) fn submit_frame(
        &self,
        peer: Rank,
        tag: u8,
        encoded: Encoded,
        options: &SendOptions,
    ) -> Result<Work<()>> {
        let token = self.token(peer);
        let options = frame_options(options);
        let frame = Frame {
            tag,
            header: encoded.header,
            segments: encoded.segments,
        };
        match self.submit(move |communicator| communicator.send_frame(peer, frame, &options)) {
            Ok(work) => Ok(work.map(move |result| result.map_err(|error| token.explain(error)))),
            Err(error) => Err(token.explain(error)),
        }
    }
}

fn frame_options(options: &SendOptions) -> FrameOptions {
    let made = FrameOptions::new().eager(options.eager);
    match options.timeout {
        Some(timeout) => made.timeout(timeout),
        None => made,
    }
}
