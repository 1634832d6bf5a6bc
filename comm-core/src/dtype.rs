//! Element types and reduction operators.
//!
//! [`DType`] names what a tensor holds. All of them can be moved; those for which
//! [`DType::is_reducible`] is true can also be reduced. [`Element`] ties a Rust type to its
//! [`DType`], so that typed slices need no run-time tag.

use std::fmt;

use half::{bf16, f16};

use crate::{Error, ErrorKind, Result};

/// The element type of a tensor.
///
/// The discriminants travel between processes and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
#[non_exhaustive]
pub enum DType {
    /// Signed 8-bit integer.
    I8 = 1,
    /// Unsigned 8-bit integer.
    U8 = 2,
    /// Signed 16-bit integer.
    I16 = 3,
    /// Unsigned 16-bit integer.
    U16 = 4,
    /// Signed 32-bit integer.
    I32 = 5,
    /// Unsigned 32-bit integer.
    U32 = 6,
    /// Signed 64-bit integer.
    I64 = 7,
    /// Unsigned 64-bit integer.
    U64 = 8,
    /// IEEE 754 half precision.
    F16 = 9,
    /// Brain floating point: the upper half of an `f32`.
    Bf16 = 10,
    /// IEEE 754 single precision.
    F32 = 11,
    /// IEEE 754 double precision.
    F64 = 12,
    /// 8-bit float, 4 exponent and 3 mantissa bits, no infinities.
    F8E4M3 = 13,
    /// 8-bit float, 5 exponent and 2 mantissa bits.
    F8E5M2 = 14,
    /// One byte, 0 or 1.
    Bool = 15,
    /// Two `f32`: real and imaginary part.
    Complex64 = 16,
    /// Two `f64`: real and imaginary part.
    Complex128 = 17,
}

impl DType {
    /// Every element type, in the order of the discriminants.
    pub const ALL: [Self; 17] = [
        Self::I8,
        Self::U8,
        Self::I16,
        Self::U16,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::F64,
        Self::F8E4M3,
        Self::F8E5M2,
        Self::Bool,
        Self::Complex64,
        Self::Complex128,
    ];

    /// The size of one element.
    #[must_use]
    #[inline]
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::F8E4M3 | Self::F8E5M2 | Self::Bool => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 | Self::Complex64 => 8,
            Self::Complex128 => 16,
        }
    }

    /// Whether collectives can reduce elements of this type; all types can be moved.
    #[must_use]
    pub const fn is_reducible(self) -> bool {
        matches!(
            self,
            Self::I8
                | Self::U8
                | Self::I32
                | Self::U32
                | Self::I64
                | Self::U64
                | Self::F16
                | Self::Bf16
                | Self::F32
                | Self::F64
        )
    }

    /// The type with this discriminant.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] for a number that no version of the library assigned.
    pub fn from_wire(code: u8) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|dtype| *dtype as u8 == code)
            .ok_or_else(|| {
                Error::new(ErrorKind::Protocol, "unknown element type on the wire")
                    .with("code", code)
            })
    }

    /// The name as printed and as accepted by [`DType::from_str`](std::str::FromStr).
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::I16 => "i16",
            Self::U16 => "u16",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::I64 => "i64",
            Self::U64 => "u64",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::F8E4M3 => "f8e4m3",
            Self::F8E5M2 => "f8e5m2",
            Self::Bool => "bool",
            Self::Complex64 => "complex64",
            Self::Complex128 => "complex128",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for DType {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|dtype| dtype.as_str() == name)
            .ok_or_else(|| {
                let names: Vec<_> = Self::ALL.iter().map(|dtype| dtype.as_str()).collect();
                Error::new(
                    ErrorKind::InvalidArgument,
                    format!("unknown element type; use one of {}", names.join(", ")),
                )
                .with("dtype", name)
            })
    }
}

/// How a collective combines the elements of the ranks.
///
/// Integers wrap on overflow. `Avg` is the sum followed by one division by the number of ranks;
/// on integers the division truncates towards zero. `Min` and `Max` propagate NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
#[non_exhaustive]
pub enum ReduceOp {
    /// Sum of all ranks' elements.
    Sum = 1,
    /// Product of all ranks' elements.
    Prod = 2,
    /// Smallest element; NaN if any rank has NaN.
    Min = 3,
    /// Largest element; NaN if any rank has NaN.
    Max = 4,
    /// Arithmetic mean.
    Avg = 5,
}

impl ReduceOp {
    /// Every operator, in the order of the discriminants.
    pub const ALL: [Self; 5] = [Self::Sum, Self::Prod, Self::Min, Self::Max, Self::Avg];

    /// The operator with this discriminant.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] for a number that no version of the library assigned.
    pub fn from_wire(code: u8) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|op| *op as u8 == code)
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::Protocol,
                    "unknown reduction operator on the wire",
                )
                .with("code", code)
            })
    }

    /// The name as printed and as accepted by [`ReduceOp::from_str`](std::str::FromStr).
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Min => "min",
            Self::Max => "max",
            Self::Avg => "avg",
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for ReduceOp {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|op| op.as_str() == name)
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidArgument,
                    "unknown reduction operator; use one of sum, prod, min, max, avg",
                )
                .with("op", name)
            })
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type whose values are the elements of a tensor.
///
/// Sealed: every bit pattern of an implementing type is a valid value, which is what makes it
/// sound to receive bytes into a slice of it.
pub trait Element: sealed::Sealed + Copy + Default + Send + Sync + fmt::Debug + 'static {
    /// The element type that this Rust type stands for.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}

elements! {
    i8 => I8, u8 => U8, i16 => I16, u16 => U16, i32 => I32, u32 => U32, i64 => I64, u64 => U64,
    f16 => F16, bf16 => Bf16, f32 => F32, f64 => F64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_wire_codes_round_trip() {
        for dtype in DType::ALL {
            assert_eq!(dtype.as_str().parse::<DType>().unwrap(), dtype);
            assert_eq!(DType::from_wire(dtype as u8).unwrap(), dtype);
        }
        for op in ReduceOp::ALL {
            assert_eq!(op.as_str().parse::<ReduceOp>().unwrap(), op);
            assert_eq!(ReduceOp::from_wire(op as u8).unwrap(), op);
        }
    }

    #[test]
    fn unknown_names_and_codes_are_errors() {
        assert_eq!(
            "f31".parse::<DType>().unwrap_err().kind(),
            ErrorKind::InvalidArgument
        );
        assert_eq!(DType::from_wire(0).unwrap_err().kind(), ErrorKind::Protocol);
        assert_eq!(
            ReduceOp::from_wire(99).unwrap_err().kind(),
            ErrorKind::Protocol
        );
    }
}
