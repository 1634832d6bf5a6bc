//! Whether a value is a tensor, a list of tensors or a dictionary of tensors.
//!
//! # Contract
//!
//! [`shape_of`] runs within [`out_of_band::collect`]. It serialises the value into nothing but the
//! places of its tensors and gives up at the first thing that is none, so it costs little for other
//! values; tensors that it has collected by then keep their places only if the scope goes on.
//!
//! Lists are sequences and tuples of which every element is a tensor (also if there is none),
//! dictionaries maps from texts to tensors. Structs are neither, whatever their fields.

use std::fmt;

use comm_core::tensor::out_of_band::NEWTYPE_NAME;
use serde::ser::{Error, Impossible, SerializeMap, SerializeSeq, SerializeTuple};
use serde::{Serialize, Serializer};

#[cfg(doc)]
use comm_core::tensor::out_of_band;

/// The places of the tensors of a simple message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Tensor(u32),
    List(Vec<u32>),
    Dict(Vec<(String, u32)>),
}

/// The shape of `value`, or `None` for anything else.
pub(super) fn shape_of<T: Serialize + ?Sized>(value: &T) -> Option<Shape> {
    match value.serialize(Probe::Whole) {
        Ok(Found::Shape(shape)) => Some(shape),
        Ok(Found::Place(_) | Found::Key(_)) | Err(SomethingElse) => None,
    }
}

/// What the serialiser looks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Probe {
    /// The whole value.
    Whole,
    /// A tensor.
    Element,
    /// The number inside of a tensor.
    Place,
    /// The key of a map.
    Key,
}

enum Found {
    Shape(Shape),
    Place(u32),
    Key(String),
}

/// The value is something else; no allocation, since this is the usual end.
#[derive(Debug)]
struct SomethingElse;

impl fmt::Display for SomethingElse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("neither a tensor nor a list or dictionary of tensors")
    }
}

impl std::error::Error for SomethingElse {}

impl Error for SomethingElse {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

fn place_of<T: Serialize + ?Sized>(element: &T) -> Result<u32, SomethingElse> {
    match element.serialize(Probe::Element)? {
        Found::Place(place) => Ok(place),
        Found::Shape(_) | Found::Key(_) => Err(SomethingElse),
    }
}

macro_rules! something_else {
    ($($method:ident($($argument:ty),*) -> $ok:ty),* $(,)?) => {$(
        fn $method(self, $(_: $argument),*) -> Result<$ok, SomethingElse> {
            Err(SomethingElse)
        }
    )*};
}

impl Serializer for Probe {
    type Ok = Found;
    type Error = SomethingElse;
    type SerializeSeq = List;
    type SerializeTuple = List;
    type SerializeMap = Dict;
    type SerializeTupleStruct = Impossible<Found, SomethingElse>;
    type SerializeTupleVariant = Impossible<Found, SomethingElse>;
    type SerializeStruct = Impossible<Found, SomethingElse>;
    type SerializeStructVariant = Impossible<Found, SomethingElse>;

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<Found, SomethingElse> {
        if name != NEWTYPE_NAME {
            return Err(SomethingElse);
        }
        match (self, value.serialize(Self::Place)?) {
            (Self::Whole, Found::Place(place)) => Ok(Found::Shape(Shape::Tensor(place))),
            (Self::Element, found @ Found::Place(_)) => Ok(found),
            _ => Err(SomethingElse),
        }
    }

    fn serialize_u32(self, place: u32) -> Result<Found, SomethingElse> {
        match self {
            Self::Place => Ok(Found::Place(place)),
            _ => Err(SomethingElse),
        }
    }

    fn serialize_str(self, key: &str) -> Result<Found, SomethingElse> {
        match self {
            Self::Key => Ok(Found::Key(key.to_owned())),
            _ => Err(SomethingElse),
        }
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<Found, SomethingElse> {
        self.serialize_str(variant)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<List, SomethingElse> {
        match self {
            Self::Whole => Ok(List(Vec::new())),
            _ => Err(SomethingElse),
        }
    }

    fn serialize_tuple(self, len: usize) -> Result<List, SomethingElse> {
        self.serialize_seq(Some(len))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Dict, SomethingElse> {
        match self {
            Self::Whole => Ok(Dict {
                entries: Vec::new(),
                key: None,
            }),
            _ => Err(SomethingElse),
        }
    }

    fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<Found, SomethingElse> {
        Err(SomethingElse)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<Found, SomethingElse> {
        Err(SomethingElse)
    }

    something_else! {
        serialize_bool(bool) -> Found,
        serialize_i8(i8) -> Found,
        serialize_i16(i16) -> Found,
        serialize_i32(i32) -> Found,
        serialize_i64(i64) -> Found,
        serialize_u8(u8) -> Found,
        serialize_u16(u16) -> Found,
        serialize_u64(u64) -> Found,
        serialize_f32(f32) -> Found,
        serialize_f64(f64) -> Found,
        serialize_char(char) -> Found,
        serialize_bytes(&[u8]) -> Found,
        serialize_none() -> Found,
        serialize_unit() -> Found,
        serialize_unit_struct(&'static str) -> Found,
        serialize_tuple_struct(&'static str, usize) -> Self::SerializeTupleStruct,
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Self::SerializeTupleVariant,
        serialize_struct(&'static str, usize) -> Self::SerializeStruct,
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> Self::SerializeStructVariant,
    }

    fn is_human_readable(&self) -> bool {
        // As the format of all other values: a type may decide by this what it is.
        false
    }
}

struct List(Vec<u32>);

impl SerializeSeq for List {
    type Ok = Found;
    type Error = SomethingElse;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), SomethingElse> {
        self.0.push(place_of(value)?);
        Ok(())
    }

    fn end(self) -> Result<Found, SomethingElse> {
        Ok(Found::Shape(Shape::List(self.0)))
    }
}

impl SerializeTuple for List {
    type Ok = Found;
    type Error = SomethingElse;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), SomethingElse> {
        SerializeSeq::serialize_element(self, value)
    }

    fn end(self) -> Result<Found, SomethingElse> {
        SerializeSeq::end(self)
    }
}

struct Dict {
    entries: Vec<(String, u32)>,
    key: Option<String>,
}

impl SerializeMap for Dict {
    type Ok = Found;
    type Error = SomethingElse;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), SomethingElse> {
        match key.serialize(Probe::Key)? {
            Found::Key(key) => self.key = Some(key),
            Found::Shape(_) | Found::Place(_) => return Err(SomethingElse),
        }
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), SomethingElse> {
        let key = self.key.take().ok_or(SomethingElse)?;
        self.entries.push((key, place_of(value)?));
        Ok(())
    }

    fn end(self) -> Result<Found, SomethingElse> {
        Ok(Found::Shape(Shape::Dict(self.entries)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use comm_core::tensor::out_of_band::collect;
    use comm_core::{DType, Tensor};

    use super::*;

    fn shape<T: Serialize>(value: &T) -> Option<Shape> {
        collect(|| shape_of(value)).0
    }

    #[test]
    fn tensors_lists_and_dictionaries_are_recognised_by_their_contents() {
        let tensor = Tensor::zeros(DType::F32, &[2]).unwrap();
        let other = Tensor::zeros(DType::F32, &[2]).unwrap();
        assert_eq!(shape(&tensor), Some(Shape::Tensor(0)));
        assert_eq!(shape(&Box::new(&tensor)), Some(Shape::Tensor(0)));
        let list = vec![&tensor, &other, &tensor];
        assert_eq!(shape(&list), Some(Shape::List(vec![0, 1, 0])));
        assert_eq!(shape(&(&other, &tensor)), Some(Shape::List(vec![0, 1])));
        let dict = BTreeMap::from([("b", &tensor), ("a", &other)]);
        let entries = vec![("a".to_owned(), 0), ("b".to_owned(), 1)];
        assert_eq!(shape(&dict), Some(Shape::Dict(entries)));
        assert_eq!(shape(&Vec::<Tensor>::new()), Some(Shape::List(Vec::new())));
        assert_eq!(
            shape(&HashMap::<String, Tensor>::new()),
            Some(Shape::Dict(Vec::new()))
        );
    }

    #[test]
    fn everything_else_is_something_else() {
        #[derive(Serialize)]
        struct Observation {
            image: Tensor,
        }
        #[derive(Serialize)]
        struct Wrapper(Tensor);
        let tensor = Tensor::zeros(DType::F32, &[2]).unwrap();
        let image = tensor.clone();
        assert_eq!(shape(&Observation { image }), None);
        assert_eq!(shape(&Wrapper(tensor.clone())), None);
        assert_eq!(shape(&Some(&tensor)), None);
        assert_eq!(shape(&vec![vec![&tensor]]), None);
        assert_eq!(shape(&(&tensor, 1)), None);
        assert_eq!(shape(&BTreeMap::from([(1, &tensor)])), None);
        assert_eq!(shape(&7_u32), None);
        assert_eq!(shape(&"text"), None);
        assert_eq!(shape(&()), None);
    }
}
