//! Lossless compression of payloads.
//!
//! # Contract
//!
//! * **Codecs** are values of [`Codec`](comm_core::Codec): LZ4 and Zstandard here, any other
//!   from outside through [`Registry::register`]. What one build compresses every build that has
//!   the codec decompresses, whatever its settings, libraries and release: the [`wire_id`] of a
//!   format never changes its meaning.
//! * **Features.** `lz4` (default) is LZ4 in safe Rust, `lz4-c` LZ4 of the C library with
//!   `acceleration`, `zstd` Zstandard of the C library. Settings and registry exist without any of
//!   them; asking for a codec that is not compiled in is an error that names its feature.
//! * **Nothing waits for compression.** No context, no buffer, no gain: a sender learns it at once
//!   and sends the bytes as they are.
//! * **Integrity** is the frame's: nearly half of the damaged LZ4 blocks still decompress to the
//!   right length. [`checksum`] is what frames use.
//!
//! This crate knows nothing of messages; `comm-group` decides what is compressed, and when.
//!
#![cfg_attr(any(feature = "lz4", feature = "lz4-c"), doc = "```")]
#![cfg_attr(not(any(feature = "lz4", feature = "lz4-c")), doc = "```ignore")]
//! use comm_codec::{BufferPool, CompressionSettings, Registry};
//! use comm_core::Compressed;
//!
//! let settings = CompressionSettings::builder().codec("lz4").build()?;
//! let registry = Registry::configured(&settings)?;
//! let codec = registry.named(settings.codec().name())?;
//! let pool = BufferPool::new(settings.pool_bytes());
//!
//! let raw = [7; 100_000];
//! let target_bytes = codec.target_bytes(raw.len()).unwrap();
//! let mut buffer = pool.acquire(target_bytes).unwrap();
//! let Compressed::Bytes(bytes) = codec.compress_into(&raw, &mut buffer)? else {
//!     panic!("a hundred thousand equal bytes become fewer");
//! };
//! assert!(bytes < 1000);
//!
//! // Elsewhere: the wire id says which codec, the frame how long the result is.
//! let mut back = [0; 100_000];
//! registry.with_wire_id(codec.wire_id())?.decompress_into(&buffer[..bytes], &mut back)?;
//! assert_eq!(raw, back);
//! # Ok::<(), comm_core::Error>(())
//! ```

#![forbid(unsafe_code)]

mod checksum;
#[cfg(any(feature = "lz4", feature = "lz4-c"))]
pub mod lz4;
pub mod pool;
pub mod registry;
pub mod settings;
pub mod wire_id;
#[cfg(feature = "zstd")]
pub mod zstd;

pub use checksum::checksum;
#[cfg(any(feature = "lz4", feature = "lz4-c"))]
pub use lz4::{Lz4, Lz4Library};
pub use pool::{BufferPool, Lease};
pub use registry::Registry;
pub use settings::{CodecChoice, CompressionBuilder, CompressionSettings};
#[cfg(feature = "zstd")]
pub use zstd::Zstd;

/// The error of a block that does not decompress.
#[cfg(any(feature = "lz4", feature = "lz4-c", feature = "zstd"))]
#[cold]
fn damaged(codec: &'static str, compressed: &[u8], raw: &[u8], reason: &str) -> comm_core::Error {
    comm_core::Error::new(
        comm_core::ErrorKind::Protocol,
        format!("a compressed payload is damaged, or its lengths are wrong: {reason}"),
    )
    .with("codec", codec)
    .with("compressed_bytes", compressed.len())
    .with("raw_bytes", raw.len())
}
