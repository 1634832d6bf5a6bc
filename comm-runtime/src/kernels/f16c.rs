//! Packs of eight f16, widened and narrowed by the F16C instructions.
//!
//! Compilers do not vectorise these conversions by themselves, so the pack is a
//! [`Lane`] of its own. Its methods must only be reached from functions that enable AVX2 and F16C,
//! into which they are inlined.

use std::arch::x86_64::{
    __m128i, __m256, _MM_FROUND_TO_NEAREST_INT, _mm256_add_ps, _mm256_cvtph_ps, _mm256_cvtps_ph,
    _mm256_div_ps, _mm256_min_ps, _mm256_mul_ps, _mm256_or_ps, _mm256_set1_ps, _mm256_xor_ps,
};

use super::lane::Lane;
use super::number::Number;

/// Eight f16.
#[derive(Clone, Copy)]
pub(super) struct F16x8(__m128i);

/// Eight f32.
#[derive(Clone, Copy)]
pub(super) struct F32x8(__m256);

impl Lane for F16x8 {
    type Acc = F32x8;

    #[inline(always)]
    fn widen(self) -> F32x8 {
        // SAFETY: only reached where F16C is enabled, as the module says.
        F32x8(unsafe { _mm256_cvtph_ps(self.0) })
    }

    #[inline(always)]
    fn narrow(acc: F32x8) -> Self {
        // SAFETY: only reached where F16C is enabled, as the module says.
        Self(unsafe { _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(acc.0) })
    }
}

impl Number for F32x8 {
    #[inline(always)]
    fn sum(a: Self, b: Self) -> Self {
        // SAFETY: only reached where AVX2 is enabled, as the module says.
        Self(unsafe { _mm256_add_ps(a.0, b.0) })
    }

    #[inline(always)]
    fn prod(a: Self, b: Self) -> Self {
        // SAFETY: only reached where AVX2 is enabled, as the module says.
        Self(unsafe { _mm256_mul_ps(a.0, b.0) })
    }

    /// The same two selections as for single floats: `vminps` is `if a < b { a } else { b }`.
    #[inline(always)]
    fn min(a: Self, b: Self) -> Self {
        // SAFETY: only reached where AVX2 is enabled, as the module says.
        let first = unsafe { _mm256_min_ps(a.0, b.0) };
        // SAFETY: as above.
        let second = unsafe { _mm256_min_ps(b.0, a.0) };
        // SAFETY: as above.
        Self(unsafe { _mm256_or_ps(first, second) })
    }

    #[inline(always)]
    fn max(a: Self, b: Self) -> Self {
        Self::min(a.negated(), b.negated()).negated()
    }

    #[inline(always)]
    fn divide(self, ranks: u32) -> Self {
        // SAFETY: only reached where AVX2 is enabled, as the module says.
        let ranks = unsafe { _mm256_set1_ps(ranks.max(1) as f32) };
        // SAFETY: as above.
        Self(unsafe { _mm256_div_ps(self.0, ranks) })
    }
}

impl F32x8 {
    #[inline(always)]
    fn negated(self) -> Self {
        // SAFETY: only reached where AVX2 is enabled, as the module says.
        let sign = unsafe { _mm256_set1_ps(-0.0) };
        // SAFETY: as above.
        Self(unsafe { _mm256_xor_ps(self.0, sign) })
    }
}
