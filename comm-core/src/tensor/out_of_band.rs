//! Tensors that travel beside a serialised value instead of inside of it.
//!
//! # Contract
//!
//! * Within [`collect`], a [`Tensor`] anywhere in a value serialises as its place in a list, and the
//!   list is handed over; its elements are neither read nor copied. Equal handles (the same storage
//!   with the same layout) take one place. Within [`supply`], such a place deserialises as a clone of
//!   the tensor at that place of a given list; a place that the list lacks is an error.
//! * Outside of both, tensors serialise *in band*: a struct of element type, shape and bytes, in any
//!   format. That copies every element and is meant for configurations, logs and small checkpoints.
//!   It is an error for a tensor that is not contiguous host memory.
//! * Both scopes belong to the calling thread, end with the closure (also by a panic), and can be
//!   nested: the inner one counts.
//!
//! To a serialiser, a tensor out of band is a newtype struct named [`NEWTYPE_NAME`] around a `u32`.
//!
//! ```
//! use comm_core::Tensor;
//! use comm_core::tensor::out_of_band;
//!
//! let weights = Tensor::from_vec(vec![0.5_f32; 3], &[3])?;
//! let value = (weights.clone(), "step 7", weights);
//! let (json, tensors) = out_of_band::collect(|| serde_json::to_string(&value).unwrap());
//! assert_eq!(json, r#"[0,"step 7",0]"#);
//! assert_eq!(tensors.len(), 1);
//!
//! let back: (Tensor, String, Tensor) =
//!     out_of_band::supply(tensors, || serde_json::from_str(&json).unwrap());
//! assert_eq!(back.2.as_slice::<f32>()?, [0.5; 3]);
//! # Ok::<(), comm_core::Error>(())
//! ```

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::de::{self, Deserializer, Visitor};
use serde::ser::{self, Serializer};
use serde::{Deserialize, Serialize};

use super::{Tensor, TensorMut};
use crate::{DType, Result};

/// The name under which a serialiser sees a tensor within [`collect`].
pub const NEWTYPE_NAME: &str = "$comm::Tensor";

thread_local! {
    static SCOPE: RefCell<Scope> = const { RefCell::new(Scope::InBand) };
}

enum Scope {
    InBand,
    Collect(Collected),
    Supply(Vec<Tensor>),
}

/// The tensors collected so far, and where they start, to find aliases.
#[derive(Default)]
struct Collected {
    tensors: Vec<Tensor>,
    /// The first byte's address, the length in bytes, the place.
    known: BTreeSet<(usize, usize, u32)>,
}

impl Collected {
    /// The place of `tensor`: that of an equal handle, or a new one.
    fn place(&mut self, tensor: &Tensor) -> Option<u32> {
        let (start, len) = (tensor.as_ptr().addr(), tensor.len_bytes());
        let same_bytes = self.known.range((start, len, 0)..=(start, len, u32::MAX));
        for (_, _, place) in same_bytes {
            let known = &self.tensors[*place as usize];
            if known.layout() == tensor.layout() && Arc::ptr_eq(known.storage(), tensor.storage()) {
                return Some(*place);
            }
        }
        let place = u32::try_from(self.tensors.len()).ok()?;
        self.tensors.push(tensor.clone());
        self.known.insert((start, len, place));
        Some(place)
    }
}

/// Puts the previous scope back, also when the closure panics.
struct Restore(Option<Scope>);

impl Restore {
    fn enter(scope: Scope) -> Self {
        Self(Some(SCOPE.replace(scope)))
    }

    fn leave(mut self) -> Scope {
        self.0
            .take()
            .map_or(Scope::InBand, |outer| SCOPE.replace(outer))
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        if let Some(outer) = self.0.take() {
            SCOPE.replace(outer);
        }
    }
}

/// Runs `serialise`, in which tensors serialise as places, and returns the tensors by place.
pub fn collect<R>(serialise: impl FnOnce() -> R) -> (R, Vec<Tensor>) {
    let scope = Restore::enter(Scope::Collect(Collected::default()));
    let result = serialise();
    match scope.leave() {
        Scope::Collect(collected) => (result, collected.tensors),
        // Scopes are left in the order opposite to that in which they were entered.
        Scope::InBand | Scope::Supply(_) => (result, Vec::new()),
    }
}

/// Runs `deserialise`, in which places deserialise as clones of these tensors.
pub fn supply<R>(tensors: Vec<Tensor>, deserialise: impl FnOnce() -> R) -> R {
    let scope = Restore::enter(Scope::Supply(tensors));
    let result = deserialise();
    drop(scope.leave());
    result
}

/// What the scope of this thread does with a tensor that is serialised.
enum Place {
    InBand,
    At(u32),
    Full,
}

impl Serialize for Tensor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let place = SCOPE.with_borrow_mut(|scope| match scope {
            Scope::Collect(collected) => collected.place(self).map_or(Place::Full, Place::At),
            Scope::InBand | Scope::Supply(_) => Place::InBand,
        });
        match place {
            Place::At(place) => serializer.serialize_newtype_struct(NEWTYPE_NAME, &place),
            Place::Full => Err(ser::Error::custom("a message holds at most 2^32 tensors")),
            Place::InBand => InBand {
                dtype: self.dtype(),
                shape: self.shape().to_vec(),
                data: Raw(self.as_bytes().map_err(ser::Error::custom)?),
            }
            .serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Tensor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if SCOPE.with_borrow(|scope| matches!(scope, Scope::Supply(_))) {
            return deserializer.deserialize_newtype_struct(NEWTYPE_NAME, PlaceVisitor);
        }
        let InBand { dtype, shape, data } = InBand::<Owned>::deserialize(deserializer)?;
        let fill = || -> Result<Self> {
            super::shared::filled_layout(dtype, &shape, data.0.len())?;
            let mut tensor = TensorMut::zeros(dtype, &shape)?;
            tensor.as_mut_bytes()?.copy_from_slice(&data.0);
            Ok(tensor.freeze())
        };
        fill().map_err(de::Error::custom)
    }
}

/// Reads a place, however the format presents a newtype.
struct PlaceVisitor;

impl PlaceVisitor {
    fn take<E: de::Error>(place: u64) -> Result<Tensor, E> {
        SCOPE.with_borrow(|scope| {
            let Scope::Supply(tensors) = scope else {
                return Err(E::custom("the scope of the tensors has ended"));
            };
            let index = usize::try_from(place).ok();
            index
                .and_then(|index| tensors.get(index))
                .cloned()
                .ok_or_else(|| {
                    E::custom(format_args!(
                        "tensor {place} of a message that has {}",
                        tensors.len()
                    ))
                })
        })
    }
}

impl<'de> Visitor<'de> for PlaceVisitor {
    type Value = Tensor;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a tensor")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<Tensor, D::Error> {
        Self::take(u32::deserialize(inner)?.into())
    }

    fn visit_u64<E: de::Error>(self, place: u64) -> Result<Tensor, E> {
        Self::take(place)
    }
}

/// The form in band.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Tensor")]
struct InBand<D> {
    dtype: DType,
    shape: Vec<usize>,
    data: D,
}

/// Bytes that serialise as bytes, not as a sequence.
struct Raw<'a>(&'a [u8]);

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

#[derive(Deserialize)]
#[serde(transparent)]
struct Owned(bytes::Bytes);

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn tensor(values: &[f32]) -> Tensor {
        Tensor::from_slice(values, &[values.len()]).unwrap()
    }

    #[test]
    fn in_band_every_format_holds_the_elements() {
        let value = vec![tensor(&[1.0, -2.5]), tensor(&[])];
        let json = serde_json::to_string(&value).unwrap();
        let binary = postcard::to_allocvec(&value).unwrap();
        let from_json: Vec<Tensor> = serde_json::from_str(&json).unwrap();
        let from_binary: Vec<Tensor> = postcard::from_bytes(&binary).unwrap();
        for back in [from_json, from_binary] {
            assert_eq!(back[0].as_slice::<f32>().unwrap(), [1.0, -2.5]);
            assert_eq!((back[1].dtype(), back[1].shape()), (DType::F32, &[0][..]));
        }
    }

    #[test]
    fn in_band_a_shape_that_the_bytes_do_not_fill_is_an_error() {
        let json = r#"{"dtype":"F32","shape":[18446744073709551615],"data":[0,0,0,0]}"#;
        assert!(serde_json::from_str::<Tensor>(json).is_err());
        let turned = Tensor::zeros(DType::U8, &[2, 2]).unwrap().permute(&[1, 0]);
        assert!(serde_json::to_string(&turned.unwrap()).is_err());
    }

    #[test]
    fn aliases_take_one_place_and_views_their_own() {
        let whole = tensor(&[1.0, 2.0, 3.0, 4.0]);
        let square = whole.reshape(&[2, 2]).unwrap();
        let part = whole.slice(0..2).unwrap();
        let value = [&whole, &square, &whole, &part, &square.clone()];
        let (json, tensors) = collect(|| serde_json::to_string(&value).unwrap());
        assert_eq!(json, "[0,1,0,2,1]");
        assert_eq!(tensors.len(), 3);
        let back: Vec<Tensor> = supply(tensors, || serde_json::from_str(&json).unwrap());
        assert!(Arc::ptr_eq(back[0].storage(), back[2].storage()));
        assert_eq!(back[4].shape(), [2, 2]);
    }

    #[test]
    fn a_place_that_the_list_lacks_is_an_error() {
        let one = vec![tensor(&[1.0])];
        assert!(supply(one.clone(), || serde_json::from_str::<Tensor>("1")).is_err());
        assert!(supply(one.clone(), || serde_json::from_str::<Tensor>("-1")).is_err());
        assert!(supply(one, || serde_json::from_str::<Tensor>("\"x\"")).is_err());
    }

    #[test]
    fn scopes_nest_and_end_with_a_panic() {
        let (inner, outer) = collect(|| {
            let _ = serde_json::to_string(&tensor(&[1.0]));
            collect(|| serde_json::to_string(&tensor(&[2.0])).unwrap())
        });
        assert_eq!((inner.0.as_str(), inner.1.len(), outer.len()), ("0", 1, 1));
        let panicked = catch_unwind(AssertUnwindSafe(|| collect(|| panic!("in a scope"))));
        assert!(panicked.is_err());
        assert!(
            serde_json::to_string(&tensor(&[1.0]))
                .unwrap()
                .contains("F32")
        );
    }
}
