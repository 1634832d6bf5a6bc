//! What kernels load and store, and the type in which it is accumulated.

use half::{bf16, f16};

use super::narrow_float::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use super::number::Number;

/// An element, or a pack of elements that is processed as one, as it lies in memory.
///
/// Every bit pattern is a value.
pub(super) trait Lane: Copy {
    type Acc: Number;

    fn widen(self) -> Self::Acc;

    /// Rounds to nearest, ties to even.
    fn narrow(acc: Self::Acc) -> Self;
}

macro_rules! own_accumulator {
    ($($number:ty),*) => {$(
        impl Lane for $number {
            type Acc = Self;

            #[inline(always)]
            fn widen(self) -> Self {
                self
            }

            #[inline(always)]
            fn narrow(acc: Self) -> Self {
                acc
            }
        }
    )*};
}

own_accumulator!(i8, u8, i32, u32, i64, u64, f32, f64);

impl Lane for bf16 {
    type Acc = f32;

    #[inline(always)]
    fn widen(self) -> f32 {
        bf16_to_f32(self.to_bits())
    }

    #[inline(always)]
    fn narrow(acc: f32) -> Self {
        Self::from_bits(f32_to_bf16(acc))
    }
}

impl Lane for f16 {
    type Acc = f32;

    #[inline(always)]
    fn widen(self) -> f32 {
        f16_to_f32(self.to_bits())
    }

    #[inline(always)]
    fn narrow(acc: f32) -> Self {
        Self::from_bits(f32_to_f16(acc))
    }
}
