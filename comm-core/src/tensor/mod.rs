//! Tensors: [`Tensor`] is shared and read-only, [`TensorMut`] unique and writable, like
//! [`bytes::Bytes`] and `BytesMut`.
//!
//! # Contract
//!
//! * A tensor is a [`TensorLayout`] over a reference-counted [`Storage`]. Views share the storage;
//!   nothing is copied except by [`Tensor::pack`] and the constructors that say so.
//! * Every element lies inside the storage and is aligned to its type. Constructors check it, views
//!   cannot break it.
//! * While a [`Tensor`] exists its elements do not change. A [`TensorMut`] is the only handle of its
//!   storage, so no two handles ever write to one element.
//! * Elements of all [`DType`]s can be held, viewed and moved; typed slices exist for those with a
//!   Rust [`Element`] type, bytes for all.
//! * Tensors serialise with their elements, or beside a value: [`out_of_band`].
//! * Access to the contents from the CPU is an error for memory that is not on the host, and for a
//!   tensor that is not contiguous.
//!
//! ```
//! use comm_core::{DType, Tensor, TensorMut};
//!
//! let matrix = Tensor::from_vec(vec![1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2])?;
//! let rows = matrix.slice(1..3)?;
//! assert_eq!(rows.as_slice::<f32>()?, [3.0, 4.0, 5.0, 6.0]);
//!
//! let turned = matrix.permute(&[1, 0])?;
//! assert!(turned.as_slice::<f32>().is_err());
//! assert_eq!(turned.pack()?.as_slice::<f32>()?, [1.0, 3.0, 5.0, 2.0, 4.0, 6.0]);
//!
//! let mut buffer = TensorMut::zeros(DType::F32, &[4])?;
//! buffer.as_mut_slice::<f32>()?[0] = 7.0;
//! assert_eq!(buffer.freeze().as_slice::<f32>()?, [7.0, 0.0, 0.0, 0.0]);
//! # Ok::<(), comm_core::Error>(())
//! ```

mod dims;
mod elements;
mod layout;
pub mod out_of_band;
mod shared;
mod storage;
#[cfg(test)]
mod tests;
mod unique;

pub use elements::{element_bytes, element_bytes_mut};
pub use layout::TensorLayout;
pub use shared::Tensor;
pub use storage::Storage;
pub use unique::TensorMut;

#[cfg(doc)]
use crate::{DType, Element};
