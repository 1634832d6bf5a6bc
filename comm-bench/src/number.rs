//! Element types as the benchmark's checker sees them.
//!
//! # Contract
//!
//! * The operands are chosen so that every partial result, in whatever order and grouping the ranks
//!   combine them, is exact in the element type. A result is therefore right only if it is equal to
//!   the expected one.
//! * The one exception is the average of floats over a number of ranks that is no power of two: its
//!   sum is exact, but the division (or the multiplication by a rounded reciprocal) is not. Such a
//!   result may differ by [`Number::AVERAGE_TOLERANCE`], relative to the expected value.
//! * Expected values are computed here, in plain scalar arithmetic that shares no code with the
//!   library's kernels.

use comm_api::{Element, ReduceOp};
use half::{bf16, f16};

/// An element type that the benchmark can fill, reduce and check.
pub(crate) trait Number: Element + PartialEq {
    /// The largest relative error of an inexact average; 0 for integers.
    const AVERAGE_TOLERANCE: f64;

    /// The contribution of one rank to one element; `random` decides among the suitable values.
    /// Without an operator any finite value is suitable.
    fn operand(op: Option<ReduceOp>, ranks: u32, rank: u32, random: u64) -> Self;

    /// The reduction of the operands of all ranks.
    fn reduce(op: ReduceOp, operands: &[Self]) -> Self;

    /// A value that reductions of equal values leave as it is, however often they are repeated.
    fn resting(op: Option<ReduceOp>) -> Self;

    /// A value that can never be taken for `self`.
    fn spoiled(self) -> Self;

    /// Widens for comparisons with a tolerance; exact for floats.
    fn widen(self) -> f64;

    /// Whether `self` is a right result where `expected` is the exact one.
    fn is_right(self, expected: Self, op: Option<ReduceOp>, ranks: u32) -> bool {
        if self == expected {
            return true;
        }
        let inexact = op == Some(ReduceOp::Avg) && !ranks.is_power_of_two();
        let error = (self.widen() - expected.widen()).abs();
        inexact && error <= Self::AVERAGE_TOLERANCE * expected.widen().abs()
    }
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Number for $type {
            const AVERAGE_TOLERANCE: f64 = 0.0;

            fn operand(op: Option<ReduceOp>, ranks: u32, _rank: u32, random: u64) -> Self {
                // The low bits: wrapping is part of the contract of sum and prod.
                let any = random as Self;
                match op {
                    // Even numbers would soon multiply to 0, which hides errors.
                    Some(ReduceOp::Prod) => any | 1,
                    // Whether a sum wraps before the division is nothing a benchmark should ask.
                    Some(ReduceOp::Avg) => {
                        let limit = Self::MAX as u128 / u128::from(ranks.max(1));
                        (u128::from(random) % (limit + 1)) as Self
                    }
                    _ => any,
                }
            }

            fn reduce(op: ReduceOp, operands: &[Self]) -> Self {
                let values = operands.iter().copied();
                let sum = || values.clone().fold(0, Self::wrapping_add);
                match op {
                    ReduceOp::Prod => values.fold(1, Self::wrapping_mul),
                    ReduceOp::Min => values.min().unwrap_or_default(),
                    ReduceOp::Max => values.max().unwrap_or_default(),
                    ReduceOp::Avg => (sum() as i128 / operands.len().max(1) as i128) as Self,
                    _ => sum(),
                }
            }

            fn resting(op: Option<ReduceOp>) -> Self {
                Self::from(op != Some(ReduceOp::Sum))
            }

            fn spoiled(self) -> Self {
                !self
            }

            fn widen(self) -> f64 {
                self as f64
            }
        }
    )*};
}
integers!(i8, u8, i32, u32, i64, u64);

/// How many ranks contribute a power of two to a product; the others contribute its sign only. The
/// exponents of all partial products stay within those of the narrowest type, f16.
const SCALING_RANKS: u32 = 8;

/// The operand of a rank for a float type that holds all integers up to `integers`, as an `f64`.
fn float_operand(op: Option<ReduceOp>, integers: u64, ranks: u32, rank: u32, random: u64) -> f64 {
    // From -limit to limit, so that any partial sum of integers stays an integer that is exact.
    let within = |limit: u64| (random % (2 * limit + 1)) as f64 - limit as f64;
    match op {
        Some(ReduceOp::Sum | ReduceOp::Avg) => match integers / u64::from(ranks.max(1)) {
            0 if u64::from(rank) < integers => within(1),
            0 => 0.0,
            limit => within(limit.min(100)),
        },
        Some(ReduceOp::Prod) => {
            let sign = if random & 1 == 0 { 1.0 } else { -1.0 };
            let scale = if rank < SCALING_RANKS {
                (random >> 1) % 3
            } else {
                0
            };
            sign * [1.0, 2.0, 0.5][scale as usize]
        }
        _ => within(integers.min(1000)),
    }
}

/// The reduction of operands in `f64`, where all of it is exact but the division.
fn float_reduce(op: ReduceOp, operands: impl ExactSizeIterator<Item = f64>) -> f64 {
    let ranks = operands.len().max(1) as f64;
    match op {
        ReduceOp::Prod => operands.product(),
        ReduceOp::Min => operands.fold(f64::INFINITY, f64::min),
        ReduceOp::Max => operands.fold(f64::NEG_INFINITY, f64::max),
        ReduceOp::Avg => operands.sum::<f64>() / ranks,
        _ => operands.sum(),
    }
}

macro_rules! floats {
    ($($type:ty: $digits:expr, $narrow:expr, $widen:expr;)*) => {$(
        impl Number for $type {
            // One unit in the last place: at most half of one each for division and rounding.
            const AVERAGE_TOLERANCE: f64 = 1.0 / (1_u64 << ($digits - 1)) as f64;

            fn operand(op: Option<ReduceOp>, ranks: u32, rank: u32, random: u64) -> Self {
                $narrow(float_operand(op, 1 << $digits, ranks, rank, random))
            }

            fn reduce(op: ReduceOp, operands: &[Self]) -> Self {
                $narrow(float_reduce(op, operands.iter().map(|value| value.widen())))
            }

            fn resting(op: Option<ReduceOp>) -> Self {
                $narrow(f64::from(op != Some(ReduceOp::Sum)))
            }

            fn spoiled(self) -> Self {
                Self::NAN
            }

            fn widen(self) -> f64 {
                $widen(self)
            }
        }
    )*};
}
floats! {
    f64: f64::MANTISSA_DIGITS, std::convert::identity, std::convert::identity;
    f32: f32::MANTISSA_DIGITS, |value: f64| value as f32, f64::from;
    f16: f16::MANTISSA_DIGITS, f16::from_f64, f16::to_f64;
    bf16: bf16::MANTISSA_DIGITS, bf16::from_f64, bf16::to_f64;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::random;

    fn operands<T: Number>(op: ReduceOp, ranks: u32, element: u64) -> Vec<T> {
        (0..ranks)
            .map(|rank| T::operand(Some(op), ranks, rank, random(rank, element, 3)))
            .collect()
    }

    /// Sums and products in every rotation and in reverse agree bit by bit with the expected value.
    fn any_order_is_exact<T: Number>(add: fn(T, T) -> T, multiply: fn(T, T) -> T) {
        for ranks in [1, 2, 3, 7, 8, 9, 64, 300] {
            for (op, combine) in [(ReduceOp::Sum, add), (ReduceOp::Prod, multiply)] {
                for element in 0..20 {
                    let mut values = operands::<T>(op, ranks, element);
                    let expected = T::reduce(op, &values);
                    for turn in 0..ranks.min(9) {
                        values.rotate_left(1);
                        if turn % 2 == 1 {
                            values.reverse();
                        }
                        // In the element type itself: what a library may do.
                        let result = values.iter().copied().reduce(combine).unwrap();
                        assert_eq!(result, expected, "{op} of {ranks}");
                    }
                }
            }
        }
    }

    #[test]
    fn sums_and_products_are_exact_in_any_order() {
        any_order_is_exact::<f64>(|a, b| a + b, |a, b| a * b);
        any_order_is_exact::<f32>(|a, b| a + b, |a, b| a * b);
        any_order_is_exact::<f16>(|a, b| a + b, |a, b| a * b);
        any_order_is_exact::<bf16>(|a, b| a + b, |a, b| a * b);
        any_order_is_exact::<i8>(i8::wrapping_add, i8::wrapping_mul);
        any_order_is_exact::<u8>(u8::wrapping_add, u8::wrapping_mul);
        any_order_is_exact::<i32>(i32::wrapping_add, i32::wrapping_mul);
        any_order_is_exact::<u64>(u64::wrapping_add, u64::wrapping_mul);
    }

    #[test]
    fn averages_by_division_and_by_reciprocal_are_both_right() {
        for ranks in [2_u16, 3, 5, 8, 49] {
            for element in 0..200 {
                let values = operands::<f32>(ReduceOp::Avg, ranks.into(), element);
                let sum: f32 = values.iter().sum();
                let expected = f32::reduce(ReduceOp::Avg, &values);
                for result in [sum / f32::from(ranks), sum * (1.0 / f32::from(ranks))] {
                    let op = Some(ReduceOp::Avg);
                    assert!(
                        result.is_right(expected, op, ranks.into()),
                        "{result} {expected}"
                    );
                }
                let values = operands::<bf16>(ReduceOp::Avg, ranks.into(), element);
                let sum: f32 = values.iter().map(|value| value.to_f32()).sum();
                let result = bf16::from_f32(sum * (1.0 / f32::from(ranks)));
                let expected = bf16::reduce(ReduceOp::Avg, &values);
                assert!(result.is_right(expected, Some(ReduceOp::Avg), ranks.into()));
            }
        }
    }

    #[test]
    fn an_average_that_is_off_by_more_is_wrong() {
        let op = Some(ReduceOp::Avg);
        assert!(!1.000_001_f32.is_right(1.0, op, 3));
        assert!(
            !f32::from_bits(1.0_f32.to_bits() + 1).is_right(1.0, op, 4),
            "exact by 4 ranks"
        );
        assert!(!f32::NAN.is_right(1.0, op, 3));
        assert!(!4_i32.is_right(3, op, 3));
    }

    #[test]
    fn integer_averages_truncate_towards_zero() {
        assert_eq!(i32::reduce(ReduceOp::Avg, &[-1, -2]), -1);
        assert_eq!(u8::reduce(ReduceOp::Avg, &[1, 2, 4]), 2);
    }

    #[test]
    fn minimum_and_maximum_are_one_of_the_operands() {
        assert_eq!(i8::reduce(ReduceOp::Min, &[3, -4, 5]), -4);
        assert_eq!(
            f16::reduce(ReduceOp::Max, &[f16::from_f32(-2.0), f16::ONE]),
            f16::ONE
        );
    }

    #[test]
    fn resting_values_survive_repetition() {
        for op in ReduceOp::ALL {
            let mut value = f32::resting(Some(op));
            let mut integer = i8::resting(Some(op));
            for _ in 0..100 {
                value = f32::reduce(op, &[value; 3]);
                integer = i8::reduce(op, &[integer; 3]);
            }
            assert_eq!(value, f32::resting(Some(op)), "{op}");
            assert_eq!(integer, i8::resting(Some(op)), "{op}");
        }
    }

    #[test]
    fn a_spoiled_value_is_never_right() {
        for op in [None, Some(ReduceOp::Sum), Some(ReduceOp::Avg)] {
            assert!(!1.0_f64.spoiled().is_right(1.0, op, 3));
            assert!(!0_u8.spoiled().is_right(0, op, 3));
        }
    }
}
