//! [`Runs`]: a codec without a library, for tests of whoever uses codecs.

use comm_core::{Codec, Compressed, Error, ErrorKind, Result};

/// Compresses what is one byte value all through to that byte, and nothing else.
///
/// ```
/// use comm_core::{Codec, Compressed};
/// use comm_testkit::codec::Runs;
///
/// let mut target = [0; 1];
/// assert_eq!(Runs::new().compress_into(&[7; 100], &mut target)?, Compressed::Bytes(1));
/// assert_eq!(target, [7]);
/// # Ok::<(), comm_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Runs {
    is_broken: bool,
    refuses: bool,
}

impl Runs {
    /// The first byte of data for which a [refusing](Runs::refusing) codec has no free context.
    pub const BUSY: u8 = 255;

    /// The first byte of data for which a [refusing](Runs::refusing) codec misses its library.
    pub const UNAVAILABLE: u8 = 254;

    /// A codec that keeps its contract.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            is_broken: false,
            refuses: false,
        }
    }

    /// A codec that decompresses to other bytes.
    #[must_use]
    pub const fn broken() -> Self {
        Self {
            is_broken: true,
            refuses: false,
        }
    }

    /// A codec that refuses data that begins with [`Runs::BUSY`] or [`Runs::UNAVAILABLE`].
    #[must_use]
    pub const fn refusing() -> Self {
        Self {
            is_broken: false,
            refuses: true,
        }
    }
}

impl Codec for Runs {
    fn name(&self) -> &str {
        "runs"
    }

    fn wire_id(&self) -> u8 {
        200
    }

    fn compress_bound(&self, _: usize) -> Option<usize> {
        None
    }

    fn target_bytes(&self, raw_bytes: usize) -> Option<usize> {
        Some(raw_bytes.saturating_sub(1))
    }

    fn compress_into(&self, raw: &[u8], target: &mut [u8]) -> Result<Compressed> {
        match (raw, target) {
            ([Self::BUSY, ..], _) if self.refuses => Ok(Compressed::Busy),
            ([Self::UNAVAILABLE, ..], _) if self.refuses => {
                Err(Error::new(ErrorKind::Unavailable, "no library"))
            }
            ([first, rest @ ..], [byte, ..]) if rest.iter().all(|other| other == first) => {
                *byte = *first;
                Ok(Compressed::Bytes(1))
            }
            _ => Ok(Compressed::DoesNotFit),
        }
    }

    fn decompress_into(&self, compressed: &[u8], raw: &mut [u8]) -> Result<()> {
        let [byte] = compressed else {
            return Err(Error::new(ErrorKind::Protocol, "not a run"));
        };
        raw.fill(if self.is_broken { !byte } else { *byte });
        Ok(())
    }
}
