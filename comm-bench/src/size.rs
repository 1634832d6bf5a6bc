//! Message sizes: how they are written and which are measured.

use std::fmt;
use std::str::FromStr;

use comm_api::{Error, ErrorKind, Result, parse_byte_size};
use serde::{Deserialize, Serialize};

const UNITS: [(&str, u64); 4] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

/// A number of bytes, read by [`parse_byte_size`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse_byte_size(text).map(Self)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, unit) = UNITS
            .into_iter()
            .find(|(_, unit)| self.0 != 0 && self.0.is_multiple_of(*unit))
            .unwrap_or(("B", 1));
        write!(f, "{} {name}", self.0 / unit)
    }
}

/// Which sizes are measured: `min`, `min * factor`, ... up to `max`, and `max` itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sweep {
    /// The smallest size. 0 is measured too and followed by one element.
    pub min: Size,
    /// The largest size.
    pub max: Size,
    /// The ratio of one size to the one before; at least 2.
    pub factor: u64,
}

impl Sweep {
    /// Whether the sweep makes sense.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] for a factor below 2 or a minimum above the maximum.
    pub fn validate(&self) -> Result<()> {
        if self.factor < 2 {
            let message = "the factor between sizes must be at least 2";
            return Err(Error::new(ErrorKind::InvalidArgument, message).with("factor", self.factor));
        }
        if self.min > self.max {
            let message = "the smallest size must not exceed the largest one";
            return Err(Error::new(ErrorKind::InvalidArgument, message)
                .with("min_bytes", self.min.0)
                .with("max_bytes", self.max.0));
        }
        Ok(())
    }

    /// The numbers of elements of `element_bytes` each, ascending. Sizes that are no whole number
    /// of elements are rounded up.
    pub(crate) fn counts(&self, element_bytes: usize) -> Vec<usize> {
        let factor = self.factor.max(2);
        let mut sizes = Vec::new();
        if self.min.0 == 0 {
            sizes.push(0);
        }
        let mut next = self.min.0.max(1);
        while next < self.max.0 {
            sizes.push(next);
            next = next.saturating_mul(factor);
        }
        sizes.push(self.max.0);
        let whole = |bytes: u64| bytes.div_ceil(element_bytes as u64);
        let mut counts: Vec<usize> = sizes
            .into_iter()
            .filter_map(|bytes| whole(bytes).try_into().ok())
            .collect();
        counts.dedup();
        counts
    }

    /// The sizes in bytes for elements of `element_bytes`, ascending.
    #[must_use]
    pub fn bytes(&self, element_bytes: usize) -> Vec<u64> {
        let counts = self.counts(element_bytes);
        let bytes = |count: usize| count as u64 * element_bytes as u64;
        counts.into_iter().map(bytes).collect()
    }

    /// The largest number of elements.
    pub(crate) fn largest_count(&self, element_bytes: usize) -> usize {
        self.counts(element_bytes).last().copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(min: u64, max: u64, factor: u64) -> Sweep {
        Sweep {
            min: Size(min),
            max: Size(max),
            factor,
        }
    }

    #[test]
    fn sizes_are_printed_in_the_largest_whole_unit() {
        for (bytes, text) in [
            (0, "0 B"),
            (8, "8 B"),
            (1000, "1000 B"),
            (4096, "4 KiB"),
            (3 << 20, "3 MiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }

    #[test]
    fn a_sweep_ends_with_its_maximum() {
        assert_eq!(sweep(8, 64, 2).counts(4), [2, 4, 8, 16]);
        assert_eq!(sweep(8, 100, 8).counts(4), [2, 16, 25]);
        assert_eq!(sweep(8, 8, 2).counts(8), [1]);
    }

    #[test]
    fn sizes_are_whole_elements_and_each_is_measured_once() {
        assert_eq!(sweep(0, 16, 2).counts(4), [0, 1, 2, 4]);
        assert_eq!(sweep(1, 9, 3).counts(8), [1, 2]);
        assert_eq!(sweep(1, 9, 3).largest_count(8), 2);
    }

    #[test]
    fn senseless_sweeps_are_refused() {
        assert!(sweep(8, 64, 2).validate().is_ok());
        assert!(
            sweep(8, 64, 1)
                .validate()
                .unwrap_err()
                .to_string()
                .contains("at least 2")
        );
        assert!(
            sweep(65, 64, 2)
                .validate()
                .unwrap_err()
                .to_string()
                .contains("max_bytes=64")
        );
    }

    #[test]
    fn the_largest_sizes_do_not_overflow() {
        assert!(sweep(1, u64::MAX, u64::MAX).counts(1).len() == 2);
    }
}
