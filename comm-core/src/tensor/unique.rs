//! [`TensorMut`]: the unique, writable handle.

use std::fmt;
use std::sync::Arc;

use super::{Storage, Tensor, TensorLayout};
use crate::{DType, Element, Error, ErrorKind, MemoryKind, Result};

/// The only handle of a tensor's storage; its elements can be written.
///
/// Receives and in-place operations take one and give it back. See the [module](super) for the
/// contract.
pub struct TensorMut {
    /// The only handle of a writable storage; its layout names no element twice. Never lent out, as
    /// cloning it would share the storage.
    inner: Tensor,
}

impl TensorMut {
    /// A tensor over the elements of `vec`, row-major, without copying them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the number of elements does not fit the shape.
    pub fn from_vec<T: Element>(vec: Vec<T>, shape: &[usize]) -> Result<Self> {
        Tensor::from_vec(vec, shape).map(|inner| Self { inner })
    }

    /// A tensor of zeros in fresh host memory that is aligned to 64 bytes.
    ///
    /// # Errors
    ///
    /// As for [`Tensor::zeros`].
    pub fn zeros(dtype: DType, shape: &[usize]) -> Result<Self> {
        Tensor::zeros(dtype, shape).map(|inner| Self { inner })
    }

    /// The elements that `layout` picks from `storage`, which may be of any memory kind.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] as for [`Tensor::from_storage`], and if the storage is shared
    /// or not writable or the layout names an element twice.
    pub fn from_storage(storage: Arc<dyn Storage>, layout: TensorLayout) -> Result<Self> {
        Self::from_unique(Tensor::from_storage(storage, layout)?).map_err(|tensor| {
            Error::new(
                ErrorKind::InvalidArgument,
                "a writable tensor needs a writable storage that nobody shares, and strides that \
                 reach no element twice",
            )
            .with("writable", tensor.storage().is_writable())
            .with("owners", Arc::strong_count(tensor.storage()))
            .with("shape", format!("{:?}", tensor.shape()))
            .with("strides", format!("{:?}", tensor.layout().strides()))
        })
    }

    /// `inner`, if nobody else can see its storage and it may be written.
    pub(super) fn from_unique(mut inner: Tensor) -> Result<Self, Tensor> {
        let unique = Arc::get_mut(inner.storage_mut()).is_some();
        if unique && inner.storage().is_writable() && inner.layout().is_free_of_overlap() {
            Ok(Self { inner })
        } else {
            Err(inner)
        }
    }

    /// The shared, read-only form. Nothing is copied.
    #[must_use]
    pub fn freeze(self) -> Tensor {
        self.inner
    }

    /// Element type, shape, strides and offset.
    #[must_use]
    pub fn layout(&self) -> &TensorLayout {
        self.inner.layout()
    }

    /// The element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.inner.dtype()
    }

    /// The size of each dimension, in elements.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.inner.shape()
    }

    /// The number of elements.
    #[must_use]
    pub fn element_count(&self) -> usize {
        self.inner.element_count()
    }

    /// The size of all elements together, without gaps.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.inner.len_bytes()
    }

    /// Where the elements lie.
    #[must_use]
    pub fn memory_kind(&self) -> MemoryKind {
        self.inner.memory_kind()
    }

    /// Whether the elements lie in row-major order without gaps.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        self.inner.is_contiguous()
    }

    /// The owner of the bytes.
    #[must_use]
    pub fn storage(&self) -> &dyn Storage {
        &**self.inner.storage()
    }

    /// The address of the first element; see [`Tensor::as_ptr`].
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.inner.as_ptr()
    }

    /// The address of the first element, for writing.
    ///
    /// Valid for reads and writes, by whoever can access this [kind](TensorMut::memory_kind) of
    /// memory, while this tensor lives and is not accessed otherwise.
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.inner.as_ptr().cast_mut()
    }

    /// The elements.
    ///
    /// # Errors
    ///
    /// As for [`Tensor::as_slice`].
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        self.inner.as_slice()
    }

    /// The elements, for writing.
    ///
    /// # Errors
    ///
    /// As for [`Tensor::as_slice`].
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        self.inner.check_access::<T>()?;
        let count = self.element_count();
        if count == 0 {
            return Ok(&mut []);
        }
        // SAFETY: the elements are initialised, writable host memory of type `T`, contiguous,
        // aligned and inside the storage, whose only handle is borrowed mutably.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr().cast(), count) })
    }

    /// The bytes of the elements, in the byte order of this machine.
    ///
    /// # Errors
    ///
    /// As for [`Tensor::as_bytes`].
    pub fn as_bytes(&self) -> Result<&[u8]> {
        self.inner.as_bytes()
    }

    /// The bytes of the elements, for writing.
    ///
    /// # Errors
    ///
    /// As for [`Tensor::as_bytes`].
    pub fn as_mut_bytes(&mut self) -> Result<&mut [u8]> {
        self.inner.check_host()?;
        let bytes = self.len_bytes();
        if bytes == 0 {
            return Ok(&mut []);
        }
        // SAFETY: as in `as_mut_slice`; typed access exists only for elements of which every bit
        // pattern is valid.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr(), bytes) })
    }

    /// Gives the tensor another shape with the same number of elements.
    ///
    /// # Errors
    ///
    /// As for [`Tensor::reshape`]; the tensor is unchanged then.
    pub fn reshape(&mut self, shape: &[usize]) -> Result<()> {
        let layout = self.layout().reshape(shape)?;
        self.inner.set_layout(layout);
        Ok(())
    }

    /// Reduces the tensor to the part `start .. start + len` of dimension `axis`; the rest of the
    /// storage can no longer be reached.
    ///
    /// # Errors
    ///
    /// As for [`Tensor::narrow`]; the tensor is unchanged then.
    pub fn narrow(&mut self, axis: usize, start: usize, len: usize) -> Result<()> {
        let layout = self.layout().narrow(axis, start, len)?;
        self.inner.set_layout(layout);
        Ok(())
    }
}

impl<T: Element> From<Vec<T>> for TensorMut {
    /// A tensor of one dimension over the elements, without copying them.
    fn from(vec: Vec<T>) -> Self {
        Self {
            inner: Tensor::from(vec),
        }
    }
}

impl From<TensorMut> for Tensor {
    fn from(tensor: TensorMut) -> Self {
        tensor.freeze()
    }
}

impl fmt::Debug for TensorMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TensorMut").field(&self.inner).finish()
    }
}
