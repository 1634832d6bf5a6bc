//! A range of addresses in one process.

use comm_core::{Error, ErrorKind};
use serde::{Deserialize, Serialize};

/// A range of addresses that is not empty and does not wrap; its length fits an `isize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "(u64, u64)", into = "(u64, u64)")]
pub(crate) struct Span {
    start: u64,
    bytes: usize,
}

impl Span {
    /// The range, or `None` if there is no such one.
    #[inline]
    pub(crate) const fn new(start: u64, bytes: usize) -> Option<Self> {
        let fits = bytes > 0 && bytes <= isize::MAX as usize;
        if fits && start != 0 && start.checked_add(bytes as u64).is_some() {
            Some(Self { start, bytes })
        } else {
            None
        }
    }

    pub(crate) const fn start(self) -> u64 {
        self.start
    }

    pub(crate) const fn bytes(self) -> usize {
        self.bytes
    }

    const fn end(self) -> u64 {
        self.start + self.bytes as u64
    }

    /// Where `part` starts in this range, if all of it lies there.
    #[inline]
    pub(crate) const fn offset_of(self, part: Self) -> Option<usize> {
        if part.start >= self.start && part.end() <= self.end() {
            Some((part.start - self.start) as usize)
        } else {
            None
        }
    }

    pub(crate) const fn overlaps(self, other: Self) -> bool {
        self.start < other.end() && other.start < self.end()
    }
}

impl TryFrom<(u64, u64)> for Span {
    type Error = Error;

    fn try_from((start, bytes): (u64, u64)) -> Result<Self, Error> {
        let span = usize::try_from(bytes).ok();
        span.and_then(|bytes| Self::new(start, bytes))
            .ok_or_else(|| Error::new(ErrorKind::Protocol, "a peer named memory that cannot exist"))
    }
}

impl From<Span> for (u64, u64) {
    fn from(span: Span) -> Self {
        (span.start, span.bytes as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_are_empty_or_wrap_do_not_exist() {
        assert!(Span::new(4096, 0).is_none());
        assert!(Span::new(0, 1).is_none());
        assert!(Span::new(u64::MAX, 1).is_none());
        assert!(Span::new(4096, usize::MAX).is_none());
        assert!(Span::new(u64::MAX - 1, 1).is_some());
    }

    #[test]
    fn a_part_lies_inside_or_nowhere() {
        let whole = Span::new(1000, 100).unwrap();
        let offset = |start, bytes| whole.offset_of(Span::new(start, bytes).unwrap());
        assert_eq!(offset(1000, 100), Some(0));
        assert_eq!(offset(1099, 1), Some(99));
        for (start, bytes) in [(999, 1), (999, 200), (1000, 101), (1099, 2), (1100, 1)] {
            assert_eq!(offset(start, bytes), None, "{start}, {bytes}");
        }
    }

    #[test]
    fn neighbours_do_not_overlap() {
        let span = |start, bytes| Span::new(start, bytes).unwrap();
        assert!(!span(1000, 100).overlaps(span(1100, 5)));
        assert!(!span(1100, 5).overlaps(span(1000, 100)));
        assert!(span(1000, 100).overlaps(span(1099, 5)));
        assert!(span(1000, 100).overlaps(span(1, 5000)));
    }

    #[test]
    fn what_travels_is_checked() {
        let span = Span::new(4096, 10).unwrap();
        let bytes = postcard::to_allocvec(&span).unwrap();
        assert_eq!(postcard::from_bytes::<Span>(&bytes).unwrap(), span);
        for wrong in [(0, 5), (5, 0), (u64::MAX, 2), (1, u64::MAX)] {
            let bytes = postcard::to_allocvec::<(u64, u64)>(&wrong).unwrap();
            assert!(postcard::from_bytes::<Span>(&bytes).is_err(), "{wrong:?}");
        }
    }
}
