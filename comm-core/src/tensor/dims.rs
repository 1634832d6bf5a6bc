//! A short list of sizes or strides that needs no allocation for the usual ranks.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// Up to this many dimensions live inside the value.
const INLINE: usize = 4;

/// An owned, fixed-length `[usize]`.
#[derive(Clone)]
pub(super) enum Dims {
    Inline { len: u8, values: [usize; INLINE] },
    Heap(Box<[usize]>),
}

impl Dims {
    pub(super) fn filled(len: usize, value: usize) -> Self {
        if len <= INLINE {
            Self::Inline {
                len: len as u8,
                values: [value; INLINE],
            }
        } else {
            Self::Heap(vec![value; len].into())
        }
    }
}

impl From<&[usize]> for Dims {
    fn from(dims: &[usize]) -> Self {
        let mut copy = Self::filled(dims.len(), 0);
        copy.copy_from_slice(dims);
        copy
    }
}

impl Deref for Dims {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        match self {
            Self::Inline { len, values } => &values[..usize::from(*len)],
            Self::Heap(values) => values,
        }
    }
}

impl DerefMut for Dims {
    fn deref_mut(&mut self) -> &mut [usize] {
        match self {
            Self::Inline { len, values } => &mut values[..usize::from(*len)],
            Self::Heap(values) => values,
        }
    }
}

impl PartialEq for Dims {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Dims {}

impl fmt::Debug for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
