//! Arithmetic of the types in which reductions accumulate.

/// A type in which reductions accumulate.
pub(super) trait Number: Copy {
    fn sum(a: Self, b: Self) -> Self;
    fn prod(a: Self, b: Self) -> Self;
    fn min(a: Self, b: Self) -> Self;
    fn max(a: Self, b: Self) -> Self;
    /// The quotient by a number of ranks (at least 1), towards zero for integers.
    fn divide(self, ranks: u32) -> Self;
}

macro_rules! integers {
    ($($int:ty: divided as $wide:ty, by at most $most:expr);* $(;)?) => {$(
        impl Number for $int {
            #[inline(always)]
            fn sum(a: Self, b: Self) -> Self {
                a.wrapping_add(b)
            }

            #[inline(always)]
            fn prod(a: Self, b: Self) -> Self {
                a.wrapping_mul(b)
            }

            #[inline(always)]
            fn min(a: Self, b: Self) -> Self {
                Ord::min(a, b)
            }

            #[inline(always)]
            fn max(a: Self, b: Self) -> Self {
                Ord::max(a, b)
            }

            #[inline(always)]
            fn divide(self, ranks: u32) -> Self {
                // The quotient is no larger than `self`, so it fits again.
                (self as $wide / ranks.clamp(1, $most) as $wide) as Self
            }
        }
    )*};
}

// Up to 32 bits the quotient comes from a float division, which vectorises. It is exact after the
// truncation: both operands are floats, and where x / r is not an integer, the next integer k away
// from zero is at least 1 / r further, a distance of more than 1 / (|x| + r) of k. That is 2^-9 for
// f32 and 2^-33 for f64 here, so rounding does not reach k. Divisors beyond the range of the 8-bit
// types give 0, as does the largest one allowed.
integers!(
    i8: divided as f32, by at most 256;
    u8: divided as f32, by at most 256;
    i32: divided as f64, by at most u32::MAX;
    u32: divided as f64, by at most u32::MAX;
    i64: divided as i64, by at most u32::MAX;
    u64: divided as u64, by at most u32::MAX;
);

macro_rules! floats {
    ($($float:ty),*) => {$(
        impl Number for $float {
            #[inline(always)]
            fn sum(a: Self, b: Self) -> Self {
                a + b
            }

            #[inline(always)]
            fn prod(a: Self, b: Self) -> Self {
                a * b
            }

            /// Both selections agree unless an operand is NaN or both are zeros. Their union is then
            /// a NaN (all exponent bits and some mantissa bits are set), or the negative zero.
            #[inline(always)]
            fn min(a: Self, b: Self) -> Self {
                let first = if a < b { a } else { b };
                let second = if b < a { b } else { a };
                Self::from_bits(first.to_bits() | second.to_bits())
            }

            #[inline(always)]
            fn max(a: Self, b: Self) -> Self {
                // Not `Self::min`, which is the standard library's and drops NaN.
                -<Self as Number>::min(-a, -b)
            }

            #[inline(always)]
            fn divide(self, ranks: u32) -> Self {
                self / ranks.max(1) as Self
            }
        }
    )*};
}

floats!(f32, f64);
