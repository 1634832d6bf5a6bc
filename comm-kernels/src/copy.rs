//! Copying between user buffers and slots.
//!
//! Not `memcpy`: libc may use `rep movsb`, which some processors slow down several times when source
//! and destination lie at the same offset in their pages, as buffers and slots do.

use super::Isa;

/// Copies `bytes` bytes that are near: in this core's caches, or few.
///
/// # Safety
///
/// `src` is valid for reading and `dst` for writing `bytes` bytes; the two do not overlap.
#[inline]
pub unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize) {
    if bytes <= SMALL_BYTES {
        // SAFETY: the caller's promise.
        unsafe { copy_small(dst, src, bytes) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { copy_large(dst, src, bytes, Stores::Near) };
    }
}

/// Copies `bytes` bytes from or to memory whose lines are far: in memory, or in another core's caches as
/// those of slots are. Asks for them ahead.
///
/// # Safety
///
/// As for [`copy`].
#[inline]
pub unsafe fn copy_far(dst: *mut u8, src: *const u8, bytes: usize) {
    if bytes <= SMALL_BYTES {
        // SAFETY: the caller's promise.
        unsafe { copy_small(dst, src, bytes) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { copy_large(dst, src, bytes, Stores::Far) };
    }
}

/// [`copy_far`]; from `non_temporal_from_bytes` on with stores that pass the caches by.
///
/// Worth it for a destination that is larger than the caches, or that nobody reads soon: it saves
/// reading the destination's lines first. A later release store orders these stores like others.
///
/// # Safety
///
/// As for [`copy`].
#[inline]
pub unsafe fn copy_streaming(
    dst: *mut u8,
    src: *const u8,
    bytes: usize,
    non_temporal_from_bytes: usize,
) {
    if bytes < non_temporal_from_bytes {
        // SAFETY: the caller's promise.
        unsafe { copy_far(dst, src, bytes) };
    } else if bytes <= SMALL_BYTES {
        // SAFETY: the caller's promise.
        unsafe { copy_small(dst, src, bytes) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { copy_large(dst, src, bytes, Stores::NonTemporal) };
    }
}

/// How a large copy gets at its memory.
#[derive(Clone, Copy)]
enum Stores {
    Near,
    Far,
    NonTemporal,
}

/// Up to this size a copy is a few overlapping moves, inlined.
const SMALL_BYTES: usize = 64;

/// # Safety
///
/// As for [`copy`], and `bytes` is at most `SMALL_BYTES`.
#[inline(always)]
unsafe fn copy_small(dst: *mut u8, src: *const u8, bytes: usize) {
    match bytes {
        33.. => {
            // SAFETY: the first 32 bytes exist.
            unsafe { copy_ends::<u128>(dst, src, 32) };
            let at = bytes - 32;
            // SAFETY: the last 32 bytes exist.
            unsafe { copy_ends::<u128>(dst.wrapping_add(at), src.wrapping_add(at), 32) };
        }
        // SAFETY: at least 16 bytes exist.
        16.. => unsafe { copy_ends::<u128>(dst, src, bytes) },
        // SAFETY: at least 8 bytes exist.
        8.. => unsafe { copy_ends::<u64>(dst, src, bytes) },
        // SAFETY: at least 4 bytes exist.
        4.. => unsafe { copy_ends::<u32>(dst, src, bytes) },
        // SAFETY: at least 2 bytes exist.
        2.. => unsafe { copy_ends::<u16>(dst, src, bytes) },
        1 => {
            // SAFETY: one byte exists.
            let byte = unsafe { src.read() };
            // SAFETY: one byte exists.
            unsafe { dst.write(byte) };
        }
        0 => {}
    }
}

/// Moves the first and the last `W` of `bytes` bytes, which may overlap each other.
///
/// # Safety
///
/// As for [`copy`], and `bytes` is at least the size of `W`, an integer.
#[inline(always)]
unsafe fn copy_ends<W: Copy>(dst: *mut u8, src: *const u8, bytes: usize) {
    let last = bytes - size_of::<W>();
    // SAFETY: the first `W` lies inside the source.
    let head = unsafe { src.cast::<W>().read_unaligned() };
    // SAFETY: the last `W` lies inside the source.
    let tail = unsafe { src.wrapping_add(last).cast::<W>().read_unaligned() };
    // SAFETY: the first `W` lies inside the destination.
    unsafe { dst.cast::<W>().write_unaligned(head) };
    // SAFETY: the last `W` lies inside the destination.
    unsafe { dst.wrapping_add(last).cast::<W>().write_unaligned(tail) };
}

/// # Safety
///
/// As for [`copy`], and `bytes` is more than `SMALL_BYTES`.
#[inline(never)]
unsafe fn copy_large(dst: *mut u8, src: *const u8, bytes: usize, stores: Stores) {
    match (Isa::detect(), stores) {
        // SAFETY: the caller's promise, and the processor has AVX2.
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, Stores::Near) => unsafe { avx2::copy::<false, false>(dst, src, bytes) },
        // SAFETY: the caller's promise, and the processor has AVX2.
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, Stores::Far) => unsafe { avx2::copy::<true, false>(dst, src, bytes) },
        // SAFETY: the caller's promise, and the processor has AVX2.
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, Stores::NonTemporal) => unsafe { avx2::copy::<true, true>(dst, src, bytes) },
        // SAFETY: the caller's promise.
        (Isa::Baseline, _) => unsafe { std::ptr::copy_nonoverlapping(src, dst, bytes) },
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm_sfence, _mm256_loadu_si256, _mm256_store_si256, _mm256_storeu_si256,
        _mm256_stream_si256,
    };

    use super::super::prefetch;

    const VECTOR: usize = size_of::<__m256i>();
    /// Vectors per round: enough loads in flight, and they all come before the stores.
    const ROUND: usize = 4;

    /// # Safety
    ///
    /// As for [`super::copy`], `bytes` is more than 64, and the processor has AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn copy<const FAR: bool, const NON_TEMPORAL: bool>(
        dst: *mut u8,
        src: *const u8,
        bytes: usize,
    ) {
        // The first vector is stored unaligned, then the destination is walked aligned.
        // SAFETY: more than one vector exists.
        unsafe { move_vector(dst, src) };
        let mut at = VECTOR - dst.addr() % VECTOR;
        while bytes - at >= ROUND * VECTOR {
            // SAFETY: the round lies inside both ranges, and `dst + at` is aligned.
            unsafe { move_round::<NON_TEMPORAL>(dst.wrapping_add(at), src.wrapping_add(at)) };
            if FAR {
                prefetch::read(src, at, ROUND * VECTOR, bytes);
            }
            if FAR && !NON_TEMPORAL {
                prefetch::write(dst, at, ROUND * VECTOR, bytes);
            }
            at += ROUND * VECTOR;
        }
        while bytes - at > VECTOR {
            // SAFETY: the vector lies inside both ranges.
            unsafe { move_vector(dst.wrapping_add(at), src.wrapping_add(at)) };
            at += VECTOR;
        }
        let last = bytes - VECTOR;
        // SAFETY: the last vector lies inside both ranges.
        unsafe { move_vector(dst.wrapping_add(last), src.wrapping_add(last)) };
        if NON_TEMPORAL {
            // Non-temporal stores are weakly ordered; the caller's release store is not enough.
            _mm_sfence();
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn move_vector(dst: *mut u8, src: *const u8) {
        // SAFETY: the caller's promise: one vector.
        let vector = unsafe { _mm256_loadu_si256(src.cast()) };
        // SAFETY: the caller's promise: one vector.
        unsafe { _mm256_storeu_si256(dst.cast(), vector) };
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn move_round<const NON_TEMPORAL: bool>(dst: *mut u8, src: *const u8) {
        let [dst, src] = [dst.cast::<__m256i>(), src.cast::<__m256i>().cast_mut()];
        let load = |index: usize| {
            // SAFETY: the caller's promise: a round of vectors.
            unsafe { _mm256_loadu_si256(src.wrapping_add(index)) }
        };
        let vectors: [__m256i; ROUND] = [load(0), load(1), load(2), load(3)];
        for (index, vector) in vectors.into_iter().enumerate() {
            let dst = dst.wrapping_add(index);
            if NON_TEMPORAL {
                // SAFETY: the caller's promise: a round of aligned vectors.
                unsafe { _mm256_stream_si256(dst, vector) };
            } else {
                // SAFETY: the caller's promise: a round of aligned vectors.
                unsafe { _mm256_store_si256(dst, vector) };
            }
        }
    }
}
