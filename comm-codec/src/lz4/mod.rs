//! LZ4 blocks: [`Lz4`].
//!
//! # Contract
//!
//! * The format is the LZ4 block format (`LZ4_compress_fast`, `LZ4_decompress_safe`), whichever
//!   library writes it: each reads what the other wrote. An empty input is no bytes.
//! * At most [`MAX_RAW_BYTES`] go into one block, the limit of the C library, also without it.
//! * Nothing is shared by calls, so [`Compressed::Busy`] is never an answer and nothing waits.
//! * `lz4_flex` refuses a target that is smaller than the worst case without a try, so its
//!   [`target_bytes`](Codec::target_bytes) is the worst case; the C library stops when the target
//!   is full, so there it is one byte less than the input.

#[cfg(feature = "lz4-c")]
mod c;
#[cfg(feature = "lz4")]
mod rust;

use comm_core::{Codec, Compressed, Error, ErrorKind, Result};

use crate::{damaged, wire_id};

/// The most bytes that one block can hold.
pub const MAX_RAW_BYTES: usize = 0x7E00_0000;

const NAME: &str = "lz4";

/// A library that writes and reads LZ4 blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lz4Library {
    /// `lz4_flex`, safe Rust; the Cargo feature `lz4`.
    Rust,
    /// The C library, compiled with this crate; the Cargo feature `lz4-c`.
    C,
}

impl Lz4Library {
    /// The libraries of this build.
    pub const COMPILED: &[Self] = &[
        #[cfg(feature = "lz4-c")]
        Self::C,
        #[cfg(feature = "lz4")]
        Self::Rust,
    ];

    /// The library of this build that is used unless told otherwise: that of C, because whoever has
    /// switched it on wants it.
    pub const PREFERRED: Self = if cfg!(feature = "lz4-c") {
        Self::C
    } else {
        Self::Rust
    };
}

/// LZ4: fast, and little smaller; see the [module](self) for the contract.
///
/// ```
/// use comm_codec::{Lz4, Lz4Library};
///
/// // Without the C library there is no acceleration.
/// match Lz4::new(8) {
///     Ok(codec) => assert_eq!(codec.library(), Lz4Library::C),
///     Err(error) => assert!(error.to_string().contains("lz4-c")),
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Lz4 {
    backend: Backend,
}

/// A library that is compiled in, with its settings.
#[derive(Clone, Copy, Debug)]
enum Backend {
    #[cfg(feature = "lz4")]
    Rust,
    #[cfg(feature = "lz4-c")]
    C { acceleration: i32 },
}

impl Backend {
    /// What [`Lz4Library::PREFERRED`] stands for.
    const PREFERRED: Self = {
        #[cfg(feature = "lz4-c")]
        {
            Self::C { acceleration: 1 }
        }
        #[cfg(not(feature = "lz4-c"))]
        {
            Self::Rust
        }
    };
}

impl Lz4 {
    /// The codec of the preferred library that can do this acceleration.
    ///
    /// `acceleration` is 1 or more; each step makes compressing a few per cent faster and the result
    /// larger.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfiguration`] for 0; [`ErrorKind::Unavailable`] for more than 1 without
    /// the feature `lz4-c`.
    pub fn new(acceleration: u32) -> Result<Self> {
        Self::of_library(Lz4Library::PREFERRED, acceleration)
    }

    /// The codec of this library.
    ///
    /// # Errors
    ///
    /// As for [`Lz4::new`]; also [`ErrorKind::Unavailable`] if the library is not compiled in.
    pub fn of_library(library: Lz4Library, acceleration: u32) -> Result<Self> {
        if acceleration == 0 {
            return Err(Error::new(
                ErrorKind::InvalidConfiguration,
                "the acceleration of lz4 is 1 or more",
            ));
        }
        if library == Lz4Library::Rust && acceleration != 1 {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "LZ4 in Rust has no acceleration; enable the Cargo feature `lz4-c`, or leave it at 1",
            )
            .with("acceleration", acceleration));
        }
        let backend = match library {
            #[cfg(feature = "lz4")]
            Lz4Library::Rust => Backend::Rust,
            #[cfg(feature = "lz4-c")]
            Lz4Library::C => Backend::C {
                // The library cuts off what is above 65537.
                acceleration: i32::try_from(acceleration).unwrap_or(i32::MAX),
            },
            #[cfg(not(feature = "lz4"))]
            Lz4Library::Rust => return Err(not_compiled_in("lz4")),
            #[cfg(not(feature = "lz4-c"))]
            Lz4Library::C => return Err(not_compiled_in("lz4-c")),
        };
        Ok(Self { backend })
    }

    /// The library that does the work.
    #[must_use]
    pub const fn library(&self) -> Lz4Library {
        match self.backend {
            #[cfg(feature = "lz4")]
            Backend::Rust => Lz4Library::Rust,
            #[cfg(feature = "lz4-c")]
            Backend::C { .. } => Lz4Library::C,
        }
    }
}

#[cfg(not(all(feature = "lz4", feature = "lz4-c")))]
#[cold]
fn not_compiled_in(feature: &str) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!("this LZ4 library is not compiled in; enable the Cargo feature `{feature}`"),
    )
}

impl Default for Lz4 {
    /// The preferred library with acceleration 1.
    fn default() -> Self {
        Self {
            backend: Backend::PREFERRED,
        }
    }
}

impl Codec for Lz4 {
    fn name(&self) -> &str {
        NAME
    }

    fn wire_id(&self) -> u8 {
        wire_id::LZ4
    }

    fn compress_bound(&self, raw_bytes: usize) -> Option<usize> {
        match raw_bytes {
            0 => Some(0),
            1..=MAX_RAW_BYTES => Some(match self.backend {
                #[cfg(feature = "lz4")]
                Backend::Rust => rust::bound(raw_bytes),
                #[cfg(feature = "lz4-c")]
                Backend::C { .. } => c::bound(raw_bytes),
            }),
            _ => None,
        }
    }

    fn target_bytes(&self, raw_bytes: usize) -> Option<usize> {
        let bound = self.compress_bound(raw_bytes);
        match self.backend {
            #[cfg(feature = "lz4")]
            Backend::Rust => bound,
            #[cfg(feature = "lz4-c")]
            Backend::C { .. } => bound.map(|_| raw_bytes.saturating_sub(1)),
        }
    }

    fn compress_into(&self, raw: &[u8], target: &mut [u8]) -> Result<Compressed> {
        if raw.is_empty() {
            return Ok(Compressed::Bytes(0));
        }
        let Some(bound) = self.compress_bound(raw.len()) else {
            return Ok(Compressed::DoesNotFit);
        };
        // The libraries count in 32 bits.
        let len = target.len().min(bound);
        let target = &mut target[..len];
        let written = match self.backend {
            #[cfg(feature = "lz4")]
            Backend::Rust => rust::compress(raw, target),
            #[cfg(feature = "lz4-c")]
            Backend::C { acceleration } => c::compress(raw, target, acceleration),
        };
        Ok(written.map_or(Compressed::DoesNotFit, Compressed::Bytes))
    }

    fn decompress_into(&self, compressed: &[u8], raw: &mut [u8]) -> Result<()> {
        if raw.is_empty() && compressed.is_empty() {
            return Ok(());
        }
        if raw.is_empty() || compressed.is_empty() || raw.len() > MAX_RAW_BYTES {
            return Err(damaged(NAME, compressed, raw, "no block has such lengths"));
        }
        if i32::try_from(compressed.len()).is_err() {
            return Err(damaged(NAME, compressed, raw, "no block is that long"));
        }
        let outcome = match self.backend {
            #[cfg(feature = "lz4")]
            Backend::Rust => rust::decompress(compressed, raw),
            #[cfg(feature = "lz4-c")]
            Backend::C { .. } => c::decompress(compressed, raw),
        };
        match outcome {
            Ok(written) if written == raw.len() => Ok(()),
            Ok(written) => {
                let reason = format!("it holds {written} bytes");
                Err(damaged(NAME, compressed, raw, &reason))
            }
            Err(reason) => Err(damaged(NAME, compressed, raw, &reason)),
        }
    }
}
