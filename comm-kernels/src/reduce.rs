//! Reduction kernels: generic loops, compiled per element type, operator and instruction set.

use std::fmt;
use std::mem::MaybeUninit;

use comm_core::{DType, Error, ErrorKind, ReduceOp, Result};
use half::{bf16, f16};

use super::Isa;
use super::copy::copy_streaming;
use super::lane::Lane;
use super::loops::{self, Combine, Max, Min, Prod, Sum};
#[cfg(target_arch = "x86_64")]
use super::packs::{Bf16x16, F16x8, Pack};
use super::prefetch;

/// The reduction kernels for one element type and operator, chosen for this processor.
///
/// Making one looks the kernels up; using it costs an indirect call. Pointers have any alignment,
/// counts are in elements and may be 0 (the pointers are not touched then).
#[derive(Clone, Copy)]
pub struct Reducer {
    dtype: DType,
    op: ReduceOp,
    isa: Isa,
    kernels: &'static Kernels,
    /// Whether lines are asked for ahead.
    far: bool,
}

/// A part of a streamed destination.
const BLOCK_BYTES: usize = 8 << 10;

/// On a cache line, so that whole lines are copied.
#[repr(align(64))]
struct Block {
    /// Only used through a pointer.
    _bytes: [u8; BLOCK_BYTES],
}

/// What was compiled for one combination.
struct Kernels {
    reduce: unsafe fn(*mut u8, *const u8, *const u8, usize),
    reduce2: unsafe fn(*mut u8, *mut u8, *const u8, *const u8, usize),
    /// Destination, sources, at which byte of each, count, ranks to divide by.
    reduce_many: unsafe fn(*mut u8, &[*const u8], usize, usize, u32),
    scale: unsafe fn(*mut u8, usize, u32),
}

impl Reducer {
    /// The kernels for elements of `dtype` combined by `op`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] for an element type that can only be moved.
    pub fn new(dtype: DType, op: ReduceOp) -> Result<Self> {
        Self::for_isa(dtype, op, Isa::detect())
    }

    pub(super) fn for_isa(dtype: DType, op: ReduceOp, isa: Isa) -> Result<Self> {
        let kernels = match dtype {
            DType::I8 => lookup::<i8>(op, isa),
            DType::U8 => lookup::<u8>(op, isa),
            DType::I32 => lookup::<i32>(op, isa),
            DType::U32 => lookup::<u32>(op, isa),
            DType::I64 => lookup::<i64>(op, isa),
            DType::U64 => lookup::<u64>(op, isa),
            #[cfg(target_arch = "x86_64")]
            DType::F16 if isa == Isa::Avx2 => lookup_packs::<F16x8>(op),
            #[cfg(target_arch = "x86_64")]
            DType::Bf16 if isa == Isa::Avx2 => lookup_packs::<Bf16x16>(op),
            DType::F16 => lookup::<f16>(op, isa),
            DType::Bf16 => lookup::<bf16>(op, isa),
            DType::F32 => lookup::<f32>(op, isa),
            DType::F64 => lookup::<f64>(op, isa),
            _ => None,
        };
        let kernels = kernels.ok_or_else(|| {
            Error::new(
                ErrorKind::Unsupported,
                "elements of this type can be moved but not reduced; convert them first",
            )
            .with("dtype", dtype)
            .with("op", op)
        })?;
        Ok(Self {
            dtype,
            op,
            isa,
            kernels,
            far: false,
        })
    }

    /// The same kernels for operands whose lines are far: in memory, or in other cores' caches. They are
    /// asked for ahead, which costs operands that are near a fifth to a half of their speed.
    #[must_use]
    pub const fn far(mut self) -> Self {
        self.far = true;
        self
    }

    /// The element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The operator.
    #[must_use]
    pub fn op(&self) -> ReduceOp {
        self.op
    }

    /// `dst[i] = a[i] op b[i]`.
    ///
    /// # Safety
    ///
    /// `a` and `b` are valid for reading and `dst` for writing `count` elements. `dst` is `a`, `b`,
    /// both, or overlaps neither.
    #[inline]
    pub unsafe fn reduce(&self, dst: *mut u8, a: *const u8, b: *const u8, count: usize) {
        if self.is_near(count) {
            // SAFETY: the caller's promise; `new` checked the instruction set.
            unsafe { (self.kernels.reduce)(dst, a, b, count) };
            return;
        }
        for (at, elements) in self.blocks(count, &[a, b], &[dst]) {
            let [a, b] = [a, b].map(|source| source.wrapping_add(at));
            // SAFETY: the caller's promise, for these elements; `new` checked the instruction set.
            unsafe { (self.kernels.reduce)(dst.wrapping_add(at), a, b, elements) };
        }
    }

    /// [`Reducer::reduce`] with stores that pass the caches by.
    ///
    /// Worth it for a destination that is larger than the caches: its lines are not read first. A later
    /// release store orders these stores like others.
    ///
    /// # Safety
    ///
    /// As for [`Reducer::reduce`].
    pub unsafe fn reduce_streaming(&self, dst: *mut u8, a: *const u8, b: *const u8, count: usize) {
        // Through a block that stays in the first-level cache.
        let mut block = MaybeUninit::<Block>::uninit();
        let block = block.as_mut_ptr().cast::<u8>();
        let element_bytes = self.dtype.size_bytes();
        let in_block = BLOCK_BYTES / element_bytes;
        let mut done = 0;
        while done < count {
            let elements = in_block.min(count - done);
            let at = done * element_bytes;
            let [a, b] = [a, b].map(|source| source.wrapping_add(at));
            // SAFETY: the caller's promise; the block has room for `in_block` elements.
            unsafe { self.reduce(block, a, b, elements) };
            let bytes = elements * element_bytes;
            // SAFETY: the caller's promise; the block holds these elements.
            unsafe { copy_streaming(dst.wrapping_add(at), block, bytes, 0) };
            done += elements;
        }
    }

    /// `dst0[i] = dst1[i] = a[i] op b[i]`: keeps a result and forwards it, reading once.
    ///
    /// # Safety
    ///
    /// As for [`Reducer::reduce`], for each of the destinations, which do not overlap each other.
    #[inline]
    pub unsafe fn reduce2(
        &self,
        dst0: *mut u8,
        dst1: *mut u8,
        a: *const u8,
        b: *const u8,
        count: usize,
    ) {
        for (at, elements) in self.blocks(count, &[a, b], &[dst0, dst1]) {
            let [a, b] = [a, b].map(|source| source.wrapping_add(at));
            let [dst0, dst1] = [dst0, dst1].map(|dst| dst.wrapping_add(at));
            // SAFETY: the caller's promise, for these elements; `new` checked the instruction set.
            unsafe { (self.kernels.reduce2)(dst0, dst1, a, b, elements) };
        }
    }

    /// `dst[i] = ((sources[0][i] op sources[1][i]) op sources[2][i]) ...`, in the accumulator type
    /// and rounded once. Without sources `dst` is left alone.
    ///
    /// # Safety
    ///
    /// Each source is valid for reading and `dst` for writing `count` elements. `dst` is one or
    /// several of the sources or overlaps none.
    #[inline]
    pub unsafe fn reduce_many(&self, dst: *mut u8, sources: &[*const u8], count: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.reduce_many_scaled(dst, sources, count, 1) };
    }

    /// [`Reducer::reduce_many`], then divided by `ranks` in the accumulator type, before the one
    /// rounding: a whole `Avg`.
    ///
    /// # Safety
    ///
    /// As for [`Reducer::reduce_many`].
    #[inline]
    pub unsafe fn reduce_many_scaled(
        &self,
        dst: *mut u8,
        sources: &[*const u8],
        count: usize,
        ranks: u32,
    ) {
        if self.is_near(count) {
            // SAFETY: the caller's promise; `new` checked the instruction set.
            unsafe { (self.kernels.reduce_many)(dst, sources, 0, count, ranks) };
            return;
        }
        for (at, elements) in self.blocks(count, sources, &[dst]) {
            // SAFETY: the caller's promise, for these elements; `new` checked the instruction set.
            unsafe { (self.kernels.reduce_many)(dst, sources, at, elements, ranks) };
        }
    }

    /// Whether none of these elements is to be asked for ahead.
    #[inline]
    fn is_near(&self, count: usize) -> bool {
        !self.far || count * self.dtype.size_bytes() <= prefetch::READ_BYTES
    }

    /// The blocks in which elements are reduced: at which byte each begins, and its elements. Lines of
    /// later blocks are asked for on the way.
    #[inline]
    fn blocks<'a>(
        &self,
        count: usize,
        sources: &'a [*const u8],
        destinations: &'a [*mut u8],
    ) -> impl Iterator<Item = (usize, usize)> + use<'a> {
        let element_bytes = self.dtype.size_bytes();
        let (bytes, in_block) = (count * element_bytes, prefetch::BLOCK_BYTES / element_bytes);
        (0..count).step_by(in_block).map(move |done| {
            let at = done * element_bytes;
            for source in sources {
                prefetch::read(*source, at, prefetch::BLOCK_BYTES, bytes);
            }
            for destination in destinations {
                prefetch::write(*destination, at, prefetch::BLOCK_BYTES, bytes);
            }
            (at, in_block.min(count - done))
        })
    }

    /// `dst[i] = dst[i] / ranks`, integers towards zero. A number of 0 counts as 1.
    ///
    /// # Safety
    ///
    /// `dst` is valid for reading and writing `count` elements.
    #[inline]
    pub unsafe fn scale(&self, dst: *mut u8, count: usize, ranks: u32) {
        // SAFETY: the caller's promise; `new` checked the instruction set.
        unsafe { (self.kernels.scale)(dst, count, ranks) };
    }
}

impl fmt::Debug for Reducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reducer({} {}, {:?})", self.dtype, self.op, self.isa)
    }
}

fn lookup<T: Lane + 'static>(op: ReduceOp, isa: Isa) -> Option<&'static Kernels> {
    Some(match op {
        ReduceOp::Sum | ReduceOp::Avg => compiled::<T, Sum>(isa),
        ReduceOp::Prod => compiled::<T, Prod>(isa),
        ReduceOp::Min => compiled::<T, Min>(isa),
        ReduceOp::Max => compiled::<T, Max>(isa),
        _ => return None,
    })
}

#[cfg(target_arch = "x86_64")]
fn lookup_packs<P: Pack + 'static>(op: ReduceOp) -> Option<&'static Kernels> {
    Some(match op {
        ReduceOp::Sum | ReduceOp::Avg => packed::compiled::<P, Sum>(),
        ReduceOp::Prod => packed::compiled::<P, Prod>(),
        ReduceOp::Min => packed::compiled::<P, Min>(),
        ReduceOp::Max => packed::compiled::<P, Max>(),
        _ => return None,
    })
}

fn compiled<T: Lane + 'static, O: Combine + 'static>(isa: Isa) -> &'static Kernels {
    match isa {
        Isa::Baseline => {
            const {
                &Kernels {
                    reduce: loops::reduce::<T, O>,
                    reduce2: loops::reduce2::<T, O>,
                    reduce_many: loops::reduce_many::<T, O>,
                    scale: loops::scale::<T>,
                }
            }
        }
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => {
            const {
                &Kernels {
                    reduce: avx2::reduce::<T, O>,
                    reduce2: avx2::reduce2::<T, O>,
                    reduce_many: avx2::reduce_many::<T, O>,
                    scale: avx2::scale::<T>,
                }
            }
        }
    }
}

/// The loops with AVX2 and F16C enabled. FMA is not: a contraction would change results.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Combine, Lane, loops};

    #[target_feature(enable = "avx2,f16c")]
    pub(super) unsafe fn reduce<T: Lane, O: Combine>(
        dst: *mut u8,
        a: *const u8,
        b: *const u8,
        count: usize,
    ) {
        // SAFETY: the caller's promise.
        unsafe { loops::reduce::<T, O>(dst, a, b, count) };
    }

    #[target_feature(enable = "avx2,f16c")]
    pub(super) unsafe fn reduce2<T: Lane, O: Combine>(
        dst0: *mut u8,
        dst1: *mut u8,
        a: *const u8,
        b: *const u8,
        count: usize,
    ) {
        // SAFETY: the caller's promise.
        unsafe { loops::reduce2::<T, O>(dst0, dst1, a, b, count) };
    }

    #[target_feature(enable = "avx2,f16c")]
    pub(super) unsafe fn reduce_many<T: Lane, O: Combine>(
        dst: *mut u8,
        sources: &[*const u8],
        first: usize,
        count: usize,
        ranks: u32,
    ) {
        // SAFETY: the caller's promise.
        unsafe { loops::reduce_many::<T, O>(dst, sources, first, count, ranks) };
    }

    #[target_feature(enable = "avx2,f16c")]
    pub(super) unsafe fn scale<T: Lane>(dst: *mut u8, count: usize, ranks: u32) {
        // SAFETY: the caller's promise.
        unsafe { loops::scale::<T>(dst, count, ranks) };
    }
}

/// 16-bit floats with AVX2 and F16C: packs, then the rest one by one.
#[cfg(target_arch = "x86_64")]
mod packed {
    use super::{Combine, Kernels, Pack, avx2};

    pub(super) fn compiled<P: Pack + 'static, O: Combine + 'static>() -> &'static Kernels {
        const {
            &Kernels {
                reduce: reduce::<P, O>,
                reduce2: reduce2::<P, O>,
                reduce_many: reduce_many::<P, O>,
                scale: scale::<P>,
            }
        }
    }

    unsafe fn reduce<P: Pack, O: Combine>(dst: *mut u8, a: *const u8, b: *const u8, count: usize) {
        let (packs, rest) = (count / P::ELEMENTS, count % P::ELEMENTS);
        // SAFETY: the caller's promise, for the packs.
        unsafe { avx2::reduce::<P, O>(dst, a, b, packs) };
        let at = packs * size_of::<P>();
        let dst = dst.wrapping_add(at);
        let [a, b] = [a, b].map(|source| source.wrapping_add(at));
        // SAFETY: the caller's promise, for the rest.
        unsafe { avx2::reduce::<P::Element, O>(dst, a, b, rest) };
    }

    unsafe fn reduce2<P: Pack, O: Combine>(
        dst0: *mut u8,
        dst1: *mut u8,
        a: *const u8,
        b: *const u8,
        count: usize,
    ) {
        let (packs, rest) = (count / P::ELEMENTS, count % P::ELEMENTS);
        // SAFETY: the caller's promise, for the packs.
        unsafe { avx2::reduce2::<P, O>(dst0, dst1, a, b, packs) };
        let at = packs * size_of::<P>();
        let [dst0, dst1] = [dst0, dst1].map(|dst| dst.wrapping_add(at));
        let [a, b] = [a, b].map(|source| source.wrapping_add(at));
        // SAFETY: the caller's promise, for the rest.
        unsafe { avx2::reduce2::<P::Element, O>(dst0, dst1, a, b, rest) };
    }

    unsafe fn reduce_many<P: Pack, O: Combine>(
        dst: *mut u8,
        sources: &[*const u8],
        first: usize,
        count: usize,
        ranks: u32,
    ) {
        let (packs, rest) = (count / P::ELEMENTS, count % P::ELEMENTS);
        // SAFETY: the caller's promise, for the packs.
        unsafe { avx2::reduce_many::<P, O>(dst, sources, first, packs, ranks) };
        let at = packs * size_of::<P>();
        // SAFETY: the caller's promise, for the rest.
        unsafe { avx2::reduce_many::<P::Element, O>(dst, sources, first + at, rest, ranks) };
    }

    unsafe fn scale<P: Pack>(dst: *mut u8, count: usize, ranks: u32) {
        let (packs, rest) = (count / P::ELEMENTS, count % P::ELEMENTS);
        // SAFETY: the caller's promise, for the packs.
        unsafe { avx2::scale::<P>(dst, packs, ranks) };
        let dst = dst.wrapping_add(packs * size_of::<P>());
        // SAFETY: the caller's promise, for the rest.
        unsafe { avx2::scale::<P::Element>(dst, rest, ranks) };
    }
}
