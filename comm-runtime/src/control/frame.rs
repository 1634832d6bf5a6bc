//! Frames: how the control plane cuts its byte streams into messages.
//!
//! # Contract
//!
//! * A frame is a 12-byte header (magic, kind, reserved, length; little endian) and a body.
//! * The length is checked against the limit of the reader's situation *before* anything is
//!   allocated, and the body's buffer grows only with bytes that really came: whoever announces
//!   much and sends little costs nothing.
//! * A wrong magic, an unknown kind or a length over the limit is [`ErrorKind::Protocol`]; the
//!   stream is then unusable and must be closed. An end of the stream between two frames is
//!   `None`, inside a frame it is an error.
//! * [`read_frame`] is not cancellation safe: a dropped call leaves the stream inside a frame.

use bytes::{BufMut, Bytes, BytesMut};
use comm_core::{Error, ErrorKind, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Size of a frame's header.
pub(crate) const HEADER_BYTES: usize = 12;

/// The longest body of a frame before the other side has proved who it is.
pub(crate) const MAX_HANDSHAKE_BYTES: usize = 1024;

/// The longest body of a frame from a member of the job.
pub(crate) const MAX_FRAME_BYTES: usize = 64 << 20;

const MAGIC: [u8; 4] = *b"comm";

/// How much of a body is allocated ahead of its arrival.
const PREALLOCATE_BYTES: usize = 64 << 10;

macro_rules! frame_kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// What a frame's body holds.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum FrameKind { $($(#[$doc])* $name = $number,)* }

        impl FrameKind {
            fn from_wire(number: u16) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }
        }
    };
}

frame_kinds! {
    /// Handshake: who connects, and to whom.
    Hello = 1,
    /// Handshake: the listener's nonce.
    Challenge = 2,
    /// Handshake: the dialler's MAC.
    Proof = 3,
    /// Handshake: the listener's MAC.
    Accept = 4,
    /// Handshake: why the listener refuses.
    Reject = 5,
    /// Handshake: the dialler keeps this connection.
    Open = 6,
    /// Link: a sign of life.
    Ping = 16,
    /// Link: the sender leaves in good order.
    Goodbye = 17,
    /// Link: a message for the member's handler.
    Message = 18,
    /// Link: one round of an allgather or a barrier.
    Gather = 19,
    /// Link: the first failure that the sender knows.
    Failure = 20,
    /// Rendezvous: publish or look up a key.
    Request = 32,
    /// Rendezvous: the answer to a request.
    Response = 33,
}

/// One frame as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: FrameKind,
    pub(crate) body: Bytes,
}

impl Frame {
    /// Decodes the body.
    pub(crate) fn decode<T: DeserializeOwned>(&self) -> Result<T> {
        postcard::from_bytes(&self.body).map_err(|error| {
            protocol(format!(
                "the body of a {:?} frame does not decode: {error}",
                self.kind
            ))
        })
    }
}

/// A frame with `value` as its body, ready to be written.
///
/// # Errors
///
/// [`ErrorKind::InvalidArgument`] if the body is longer than [`MAX_FRAME_BYTES`].
pub(crate) fn encode<T: Serialize>(kind: FrameKind, value: &T) -> Result<Bytes> {
    let body = postcard::to_allocvec(value).map_err(|error| {
        Error::new(
            ErrorKind::Internal,
            format!("a {kind:?} frame does not encode: {error}"),
        )
    })?;
    encode_raw(kind, &body)
}

/// A frame with `body` as its body, ready to be written.
///
/// # Errors
///
/// As for [`encode`].
pub(crate) fn encode_raw(kind: FrameKind, body: &[u8]) -> Result<Bytes> {
    let length = match u32::try_from(body.len()) {
        Ok(length) if body.len() <= MAX_FRAME_BYTES => length,
        _ => {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "a control message is too long; send large data with an operation instead",
            )
            .with("bytes", body.len())
            .with("limit_bytes", MAX_FRAME_BYTES));
        }
    };
    let mut frame = BytesMut::with_capacity(HEADER_BYTES + body.len());
    frame.put_slice(&MAGIC);
    frame.put_u16_le(kind as u16);
    frame.put_u16_le(0);
    frame.put_u32_le(length);
    frame.put_slice(body);
    Ok(frame.freeze())
}

/// Reads the next frame; `None` if the stream ended before it.
pub(crate) async fn read_frame<R: AsyncRead + Unpin>(
    reader: &mut R,
    limit_bytes: usize,
) -> Result<Option<Frame>> {
    let mut header = [0; HEADER_BYTES];
    let mut filled = 0;
    while filled < HEADER_BYTES {
        match reader.read(&mut header[filled..]).await {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(protocol("the stream ended inside a frame header")),
            Ok(count) => filled += count,
            Err(error) => return Err(Error::system("reading from a control connection", error)),
        }
        // Garbage is refused as soon as it shows, without waiting for a whole header of it.
        let seen = filled.min(MAGIC.len());
        if header[..seen] != MAGIC[..seen] {
            return Err(protocol(
                "these bytes are not from a control plane (wrong magic)",
            ));
        }
    }
    let [
        _,
        _,
        _,
        _,
        kind_low,
        kind_high,
        reserved_low,
        reserved_high,
        length @ ..,
    ] = header;
    let number = u16::from_le_bytes([kind_low, kind_high]);
    let kind = FrameKind::from_wire(number)
        .ok_or_else(|| protocol(format!("unknown frame kind {number}")))?;
    if [reserved_low, reserved_high] != [0, 0] {
        return Err(protocol(
            "the reserved bytes of a frame header are not zero",
        ));
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > limit_bytes {
        return Err(protocol(format!(
            "a {kind:?} frame announces {length} bytes, more than the {limit_bytes} allowed here"
        )));
    }
    let mut body = Vec::with_capacity(length.min(PREALLOCATE_BYTES));
    match reader.take(length as u64).read_to_end(&mut body).await {
        Ok(count) if count == length => Ok(Some(Frame {
            kind,
            body: body.into(),
        })),
        Ok(_) => Err(protocol("the stream ended inside a frame")),
        Err(error) => Err(Error::system("reading from a control connection", error)),
    }
}

fn protocol(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Protocol, message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8], limit_bytes: usize) -> Result<Option<Frame>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let mut reader = bytes;
        runtime.block_on(read_frame(&mut reader, limit_bytes))
    }

    #[test]
    fn a_frame_comes_out_as_it_went_in() {
        let bytes = encode(FrameKind::Message, &("text", 7_u64)).unwrap();
        let frame = read(&bytes, 100).unwrap().unwrap();
        assert_eq!(frame.kind, FrameKind::Message);
        assert_eq!(
            frame.decode::<(String, u64)>().unwrap(),
            ("text".to_owned(), 7)
        );
    }

    #[test]
    fn an_end_between_frames_is_none_and_inside_a_frame_an_error() {
        let bytes = encode_raw(FrameKind::Ping, b"body").unwrap();
        assert!(read(&[], 100).unwrap().is_none());
        for end in 1..bytes.len() {
            assert_eq!(
                read(&bytes[..end], 100).unwrap_err().kind(),
                ErrorKind::Protocol
            );
        }
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_the_body_is_read() {
        let bytes = encode_raw(FrameKind::Hello, &[0; 101]).unwrap();
        let error = read(&bytes[..HEADER_BYTES], 100).unwrap_err();
        assert!(error.message().contains("announces 101 bytes"), "{error}");
    }

    #[test]
    fn a_frame_over_the_limit_is_not_built() {
        let error = encode_raw(FrameKind::Message, &vec![0; MAX_FRAME_BYTES + 1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn the_first_wrong_byte_of_an_http_request_is_enough() {
        let (mut client, mut server) = tokio::io::duplex(64);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        // The client keeps the stream open: the answer must not wait for a whole header.
        let error = runtime
            .block_on(async {
                tokio::io::AsyncWriteExt::write_all(&mut client, b"G")
                    .await
                    .unwrap();
                read_frame(&mut server, 100).await
            })
            .unwrap_err();
        assert!(error.message().contains("wrong magic"), "{error}");
    }

    proptest! {
        #[test]
        fn garbage_is_an_error_and_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 1..200)) {
            prop_assume!(!bytes.starts_with(&MAGIC[..1]));
            prop_assert!(read(&bytes, 100).is_err());
        }

        #[test]
        fn a_damaged_header_never_yields_a_longer_body_than_was_sent(
            body in proptest::collection::vec(any::<u8>(), 0..50),
            position in 0..HEADER_BYTES,
            value in any::<u8>(),
        ) {
            let mut bytes = encode_raw(FrameKind::Gather, &body).unwrap().to_vec();
            bytes[position] = value;
            if let Ok(Some(frame)) = read(&bytes, 100) {
                prop_assert!(frame.body.len() <= body.len());
            }
        }

        #[test]
        fn a_body_that_does_not_decode_is_a_protocol_error(body in proptest::collection::vec(any::<u8>(), 0..64)) {
            let frame = Frame { kind: FrameKind::Hello, body: body.into() };
            if let Err(error) = frame.decode::<(String, Vec<u32>)>() {
                prop_assert_eq!(error.kind(), ErrorKind::Protocol);
            }
        }
    }
}
