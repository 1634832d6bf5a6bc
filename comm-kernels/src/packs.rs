//! Packs of 16-bit floats, widened and narrowed by AVX2 and F16C instructions.
//!
//! Compilers do not vectorise the conversions of f16 by themselves and those of bf16 badly, so a
//! pack is a [`Lane`] of its own. The methods must only be reached from functions that enable AVX2
//! and F16C, into which they are inlined.

use std::arch::x86_64::{
    __m128i, __m256, __m256i, _CMP_UNORD_Q, _MM_FROUND_TO_NEAREST_INT, _mm256_add_epi32,
    _mm256_add_ps, _mm256_and_si256, _mm256_andnot_si256, _mm256_castps_si256, _mm256_castsi256_ps,
    _mm256_cmp_ps, _mm256_cvtph_ps, _mm256_cvtps_ph, _mm256_div_ps, _mm256_min_ps, _mm256_mul_ps,
    _mm256_or_ps, _mm256_or_si256, _mm256_set1_epi32, _mm256_set1_ps, _mm256_slli_epi32,
    _mm256_srli_epi32, _mm256_xor_ps,
};

use half::{bf16, f16};

use super::lane::Lane;
use super::number::Number;

/// Elements that are processed as one.
pub(super) trait Pack: Lane {
    type Element: Lane;
    /// Elements per pack.
    const ELEMENTS: usize = size_of::<Self>() / size_of::<Self::Element>();
}

/// Eight f16.
#[derive(Clone, Copy)]
pub(super) struct F16x8(__m128i);

impl Pack for F16x8 {
    type Element = f16;
}

/// Sixteen bf16.
#[derive(Clone, Copy)]
pub(super) struct Bf16x16(__m256i);

impl Pack for Bf16x16 {
    type Element = bf16;
}

/// Eight f32.
#[derive(Clone, Copy)]
pub(super) struct F32x8(__m256);

/// Sixteen f32: those of the lower, then those of the upper halves of the words of a pack.
#[derive(Clone, Copy)]
pub(super) struct F32x16([F32x8; 2]);

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

impl Lane for Bf16x16 {
    type Acc = F32x16;

    /// Seen as eight 32-bit words, the upper halves are floats already.
    #[inline(always)]
    fn widen(self) -> F32x16 {
        #[inline]
        #[target_feature(enable = "avx2")]
        fn widen(words: __m256i) -> [__m256; 2] {
            let upper = _mm256_and_si256(words, _mm256_set1_epi32(UPPER));
            let lower = _mm256_slli_epi32::<16>(words);
            [_mm256_castsi256_ps(lower), _mm256_castsi256_ps(upper)]
        }
        // SAFETY: only reached where AVX2 is enabled, as the module says.
        let [lower, upper] = unsafe { widen(self.0) };
        F32x16([F32x8(lower), F32x8(upper)])
    }

    /// Rounds as `f32_to_bf16` does, except that NaN is cut off: it stays NaN, since the NaN of an
    /// operation has its quiet bit and that of a bf16 its payload in the upper half.
    #[inline(always)]
    fn narrow(acc: F32x16) -> Self {
        #[inline]
        #[target_feature(enable = "avx2")]
        fn rounded(acc: __m256) -> __m256i {
            let bits = _mm256_castps_si256(acc);
            let tie = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let rounding = _mm256_add_epi32(tie, _mm256_set1_epi32(0x7fff));
            let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(acc, acc));
            _mm256_add_epi32(bits, _mm256_andnot_si256(is_nan, rounding))
        }
        #[inline]
        #[target_feature(enable = "avx2")]
        fn narrow([lower, upper]: [F32x8; 2]) -> __m256i {
            let lower = _mm256_srli_epi32::<16>(rounded(lower.0));
            let upper = _mm256_and_si256(rounded(upper.0), _mm256_set1_epi32(UPPER));
            _mm256_or_si256(lower, upper)
        }
        // SAFETY: only reached where AVX2 is enabled, as the module says.
        Self(unsafe { narrow(acc.0) })
    }
}

/// The upper half of a word.
const UPPER: i32 = 0xffff_0000_u32.cast_signed();

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

impl Number for F32x16 {
    #[inline(always)]
    fn sum(a: Self, b: Self) -> Self {
        Self([Number::sum(a.0[0], b.0[0]), Number::sum(a.0[1], b.0[1])])
    }

    #[inline(always)]
    fn prod(a: Self, b: Self) -> Self {
        Self([Number::prod(a.0[0], b.0[0]), Number::prod(a.0[1], b.0[1])])
    }

    #[inline(always)]
    fn min(a: Self, b: Self) -> Self {
        Self([Number::min(a.0[0], b.0[0]), Number::min(a.0[1], b.0[1])])
    }

    #[inline(always)]
    fn max(a: Self, b: Self) -> Self {
        Self([Number::max(a.0[0], b.0[0]), Number::max(a.0[1], b.0[1])])
    }

    #[inline(always)]
    fn divide(self, ranks: u32) -> Self {
        let [lower, upper] = self.0;
        Self([lower.divide(ranks), upper.divide(ranks)])
    }
}
