//! The checksum that frames carry with compressed payloads.

/// The 64-bit hash XXH3 (Yann Collet), seed 0: equal on all platforms and in all releases.
///
/// Finds damage, not malice: who can choose the bytes can choose them with any checksum.
///
/// ```
/// assert_eq!(comm_codec::checksum(b""), 0x2d06_8005_38d3_94c2);
/// ```
#[must_use]
pub fn checksum(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}
