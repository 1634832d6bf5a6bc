//! From the header and segments of a frame to a value.

use std::fmt;
use std::str;

use comm_core::tensor::out_of_band::{NEWTYPE_NAME, supply};
use comm_core::{DType, Error, ErrorKind, Result, Tensor, TensorLayout};
use serde::Deserializer;
use serde::de::value::{Error as ValueError, MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Error as _, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

use super::blocks::Blocks;
use super::wire::{Reader, malformed};
use super::{BODY_IN_SEGMENT, COMPRESSED, HAS_PIGGYBACK, MessageKind, Piggyback, Received};

/// What stands at the front of a header.
struct Front<'a> {
    piggyback: Option<&'a [u8]>,
    /// `None` if the last segment is the body.
    body: Option<&'a [u8]>,
    is_compressed: bool,
}

fn front<'a>(reader: &mut Reader<'a>) -> Result<Front<'a>> {
    let flags = reader.byte()?;
    if flags & !(HAS_PIGGYBACK | BODY_IN_SEGMENT | COMPRESSED) != 0 {
        return Err(malformed("unknown flags; both sides need the same release"));
    }
    Ok(Front {
        piggyback: if flags & HAS_PIGGYBACK == 0 {
            None
        } else {
            Some(reader.bytes()?)
        },
        body: if flags & BODY_IN_SEGMENT == 0 {
            Some(reader.bytes()?)
        } else {
            None
        },
        is_compressed: flags & COMPRESSED != 0,
    })
}

/// What a header announces.
#[derive(Debug)]
pub(crate) struct Announced {
    /// The layouts of the tensors and, if there is one, of the body behind them.
    pub(crate) layouts: Vec<TensorLayout>,
    /// Whether the last segment is the body.
    pub(crate) has_body: bool,
    /// If tensors are compressed.
    pub(crate) blocks: Option<Blocks>,
}

/// What a header announces, compared with the sizes that the frame has: what memory has to be there
/// before the segments arrive.
///
/// # Errors
///
/// [`ErrorKind::Protocol`] if the header is malformed or does not fit the sizes.
pub(crate) fn announced(header: &[u8], segment_bytes: &[u64]) -> Result<Announced> {
    let mut reader = Reader::new(header);
    let front = front(&mut reader)?;
    let tensors = reader.number()?;
    let segments = tensors.checked_add(u64::from(front.body.is_none()));
    if segments != Some(segment_bytes.len() as u64) {
        return Err(malformed(
            "it names another number of tensors than there are",
        ));
    }
    let mut layouts = Vec::with_capacity(segment_bytes.len());
    for _ in 0..tensors {
        layouts.push(reader.layout()?);
    }
    let blocks = match front.is_compressed {
        true => Some(Blocks::read(&mut reader, &layouts)?),
        false => None,
    };
    reader.end()?;
    if front.body.is_none()
        && let Some(bytes) = segment_bytes.last()
    {
        let bytes = usize::try_from(*bytes)
            .map_err(|_| malformed("its body is larger than the address space"))?;
        layouts.push(
            TensorLayout::contiguous(DType::U8, &[bytes])
                .map_err(|error| malformed("its body is too large").with_source(error))?,
        );
    }
    for (place, (layout, bytes)) in layouts.iter().zip(segment_bytes).enumerate() {
        let block = blocks.as_ref().and_then(|blocks| blocks.of_tensor(place));
        let wanted = block.map_or_else(|| layout.len_bytes(), |block| block.bytes);
        if wanted as u64 != *bytes {
            return Err(malformed("a tensor has another size than it says")
                .with("segment_bytes", bytes)
                .with("tensor_bytes", wanted));
        }
    }
    Ok(Announced {
        layouts,
        has_body: front.body.is_none(),
        blocks,
    })
}

/// The value of a message whose segments have arrived.
///
/// # Errors
///
/// [`ErrorKind::Mismatch`] if the message does not decode as a `T`, [`ErrorKind::Protocol`] if it is
/// malformed.
pub(crate) fn decode<T: DeserializeOwned>(
    kind: MessageKind,
    header: &[u8],
    mut segments: Vec<Tensor>,
) -> Result<Received<T>> {
    let front = front(&mut Reader::new(header))?;
    let body_segment = match front.body {
        Some(_) => None,
        None => segments.pop(),
    };
    let body = match (front.body, &body_segment) {
        (Some(body), _) => body,
        (None, Some(segment)) => segment.as_bytes()?,
        (None, None) => return Err(malformed("its body is missing")),
    };
    let tensors = segments.len();
    let message = match kind {
        MessageKind::Tensor => {
            let place = tensor_of(body, tensors)?;
            supply(segments, || T::deserialize(place)).map_err(|error| unlike::<T>(kind, &error))
        }
        MessageKind::List => {
            let places = list_of(body)?;
            supply(segments, || {
                T::deserialize(SeqDeserializer::<_, ValueError>::new(places.into_iter()))
            })
            .map_err(|error| unlike::<T>(kind, &error))
        }
        MessageKind::Dict => {
            let entries = dict_of(body)?;
            supply(segments, || {
                T::deserialize(MapDeserializer::<_, ValueError>::new(entries.into_iter()))
            })
            .map_err(|error| unlike::<T>(kind, &error))
        }
        MessageKind::Object | MessageKind::Structure => {
            match supply(segments, || postcard::take_from_bytes::<T>(body)) {
                Ok((value, [])) => Ok(value),
                Ok((_, rest)) => Err(unlike::<T>(
                    kind,
                    &format_args!("it is {} bytes longer", rest.len()),
                )),
                Err(error) => Err(unlike::<T>(kind, &difference(&error))),
            }
        }
    }?;
    Ok(Received {
        message,
        piggyback: front.piggyback.map(Piggyback::received),
        kind,
    })
}

/// What keeps an object from being a value of the type that is asked for.
fn difference(error: &postcard::Error) -> String {
    match error {
        postcard::Error::DeserializeUnexpectedEnd => "it ends too early".to_owned(),
        // What the type itself had to say, which the format does not pass on.
        postcard::Error::SerdeDeCustom => "its values are of other types".to_owned(),
        other => other.to_string(),
    }
}

fn unlike<T>(kind: MessageKind, reason: &dyn fmt::Display) -> Error {
    Error::new(
        ErrorKind::Mismatch,
        format!(
            "the message, of kind {kind}, does not decode as the type that is received: {reason}; \
             receive the type that is sent"
        ),
    )
    .with("type", std::any::type_name::<T>())
}

fn tensor_of(body: &[u8], tensors: usize) -> Result<TensorAt> {
    if tensors == 1 && body.is_empty() {
        Ok(TensorAt(0))
    } else {
        Err(malformed(
            "a message of one tensor has something else in it",
        ))
    }
}

fn list_of(body: &[u8]) -> Result<Vec<TensorAt>> {
    let mut reader = Reader::new(body);
    let mut places = Vec::new();
    while reader.end().is_err() {
        places.push(TensorAt(reader.number()?));
    }
    Ok(places)
}

fn dict_of(body: &[u8]) -> Result<Vec<(&str, TensorAt)>> {
    let mut reader = Reader::new(body);
    let mut entries = Vec::new();
    while reader.end().is_err() {
        let name = str::from_utf8(reader.bytes()?)
            .map_err(|error| malformed("a name in it is not UTF-8").with_source(error))?;
        entries.push((name, TensorAt(reader.number()?)));
    }
    Ok(entries)
}

/// Deserialises as the tensor at this place and as nothing else.
#[derive(Clone, Copy, Debug)]
struct TensorAt(u64);

impl<'de> Deserializer<'de> for TensorAt {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        Err(ValueError::invalid_type(
            Unexpected::Other("a tensor"),
            &visitor,
        ))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        if name == NEWTYPE_NAME {
            visitor.visit_u64(self.0)
        } else {
            visitor.visit_newtype_struct(self)
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_some(self)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_unit()
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct enum identifier
    }
}

impl IntoDeserializer<'_, ValueError> for TensorAt {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
