//! Conversions between f32 and the 16-bit floats, branch-free so that loops over them vectorise.
//!
//! Widening is exact. Narrowing rounds to nearest, ties to even; NaN becomes a quiet NaN that keeps
//! the sign and the upper payload bits, as the F16C instructions do.
//!
//! The f16 ones are after Fabian Giesen's public-domain `half_to_float` and `float_to_half`.

/// bf16 to f32.
#[inline(always)]
pub(super) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// f32 to bf16.
#[inline(always)]
pub(super) fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    // Half of the last kept place, less one unless the last kept bit is set: ties go to even.
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    // Rounding could carry a NaN over into an infinity; setting the quiet bit cannot.
    let quiet = (bits >> 16) | 0x40;
    (if value.is_nan() { quiet } else { rounded }) as u16
}

/// The bits of an infinite f32.
const INFINITY: u32 = 0x7f80_0000;

/// f16 to f32.
///
/// Exponent and mantissa are moved to their place in an f32; a multiplication re-biases the
/// exponent and normalises subnormals on the way.
#[inline(always)]
pub(super) fn f16_to_f32(bits: u16) -> f32 {
    /// 2^112, the ratio of the biases.
    const REBIAS: f32 = f32::from_bits((127 + 112) << 23);
    /// Infinity after the move.
    const MOVED_INFINITY: u32 = 0x7c00 << 13;
    let magnitude = u32::from(bits & 0x7fff) << 13;
    let sign = u32::from(bits & 0x8000) << 16;
    let finite = (f32::from_bits(magnitude) * REBIAS).to_bits();
    let quiet = if magnitude > MOVED_INFINITY {
        0x0040_0000
    } else {
        0
    };
    let special = magnitude | INFINITY | quiet;
    f32::from_bits(
        sign | if magnitude >= MOVED_INFINITY {
            special
        } else {
            finite
        },
    )
}

/// f32 to f16.
#[inline(always)]
pub(super) fn f32_to_f16(value: f32) -> u16 {
    /// 2^16, from which on everything is infinite; a little less rounds up to it.
    const TOO_LARGE: u32 = (127 + 16) << 23;
    /// 2^-14, below which results are subnormal.
    const SMALLEST_NORMAL: u32 = (127 - 14) << 23;
    /// 0.5: its last mantissa place is that of f16 subnormals, so adding it rounds to them.
    const SUBNORMAL_ROUNDER: f32 = 0.5;
    let bits = value.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    // As in `f32_to_bf16`, with the exponent re-biased by the same addition.
    let tie = (magnitude >> 13) & 1;
    let rebias = 0xfff_u32.wrapping_sub((127 - 15) << 23);
    let normal = magnitude.wrapping_add(rebias).wrapping_add(tie) >> 13;
    let rounded = f32::from_bits(magnitude) + SUBNORMAL_ROUNDER;
    let subnormal = rounded.to_bits().wrapping_sub(SUBNORMAL_ROUNDER.to_bits());
    let finite = if magnitude < SMALLEST_NORMAL {
        subnormal
    } else {
        normal
    };
    let nan = 0x7e00 | ((magnitude >> 13) & 0x3ff);
    let special = if magnitude > INFINITY { nan } else { 0x7c00 };
    (sign
        | if magnitude >= TOO_LARGE {
            special
        } else {
            finite
        }) as u16
}
