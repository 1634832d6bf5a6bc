//! LZ4 by the C library.
//!
//! It counts in `int`: the caller has checked all lengths.

use lzzzz::lz4;

pub(super) const fn bound(raw_bytes: usize) -> usize {
    lz4::max_compressed_size(raw_bytes)
}

/// The bytes written, or `None` if the target was full before the end.
pub(super) fn compress(raw: &[u8], target: &mut [u8], acceleration: i32) -> Option<usize> {
    // Its one error is that the target is too small.
    lz4::compress(raw, target, acceleration).ok()
}

pub(super) fn decompress(compressed: &[u8], raw: &mut [u8]) -> Result<usize, String> {
    lz4::decompress(compressed, raw).map_err(|error| error.to_string())
}
