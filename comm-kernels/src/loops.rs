//! The loops of the reduction kernels, generic over element type and operator.
//!
//! Written for the compiler's loop vectoriser and inlined into functions that enable an instruction
//! set. Where a destination is one of the sources the loop gets one pointer for both: the
//! vectoriser's overlap check of two equal pointers would send it to the scalar version.
//!
//! `add` instead of `wrapping_add` tells the vectoriser that addresses do not wrap.

use std::mem::MaybeUninit;

use super::lane::Lane;
use super::number::Number;

/// A binary operator as a type, so that the loops are compiled for it.
pub(super) trait Combine {
    fn combine<N: Number>(a: N, b: N) -> N;
}

macro_rules! operators {
    ($($name:ident => $function:ident),*) => {$(
        pub(super) struct $name;

        impl Combine for $name {
            #[inline(always)]
            fn combine<N: Number>(a: N, b: N) -> N {
                N::$function(a, b)
            }
        }
    )*};
}

operators!(Sum => sum, Prod => prod, Min => min, Max => max);

/// The value of element `index`.
///
/// # Safety
///
/// `src` is valid for reading element `index`.
#[inline(always)]
unsafe fn load<T: Lane>(src: *const u8, index: usize) -> T::Acc {
    // SAFETY: the element lies inside the range that the caller vouches for.
    let src = unsafe { src.cast::<T>().add(index) };
    // SAFETY: as above; every bit pattern is a value.
    unsafe { src.read_unaligned() }.widen()
}

/// # Safety
///
/// `dst` is valid for writing element `index`.
#[inline(always)]
unsafe fn store<T: Lane>(dst: *mut u8, index: usize, value: T::Acc) {
    // SAFETY: the element lies inside the range that the caller vouches for.
    let dst = unsafe { dst.cast::<T>().add(index) };
    // SAFETY: as above.
    unsafe { dst.write_unaligned(T::narrow(value)) };
}

/// # Safety
///
/// As for [`Reducer::reduce`](super::Reducer::reduce).
#[inline(always)]
pub(super) unsafe fn reduce<T: Lane, O: Combine>(
    dst: *mut u8,
    a: *const u8,
    b: *const u8,
    count: usize,
) {
    if dst.cast_const() == a {
        // SAFETY: the caller's promise.
        unsafe { combine::<T, O>(dst, dst, b, count) };
    } else if dst.cast_const() == b {
        // SAFETY: the caller's promise.
        unsafe { combine::<T, O>(dst, a, dst, count) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { combine::<T, O>(dst, a, b, count) };
    }
}

/// # Safety
///
/// As for [`reduce`].
#[inline(always)]
unsafe fn combine<T: Lane, O: Combine>(dst: *mut u8, a: *const u8, b: *const u8, count: usize) {
    for index in 0..count {
        // SAFETY: the caller's promise.
        let left = unsafe { load::<T>(a, index) };
        // SAFETY: the caller's promise.
        let right = unsafe { load::<T>(b, index) };
        // SAFETY: the caller's promise.
        unsafe { store::<T>(dst, index, O::combine(left, right)) };
    }
}

/// # Safety
///
/// As for [`Reducer::reduce2`](super::Reducer::reduce2).
#[inline(always)]
pub(super) unsafe fn reduce2<T: Lane, O: Combine>(
    dst0: *mut u8,
    dst1: *mut u8,
    a: *const u8,
    b: *const u8,
    count: usize,
) {
    // Both in place, in either order: the loops see the same pointers and need no check for overlap,
    // which would fail and leave the scalar loop.
    if dst0.cast_const() == a && dst1.cast_const() == b {
        // SAFETY: the caller's promise.
        unsafe { combine2::<T, O>(dst0, dst1, dst0, dst1, count) };
        return;
    }
    if dst0.cast_const() == b && dst1.cast_const() == a {
        // SAFETY: the caller's promise.
        unsafe { combine2::<T, O>(dst0, dst1, dst1, dst0, count) };
        return;
    }
    // The destinations are alike: the one that is a source comes first.
    let swap = dst1.cast_const() == a || dst1.cast_const() == b;
    let (dst0, dst1) = if swap { (dst1, dst0) } else { (dst0, dst1) };
    if dst0.cast_const() == a {
        // SAFETY: the caller's promise.
        unsafe { combine2::<T, O>(dst0, dst1, dst0, b, count) };
    } else if dst0.cast_const() == b {
        // SAFETY: the caller's promise.
        unsafe { combine2::<T, O>(dst0, dst1, a, dst0, count) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { combine2::<T, O>(dst0, dst1, a, b, count) };
    }
}

/// # Safety
///
/// As for [`reduce2`].
#[inline(always)]
unsafe fn combine2<T: Lane, O: Combine>(
    dst0: *mut u8,
    dst1: *mut u8,
    a: *const u8,
    b: *const u8,
    count: usize,
) {
    for index in 0..count {
        // SAFETY: the caller's promise.
        let left = unsafe { load::<T>(a, index) };
        // SAFETY: the caller's promise.
        let right = unsafe { load::<T>(b, index) };
        let value = O::combine(left, right);
        // SAFETY: the caller's promise.
        unsafe { store::<T>(dst0, index, value) };
        // SAFETY: the caller's promise.
        unsafe { store::<T>(dst1, index, value) };
    }
}

/// Elements that [`reduce_many`] accumulates at a time; their accumulators stay in the first-level
/// cache.
const CHUNK: usize = 128;

/// Reduces the elements that start `first_bytes` into `dst` and each source.
///
/// A chunk of accumulators on the stack makes every loop one over two or three pointers of which
/// the compiler knows that they do not overlap, whatever the number of sources. The first loop
/// takes two sources and the last one takes a source and stores, so it is one loop less than there
/// are sources.
///
/// # Safety
///
/// As for [`Reducer::reduce_many_scaled`](super::Reducer::reduce_many_scaled), for these elements.
#[inline(always)]
pub(super) unsafe fn reduce_many<T: Lane, O: Combine>(
    dst: *mut u8,
    sources: &[*const u8],
    first_bytes: usize,
    count: usize,
    ranks: u32,
) {
    let mut chunk = [const { MaybeUninit::<T::Acc>::uninit() }; CHUNK];
    let mut done = 0;
    while done < count {
        let chunk = &mut chunk[..CHUNK.min(count - done)];
        let at = first_bytes + done * size_of::<T>();
        let dst = dst.wrapping_add(at);
        done += chunk.len();
        // In the loops below, indices of the chunk lie inside the elements that the caller vouches
        // for, and the first loop of each arm initialises the accumulators.
        match *sources {
            [] => return,
            [ref first @ .., last] if first.len() < 2 => {
                // One source, or two of which `first` is the first.
                let initial = first.first().copied().unwrap_or(last).wrapping_add(at);
                for (index, acc) in chunk.iter_mut().enumerate() {
                    // SAFETY: see above.
                    acc.write(unsafe { load::<T>(initial, index) });
                }
                if !first.is_empty() {
                    // SAFETY: see above.
                    unsafe { accumulate::<T, O>(chunk, last.wrapping_add(at)) };
                }
                for (index, acc) in chunk.iter().enumerate() {
                    // SAFETY: see above.
                    let acc = unsafe { acc.assume_init() };
                    // SAFETY: see above.
                    unsafe { store::<T>(dst, index, divided(acc, ranks)) };
                }
            }
            [first, second, ref middle @ .., last] => {
                let [first, second, last] =
                    [first, second, last].map(|source| source.wrapping_add(at));
                for (index, acc) in chunk.iter_mut().enumerate() {
                    // SAFETY: see above.
                    let left = unsafe { load::<T>(first, index) };
                    // SAFETY: see above.
                    let right = unsafe { load::<T>(second, index) };
                    acc.write(O::combine(left, right));
                }
                for source in middle {
                    // SAFETY: see above.
                    unsafe { accumulate::<T, O>(chunk, source.wrapping_add(at)) };
                }
                // One pointer for both if they are equal, as in `reduce`.
                if dst.cast_const() == last {
                    // SAFETY: see above.
                    unsafe { finish::<T, O>(chunk, dst, dst, ranks) };
                } else {
                    // SAFETY: see above.
                    unsafe { finish::<T, O>(chunk, last, dst, ranks) };
                }
            }
            _ => return,
        }
    }
}

#[inline(always)]
fn divided<N: Number>(value: N, ranks: u32) -> N {
    if ranks > 1 {
        value.divide(ranks)
    } else {
        value
    }
}

/// # Safety
///
/// `chunk` is initialised and `source` valid for reading as many elements.
#[inline(always)]
unsafe fn accumulate<T: Lane, O: Combine>(chunk: &mut [MaybeUninit<T::Acc>], source: *const u8) {
    for (index, acc) in chunk.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        let value = unsafe { load::<T>(source, index) };
        // SAFETY: the caller's promise.
        let total = unsafe { acc.assume_init() };
        acc.write(O::combine(total, value));
    }
}

/// # Safety
///
/// `chunk` is initialised, `source` valid for reading and `dst` for writing as many elements.
#[inline(always)]
unsafe fn finish<T: Lane, O: Combine>(
    chunk: &[MaybeUninit<T::Acc>],
    source: *const u8,
    dst: *mut u8,
    ranks: u32,
) {
    for (index, acc) in chunk.iter().enumerate() {
        // SAFETY: the caller's promise.
        let value = unsafe { load::<T>(source, index) };
        // SAFETY: the caller's promise.
        let total = unsafe { acc.assume_init() };
        // SAFETY: the caller's promise.
        unsafe { store::<T>(dst, index, divided(O::combine(total, value), ranks)) };
    }
}

/// # Safety
///
/// As for [`Reducer::scale`](super::Reducer::scale).
#[inline(always)]
pub(super) unsafe fn scale<T: Lane>(dst: *mut u8, count: usize, ranks: u32) {
    for index in 0..count {
        // SAFETY: the caller's promise.
        let value = unsafe { load::<T>(dst, index) };
        // SAFETY: the caller's promise.
        unsafe { store::<T>(dst, index, value.divide(ranks)) };
    }
}
