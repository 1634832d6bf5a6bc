//! From a value to the header and segments of a frame.

use bytes::Bytes;
use comm_core::tensor::out_of_band::collect;
use comm_core::{DType, Error, ErrorKind, Result, Tensor};
use serde::Serialize;

use super::shape::{Shape, shape_of};
use super::wire::Writer;
use super::{BODY_IN_SEGMENT, COMPRESSED, HAS_PIGGYBACK, MessageKind, Piggyback};
use crate::compression::Compression;

/// A body of up to this many bytes is a part of the header; a larger one is a segment, which is
/// not copied once more.
const INLINE_BODY_BYTES: usize = 4096;

/// A message ready to be sent.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) kind: MessageKind,
    pub(crate) header: Bytes,
    pub(crate) segments: Vec<Tensor>,
}

/// Takes a value apart; with `pack`, tensors that are not contiguous are copied, and with
/// `compression`, those that are worth it are compressed, on the calling thread.
///
/// # Errors
///
/// [`ErrorKind::InvalidArgument`] if the value does not serialise, or a tensor is not contiguous
/// (without `pack`); [`ErrorKind::Unsupported`] if one is not on the host.
pub(crate) fn encode<T: Serialize + ?Sized>(
    value: &T,
    piggyback: Option<&Piggyback>,
    pack: bool,
    compression: Option<&Compression>,
) -> Result<Encoded> {
    let (shape, tensors) = collect(|| shape_of(value));
    let (kind, body, mut segments) = match shape {
        Some(Shape::Tensor(_)) => (MessageKind::Tensor, Vec::new(), tensors),
        Some(Shape::List(places)) => {
            let mut body = Writer::with_capacity(1 + 2 * places.len());
            for place in places {
                body.number(place.into());
            }
            (MessageKind::List, body.finish(), tensors)
        }
        Some(Shape::Dict(entries)) => {
            let mut body = Writer::with_capacity(24 * entries.len());
            for (name, place) in entries {
                body.bytes(name.as_bytes());
                body.number(place.into());
            }
            (MessageKind::Dict, body.finish(), tensors)
        }
        None => {
            let (body, tensors) = collect(|| postcard::to_allocvec(value));
            let body = body.map_err(|error| {
                Error::new(
                    ErrorKind::InvalidArgument,
                    format!(
                        "the message cannot be serialised: {error}; sequences and maps need a \
                         known length, and `#[serde(flatten)]` and untagged enums do not work in a \
                         binary format"
                    ),
                )
                .with("type", std::any::type_name::<T>())
            })?;
            let kind = if tensors.is_empty() {
                MessageKind::Object
            } else {
                MessageKind::Structure
            };
            (kind, body, tensors)
        }
    };
    for tensor in &mut segments {
        if pack && !tensor.is_contiguous() {
            *tensor = tensor.pack()?;
        }
        check_tensor(tensor)?;
    }
    let compressed = compression.and_then(|compression| compression.compress(&segments));
    let body_in_segment = body.len() > INLINE_BODY_BYTES;
    let piggyback_bytes = piggyback.map_or(0, |piggyback| piggyback.as_bytes().len() + 3);
    let body_bytes = if body_in_segment { 0 } else { body.len() + 3 };
    let mut header = Writer::with_capacity(8 + piggyback_bytes + body_bytes + 16 * segments.len());
    let mut flags = 0;
    if piggyback.is_some() {
        flags |= HAS_PIGGYBACK;
    }
    if body_in_segment {
        flags |= BODY_IN_SEGMENT;
    }
    if compressed.is_some() {
        flags |= COMPRESSED;
    }
    header.byte(flags);
    if let Some(piggyback) = piggyback {
        header.bytes(piggyback.as_bytes());
    }
    if !body_in_segment {
        header.bytes(&body);
    }
    header.number(segments.len() as u64);
    for tensor in &segments {
        header.layout(tensor.dtype(), tensor.shape());
    }
    if let Some(compressed) = compressed {
        compressed.blocks.write(&mut header);
        segments = compressed.segments;
    }
    if body_in_segment {
        let len = body.len();
        segments.push(Tensor::from_bytes(body.into(), DType::U8, &[len])?);
    }
    Ok(Encoded {
        kind,
        header: header.finish().into(),
        segments,
    })
}

/// Whether the memory of a tensor can be sent as it is.
///
/// # Errors
///
/// As for [`encode`].
pub(crate) fn check_tensor(tensor: &Tensor) -> Result<()> {
    if !tensor.memory_kind().is_host() {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "tensors in device memory cannot be sent yet; copy the tensor to the host first",
        )
        .with("memory", tensor.memory_kind()));
    }
    check_contiguous(
        tensor.is_contiguous(),
        tensor.shape(),
        tensor.layout().strides(),
    )
}

/// The check that sender and receiver share.
pub(crate) fn check_contiguous(contiguous: bool, shape: &[usize], strides: &[usize]) -> Result<()> {
    if contiguous {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidArgument,
        "tensors must be contiguous when using P2P communication; `pack()` makes a contiguous copy",
    )
    .with("shape", format!("{shape:?}"))
    .with("strides", format!("{strides:?}")))
}
