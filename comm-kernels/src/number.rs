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
    ($($int:ty: |$value:ident, $ranks:ident| $quotient:expr;)*) => {$(
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
                let ($value, $ranks) = (self, ranks.max(1));
                // The quotient is no larger than `self`, so it fits again.
                $quotient as Self
            }
        }
    )*};
}

integers!(
    i8: |value, ranks| truncated_f32(f32::from(value), ranks);
    u8: |value, ranks| truncated_f32(f32::from(value), ranks);
    i32: |value, ranks| truncated_f64(f64::from(value), ranks);
    u32: |value, ranks| value / ranks;
    i64: |value, ranks| value / i64::from(ranks);
    u64: |value, ranks| value / u64::from(ranks);
);

// Small integers are divided as floats, which vectorises, and truncated. The result is exact: both
// operands are floats, and where x / r is not an integer, the next integer k away from zero lies at
// least 1 / r further, which is more than k / (|x| + r). That is 2^-9 of k for the f32 below and
// 2^-33 for the f64, so the rounding of the division does not reach k.

/// An 8-bit integer divided by a number of ranks, towards zero.
#[inline(always)]
fn truncated_f32(value: f32, ranks: u32) -> i32 {
    // Larger divisors give 0 as well.
    let quotient = value / ranks.min(256) as f32;
    // SAFETY: the quotient of an 8-bit integer by at least 1 is finite and fits.
    unsafe { quotient.to_int_unchecked() }
}

/// An `i32` divided by a number of ranks, towards zero.
#[inline(always)]
fn truncated_f64(value: f64, ranks: u32) -> i32 {
    let quotient = value / f64::from(ranks);
    // SAFETY: the quotient of an `i32` by at least 1 is finite and fits.
    unsafe { quotient.to_int_unchecked() }
}

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
