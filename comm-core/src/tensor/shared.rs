//! [`Tensor`]: the shared, read-only handle.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::layout::not_contiguous;
use super::storage::{AlignedStorage, BytesStorage, VecStorage};
use super::{Storage, TensorLayout, TensorMut};
use crate::{DType, Element, Error, ErrorKind, MemoryKind, Result};

/// A shared, read-only tensor; cloning it copies a reference.
///
/// See the [module](super) for the contract.
#[derive(Clone)]
pub struct Tensor {
    storage: Arc<dyn Storage>,
    layout: TensorLayout,
}

impl Tensor {
    /// A tensor over the elements of `vec`, row-major, without copying them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the number of elements does not fit the shape.
    pub fn from_vec<T: Element>(vec: Vec<T>, shape: &[usize]) -> Result<Self> {
        let layout = filled_layout(T::DTYPE, shape, vec.len() * size_of::<T>())?;
        Self::from_storage(Arc::new(VecStorage::new(vec)), layout)
    }

    /// A tensor with a copy of `elements`, row-major.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the number of elements does not fit the shape.
    pub fn from_slice<T: Element>(elements: &[T], shape: &[usize]) -> Result<Self> {
        filled_layout(T::DTYPE, shape, size_of_val(elements))?;
        Self::from_vec(elements.to_vec(), shape)
    }

    /// A tensor over `bytes`, row-major and in the byte order of this machine, without copying them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the number of bytes does not fit the shape, or if the first
    /// byte is not aligned to the element type (copy the bytes into
    /// [`TensorMut::zeros`] then).
    pub fn from_bytes(bytes: Bytes, dtype: DType, shape: &[usize]) -> Result<Self> {
        let layout = filled_layout(dtype, shape, bytes.len())?;
        Self::from_storage(Arc::new(BytesStorage(bytes)), layout)
    }

    /// A tensor of zeros in fresh host memory that is aligned to 64 bytes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the size overflows, [`ErrorKind::ResourceExhausted`] if
    /// there is not that much memory.
    pub fn zeros(dtype: DType, shape: &[usize]) -> Result<Self> {
        let layout = TensorLayout::contiguous(dtype, shape)?;
        let storage = AlignedStorage::zeroed(layout.len_bytes())?;
        Self::from_storage(Arc::new(storage), layout)
    }

    /// The elements that `layout` picks from `storage`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if an element would lie outside the storage or not be aligned
    /// to its type.
    pub fn from_storage(storage: Arc<dyn Storage>, layout: TensorLayout) -> Result<Self> {
        let bad = |message: &'static str| {
            Error::new(ErrorKind::InvalidArgument, message)
                .with("dtype", layout.dtype())
                .with("shape", format!("{:?}", layout.shape()))
                .with("storage_bytes", storage.len_bytes())
        };
        if layout.end_bytes() > storage.len_bytes() {
            return Err(bad("the tensor reaches beyond the end of its storage"));
        }
        let first = storage.as_ptr().addr().get();
        if layout.element_count() > 0 && !first.is_multiple_of(layout.align_bytes()) {
            return Err(bad(
                "the storage is not aligned to the element type; copy it into an aligned one",
            )
            .with("align_bytes", layout.align_bytes()));
        }
        Ok(Self { storage, layout })
    }

    /// The same storage under a layout that was derived from this tensor's.
    fn view(&self, layout: TensorLayout) -> Self {
        Self {
            storage: Arc::clone(&self.storage),
            layout,
        }
    }

    pub(super) fn set_layout(&mut self, layout: TensorLayout) {
        self.layout = layout;
    }

    pub(super) fn storage_mut(&mut self) -> &mut Arc<dyn Storage> {
        &mut self.storage
    }

    /// Element type, shape, strides and offset.
    #[must_use]
    pub fn layout(&self) -> &TensorLayout {
        &self.layout
    }

    /// The element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.layout.dtype()
    }

    /// The size of each dimension, in elements.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.layout.shape()
    }

    /// The number of elements.
    #[must_use]
    pub fn element_count(&self) -> usize {
        self.layout.element_count()
    }

    /// The size of all elements together, without gaps.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.layout.len_bytes()
    }

    /// Where the elements lie.
    #[must_use]
    pub fn memory_kind(&self) -> MemoryKind {
        self.storage.memory_kind()
    }

    /// Whether the elements lie in row-major order without gaps.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }

    /// The owner of the bytes. Two tensors share memory exactly if this is the same object.
    #[must_use]
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// The address of the first element; without elements, some address that must not be read.
    ///
    /// Valid for reads, by whoever can read this [kind](Tensor::memory_kind) of memory, while a
    /// handle of the storage lives.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        // Inside the storage (checked at construction), so it does not wrap.
        self.storage
            .as_ptr()
            .as_ptr()
            .wrapping_add(self.layout.start_bytes())
    }

    /// The elements.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the element type is another one, the memory is not on the
    /// host, or the tensor is not contiguous.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        self.check_access::<T>()?;
        if self.element_count() == 0 {
            return Ok(&[]);
        }
        // SAFETY: the elements are initialised host memory of type `T`, contiguous, aligned and
        // inside the storage, which lives as long as `self` and is not written meanwhile.
        Ok(unsafe { std::slice::from_raw_parts(self.as_ptr().cast(), self.element_count()) })
    }

    /// The bytes of the elements, in the byte order of this machine.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the memory is not on the host or the tensor is not
    /// contiguous.
    pub fn as_bytes(&self) -> Result<&[u8]> {
        self.check_host()?;
        if self.element_count() == 0 {
            return Ok(&[]);
        }
        // SAFETY: as in `as_slice`; any initialised memory can be read as bytes.
        Ok(unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len_bytes()) })
    }

    /// A copy of the elements in row-major order.
    ///
    /// # Errors
    ///
    /// As for [`Tensor::as_slice`], except that the tensor need not be contiguous.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        Ok(self.pack()?.as_slice()?.to_vec())
    }

    pub(super) fn check_access<T: Element>(&self) -> Result<()> {
        if self.dtype() != T::DTYPE {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the tensor holds elements of another type",
            )
            .with("holds", self.dtype())
            .with("asked", T::DTYPE));
        }
        self.check_host()
    }

    pub(super) fn check_host(&self) -> Result<()> {
        if !self.memory_kind().is_host() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the CPU cannot access the tensor's memory; copy the tensor to the host first",
            )
            .with("memory", self.memory_kind()));
        }
        if self.is_contiguous() {
            Ok(())
        } else {
            Err(not_contiguous(&self.layout))
        }
    }

    /// The part of the first dimension in `range`, as a view.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if there is no dimension or the range does not lie inside it.
    pub fn slice(&self, range: Range<usize>) -> Result<Self> {
        self.narrow(0, range.start, range.end.saturating_sub(range.start))
    }

    /// The part `start .. start + len` of dimension `axis`, as a view.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the axis or the range does not exist.
    pub fn narrow(&self, axis: usize, start: usize, len: usize) -> Result<Self> {
        Ok(self.view(self.layout.narrow(axis, start, len)?))
    }

    /// The same elements in another shape, as a view.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the number of elements differs or the tensor is not
    /// contiguous.
    pub fn reshape(&self, shape: &[usize]) -> Result<Self> {
        Ok(self.view(self.layout.reshape(shape)?))
    }

    /// The dimensions in the order `axes`, as a view; in general no longer contiguous.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if `axes` does not name each axis once.
    pub fn permute(&self, axes: &[usize]) -> Result<Self> {
        Ok(self.view(self.layout.permute(axes)?))
    }

    /// A contiguous tensor with the same elements: another handle of this one if it is contiguous,
    /// otherwise a copy in fresh host memory.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] for a tensor that is neither contiguous nor on the host,
    /// [`ErrorKind::ResourceExhausted`] without memory for the copy.
    pub fn pack(&self) -> Result<Self> {
        if self.is_contiguous() {
            return Ok(self.clone());
        }
        if !self.memory_kind().is_host() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "only host tensors can be packed; pack it with the device's own library",
            )
            .with("memory", self.memory_kind()));
        }
        let packed = Self::zeros(self.dtype(), self.shape())?;
        let (outer_axes, run) = self.layout.contiguous_tail();
        let element_bytes = self.dtype().size_bytes();
        let run_bytes = run * element_bytes;
        let shape = &self.shape()[..outer_axes];
        let strides = &self.layout.strides()[..outer_axes];
        let mut index = vec![0_usize; outer_axes];
        let mut to = packed.storage.as_ptr().as_ptr();
        for _ in 0..self.element_count() / run {
            let from: usize = index
                .iter()
                .zip(strides)
                .map(|(i, stride)| i * stride)
                .sum();
            let from = self.as_ptr().wrapping_add(from * element_bytes);
            // SAFETY: the run lies inside this storage, and the runs before it filled the fresh
            // one, which nobody else knows yet, exactly up to `to`.
            unsafe { std::ptr::copy_nonoverlapping(from, to, run_bytes) };
            to = to.wrapping_add(run_bytes);
            for (i, &size) in index.iter_mut().zip(shape).rev() {
                *i += 1;
                if *i < size {
                    break;
                }
                *i = 0;
            }
        }
        Ok(packed)
    }

    /// The writable form, if this is the only handle of a writable storage on the host and no two
    /// indices share an element; otherwise the tensor itself.
    ///
    /// # Errors
    ///
    /// The unchanged tensor.
    pub fn try_into_mut(self) -> Result<TensorMut, Self> {
        if !self.memory_kind().is_host() {
            return Err(self);
        }
        TensorMut::from_unique(self)
    }
}

/// The row-major layout that `bytes` bytes fill exactly.
pub(super) fn filled_layout(dtype: DType, shape: &[usize], bytes: usize) -> Result<TensorLayout> {
    let layout = TensorLayout::contiguous(dtype, shape)?;
    if layout.len_bytes() == bytes {
        return Ok(layout);
    }
    Err(Error::new(
        ErrorKind::InvalidArgument,
        "the data does not fill the shape exactly",
    )
    .with("dtype", dtype)
    .with("shape", format!("{shape:?}"))
    .with("needed_bytes", layout.len_bytes())
    .with("given_bytes", bytes))
}

impl<T: Element> From<Vec<T>> for Tensor {
    /// A tensor of one dimension over the elements, without copying them.
    fn from(vec: Vec<T>) -> Self {
        let shape = [vec.len()];
        Self::from_vec(vec, &shape).expect("a vector fills a shape of its own length")
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor")
            .field("dtype", &self.dtype())
            .field("shape", &self.shape())
            .field("strides", &self.layout.strides())
            .field("offset", &self.layout.offset())
            .field("memory", &self.memory_kind())
            .finish_non_exhaustive()
    }
}
