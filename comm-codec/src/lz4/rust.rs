//! LZ4 by `lz4_flex`, in safe Rust.

use lz4_flex::block;

pub(super) const fn bound(raw_bytes: usize) -> usize {
    block::get_maximum_output_size(raw_bytes)
}

/// The bytes written, or `None` if the target is smaller than the worst case.
pub(super) fn compress(raw: &[u8], target: &mut [u8]) -> Option<usize> {
    // Its one error is that the target is too small.
    block::compress_into(raw, target).ok()
}

pub(super) fn decompress(compressed: &[u8], raw: &mut [u8]) -> Result<usize, String> {
    block::decompress_into(compressed, raw).map_err(|error| error.to_string())
}
