//! Who owns the bytes of tensors.

use std::alloc::{self, Layout};
use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use bytes::Bytes;

use crate::{Element, Error, ErrorKind, MemoryKind, Result};

/// A piece of memory that tensors share.
///
/// Implemented for pinned, registered, shared or device memory outside this crate; dropping the
/// storage gives the memory back.
///
/// # Safety
///
/// For as long as the storage lives, the implementor promises:
///
/// * [`Storage::as_ptr`], [`Storage::len_bytes`], [`Storage::memory_kind`] and
///   [`Storage::is_writable`] return the same values each time, and the length is at most
///   `isize::MAX`.
/// * The bytes there are initialised and, for a [host](MemoryKind::is_host) kind, may be read by
///   any thread of this process.
/// * Nobody writes to them, in this process or another one, except through a [`TensorMut`] of this
///   storage and what it was lent to.
/// * If [`Storage::is_writable`] is true, they may also be written through that pointer, and nothing
///   outside the storage holds a reference to them.
///
/// [`TensorMut`]: super::TensorMut
pub unsafe trait Storage: Any + Send + Sync + fmt::Debug {
    /// The first byte; any well-aligned address if there is none.
    fn as_ptr(&self) -> NonNull<u8>;

    /// The number of bytes.
    fn len_bytes(&self) -> usize;

    /// Where the bytes lie.
    fn memory_kind(&self) -> MemoryKind;

    /// Whether a unique owner of the storage may write to it.
    fn is_writable(&self) -> bool;
}

/// The elements of a vector that the caller passed in.
pub(super) struct VecStorage<T: Element> {
    first: NonNull<T>,
    len: usize,
    capacity: usize,
}

impl<T: Element> VecStorage<T> {
    pub(super) fn new(vec: Vec<T>) -> Self {
        // The pointer is taken once, mutably, so that it stays good for writing.
        let mut vec = ManuallyDrop::new(vec);
        let first = NonNull::from(vec.as_mut_slice()).cast::<T>();
        Self {
            first,
            len: vec.len(),
            capacity: vec.capacity(),
        }
    }
}

impl<T: Element> Drop for VecStorage<T> {
    fn drop(&mut self) {
        // SAFETY: the three parts were those of one `Vec` and are given back once.
        drop(unsafe { Vec::from_raw_parts(self.first.as_ptr(), self.len, self.capacity) });
    }
}

// SAFETY: the storage owns its elements, which are `Send`, like the `Vec` it came from.
unsafe impl<T: Element> Send for VecStorage<T> {}
// SAFETY: through a shared reference it only gives out its address.
unsafe impl<T: Element> Sync for VecStorage<T> {}

// SAFETY: a vector's elements are initialised, stay in place while nobody grows it, and are owned by
// the storage alone. Every bit pattern of an `Element` is valid, so bytes may be written.
unsafe impl<T: Element> Storage for VecStorage<T> {
    fn as_ptr(&self) -> NonNull<u8> {
        self.first.cast()
    }

    fn len_bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn is_writable(&self) -> bool {
        true
    }
}

impl<T: Element> fmt::Debug for VecStorage<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vec<{}>({} elements)", T::DTYPE, self.len)
    }
}

/// Bytes that others may share: read-only.
#[derive(Debug)]
pub(super) struct BytesStorage(pub(super) Bytes);

// SAFETY: `Bytes` are initialised, immutable and stay in place while a handle lives.
unsafe impl Storage for BytesStorage {
    fn as_ptr(&self) -> NonNull<u8> {
        NonNull::from(&*self.0).cast()
    }

    fn len_bytes(&self) -> usize {
        self.0.len()
    }

    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn is_writable(&self) -> bool {
        false
    }
}

/// Zeroed memory of our own, aligned to a cache line.
///
/// Allocators hand out large zeroed memory without writing to it, but only at the alignment that they
/// give everything; so a little more is asked for, and the start is moved up to the next line.
pub(super) struct AlignedStorage {
    /// What the allocator returned.
    allocated: NonNull<u8>,
    /// The first aligned byte.
    first: NonNull<u8>,
    len: usize,
}

/// The alignment: also the width of the widest vector registers.
const LINE_BYTES: usize = 64;
/// The alignment that every allocation has.
const ALLOCATED_ALIGN_BYTES: usize = 16;

impl AlignedStorage {
    pub(super) fn zeroed(len: usize) -> Result<Self> {
        let layout = Self::layout(len)?;
        // SAFETY: the layout's size is not 0.
        let allocated = unsafe { alloc::alloc_zeroed(layout) };
        let allocated = NonNull::new(allocated).ok_or_else(|| {
            Error::new(ErrorKind::ResourceExhausted, "no memory for a tensor").with("bytes", len)
        })?;
        let ahead =
            allocated.as_ptr().addr().next_multiple_of(LINE_BYTES) - allocated.as_ptr().addr();
        // SAFETY: at most `LINE_BYTES - ALLOCATED_ALIGN_BYTES` ahead, which the allocation has more
        // than `len`.
        let first = unsafe { allocated.add(ahead) };
        Ok(Self {
            allocated,
            first,
            len,
        })
    }

    fn layout(len: usize) -> Result<Layout> {
        let too_large = || {
            Error::new(
                ErrorKind::InvalidArgument,
                "the tensor is larger than the address space",
            )
            .with("bytes", len)
        };
        len.checked_add(LINE_BYTES - ALLOCATED_ALIGN_BYTES)
            .and_then(|size| Layout::from_size_align(size, ALLOCATED_ALIGN_BYTES).ok())
            .ok_or_else(too_large)
    }
}

impl Drop for AlignedStorage {
    fn drop(&mut self) {
        if let Ok(layout) = Self::layout(self.len) {
            // SAFETY: it was allocated with this layout and is freed once.
            unsafe { alloc::dealloc(self.allocated.as_ptr(), layout) };
        }
    }
}

// SAFETY: the storage owns plain bytes.
unsafe impl Send for AlignedStorage {}
// SAFETY: through a shared reference it only gives out its address.
unsafe impl Sync for AlignedStorage {}

// SAFETY: the allocation is zeroed, in place until the drop and owned by the storage alone.
unsafe impl Storage for AlignedStorage {
    fn as_ptr(&self) -> NonNull<u8> {
        self.first
    }

    fn len_bytes(&self) -> usize {
        self.len
    }

    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn is_writable(&self) -> bool {
        true
    }
}

impl fmt::Debug for AlignedStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedStorage({} bytes)", self.len)
    }
}
