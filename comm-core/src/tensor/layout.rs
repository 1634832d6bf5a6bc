//! Which elements of a storage a tensor consists of: pure index arithmetic, no memory access.
//!
//! # Contract
//!
//! A [`TensorLayout`] that exists addresses at most `isize::MAX` bytes: the number of elements, the
//! number of bytes and the end of the last element never overflow, also in every view of it.

use super::dims::Dims;
use crate::{DType, Error, ErrorKind, Result};

/// Element type, shape, strides and offset of a tensor.
///
/// Strides and offset count elements. Strides are never negative; 0 repeats an element, which only
/// read-only tensors may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorLayout {
    dtype: DType,
    shape: Dims,
    strides: Dims,
    offset: usize,
    /// Product of the shape.
    elements: usize,
}

impl TensorLayout {
    /// Row-major elements without gaps, from the start of the storage.
    ///
    /// No dimension means one element; a dimension of 0 means none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the sizes overflow (a 0 counts as 1 in this check, so that
    /// no view of an empty tensor overflows either).
    pub fn contiguous(dtype: DType, shape: &[usize]) -> Result<Self> {
        let mut strides = Dims::filled(shape.len(), 1);
        let mut stride = 1_usize;
        for (axis, &size) in shape.iter().enumerate().rev() {
            strides[axis] = stride;
            stride = stride
                .checked_mul(size.max(1))
                .ok_or_else(|| too_large(dtype, shape))?;
        }
        Self::checked(dtype, Dims::from(shape), strides, 0)
    }

    /// Elements at any non-negative strides, `offset` elements into the storage.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if `shape` and `strides` differ in length or a size overflows.
    pub fn strided(
        dtype: DType,
        shape: &[usize],
        strides: &[usize],
        offset: usize,
    ) -> Result<Self> {
        if shape.len() != strides.len() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "a tensor needs one stride for each dimension",
            )
            .with("shape", format!("{shape:?}"))
            .with("strides", format!("{strides:?}")));
        }
        Self::checked(dtype, Dims::from(shape), Dims::from(strides), offset)
    }

    fn checked(dtype: DType, shape: Dims, strides: Dims, offset: usize) -> Result<Self> {
        let fits = |elements: usize| {
            elements
                .checked_mul(dtype.size_bytes())
                .is_some_and(|bytes| isize::try_from(bytes).is_ok())
        };
        let product = shape
            .iter()
            .try_fold(1_usize, |n, &size| n.checked_mul(size.max(1)));
        let end = shape
            .iter()
            .zip(strides.iter())
            .try_fold(offset, |end, (&size, &stride)| {
                end.checked_add(size.saturating_sub(1).checked_mul(stride)?)
            });
        match (product, end.and_then(|end| end.checked_add(1))) {
            (Some(product), Some(end)) if fits(product) && fits(end) => {
                let elements = if shape.contains(&0) { 0 } else { product };
                Ok(Self {
                    dtype,
                    shape,
                    strides,
                    offset,
                    elements,
                })
            }
            _ => Err(too_large(dtype, &shape)),
        }
    }

    /// The element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The size of each dimension, in elements.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The distance between neighbours in each dimension, in elements.
    #[must_use]
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Where the first element lies in the storage, in elements.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The number of elements: the product of the shape.
    #[must_use]
    pub fn element_count(&self) -> usize {
        self.elements
    }

    /// The size of all elements together, without gaps.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.elements * self.dtype.size_bytes()
    }

    /// The byte of the storage at which the first element starts.
    #[must_use]
    pub fn start_bytes(&self) -> usize {
        self.offset * self.dtype.size_bytes()
    }

    /// The number of bytes that a storage must have at least.
    #[must_use]
    pub fn end_bytes(&self) -> usize {
        let extent = if self.elements == 0 {
            0
        } else {
            1 + self
                .axes()
                .map(|(size, stride)| (size - 1) * stride)
                .sum::<usize>()
        };
        (self.offset + extent) * self.dtype.size_bytes()
    }

    /// Whether the elements lie in row-major order without gaps.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        self.contiguous_tail().0 == 0
    }

    /// The alignment that the address of an element of this type has.
    #[must_use]
    pub fn align_bytes(&self) -> usize {
        match self.dtype {
            // The real and the imaginary part are elements of their own.
            DType::Complex64 | DType::Complex128 => self.dtype.size_bytes() / 2,
            _ => self.dtype.size_bytes(),
        }
    }

    /// Splits the axes: those before the returned one are walked one by one, those from it on cover
    /// the returned number of elements that lie side by side.
    pub(super) fn contiguous_tail(&self) -> (usize, usize) {
        if self.elements == 0 {
            return (0, 0);
        }
        let mut run = 1;
        for (axis, (size, stride)) in self.axes().enumerate().rev() {
            if size != 1 && stride != run {
                return (axis + 1, run);
            }
            run *= size;
        }
        (0, run)
    }

    /// Whether certainly no two indices name the same element: in the order of the strides, each
    /// stride steps over everything that the smaller ones reach.
    pub(super) fn is_free_of_overlap(&self) -> bool {
        if self.elements == 0 {
            return true;
        }
        let mut axes: Vec<_> = self.axes().filter(|(size, _)| *size > 1).collect();
        axes.sort_unstable_by_key(|(_, stride)| *stride);
        let mut reach = 0;
        axes.into_iter().all(|(size, stride)| {
            let free = stride > reach;
            reach += (size - 1) * stride;
            free
        })
    }

    fn axes(&self) -> impl DoubleEndedIterator<Item = (usize, usize)> + ExactSizeIterator + '_ {
        self.shape.iter().copied().zip(self.strides.iter().copied())
    }

    /// The elements `start .. start + len` of one dimension.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the axis or the range does not exist.
    pub fn narrow(&self, axis: usize, start: usize, len: usize) -> Result<Self> {
        let size = self.shape.get(axis).copied();
        if size.is_none_or(|size| start.checked_add(len).is_none_or(|end| end > size)) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the part to narrow to does not lie inside the tensor",
            )
            .with("axis", axis)
            .with("start", start)
            .with("len", len)
            .with("shape", format!("{:?}", self.shape)));
        }
        let mut view = self.clone();
        view.shape[axis] = len;
        view.elements = if view.shape.contains(&0) {
            0
        } else {
            view.shape.iter().product::<usize>()
        };
        // The offset of an empty view means nothing; left alone it stays inside the storage.
        if view.elements > 0 {
            view.offset += start * self.strides[axis];
        }
        Ok(view)
    }

    /// The same elements in another shape.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the number of elements differs or the elements are not
    /// contiguous.
    pub fn reshape(&self, shape: &[usize]) -> Result<Self> {
        let mut view = Self::contiguous(self.dtype, shape)?;
        if view.elements != self.elements {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "a reshape must keep the number of elements",
            )
            .with("from", format!("{:?}", self.shape))
            .with("to", format!("{shape:?}")));
        }
        if !self.is_contiguous() {
            return Err(not_contiguous(self));
        }
        view.offset = self.offset;
        Ok(view)
    }

    /// The same elements with the dimensions in the order `axes`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if `axes` is not a permutation of all axes.
    pub fn permute(&self, axes: &[usize]) -> Result<Self> {
        let mut seen = Dims::filled(self.shape.len(), 0);
        let complete = axes.len() == seen.len()
            && axes.iter().all(|&axis| {
                seen.get_mut(axis)
                    .is_some_and(|n| std::mem::replace(n, 1) == 0)
            });
        if !complete {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "a permutation must name each axis once",
            )
            .with("axes", format!("{axes:?}"))
            .with("shape", format!("{:?}", self.shape)));
        }
        let mut view = self.clone();
        for (to, &from) in axes.iter().enumerate() {
            view.shape[to] = self.shape[from];
            view.strides[to] = self.strides[from];
        }
        Ok(view)
    }
}

fn too_large(dtype: DType, shape: &[usize]) -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        "the tensor would be larger than the address space; check its shape, strides and offset",
    )
    .with("dtype", dtype)
    .with("shape", format!("{shape:?}"))
}

pub(super) fn not_contiguous(layout: &TensorLayout) -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        "the tensor must be contiguous here; use `pack()` for a contiguous copy",
    )
    .with("shape", format!("{:?}", layout.shape))
    .with("strides", format!("{:?}", layout.strides))
}
