//! From which size on stores should pass the caches by.

use std::fs;
use std::sync::OnceLock;

/// What is assumed where the system does not tell: server processors have at least so much.
const UNKNOWN_CACHE_BYTES: usize = 32 << 20;
/// Below this, whatever the caches: the next reader finds it there.
const LEAST_BYTES: usize = 8 << 20;
/// A buffer is one of several that an operation works on, and ranks share the cache.
const SHARE: usize = 4;

/// The size of a buffer from which on a destination is written past the caches.
///
/// Non-temporal stores save reading the destination's lines, which pays only if they would come from
/// memory: a quarter of the last-level cache, and 8 MiB at least. The system is asked once.
#[must_use]
pub fn streaming_from_bytes() -> usize {
    static ANSWER: OnceLock<usize> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let cache_bytes = last_level_cache_bytes().unwrap_or(UNKNOWN_CACHE_BYTES);
        (cache_bytes / SHARE).max(LEAST_BYTES)
    })
}

/// The largest cache of the first CPU, where Linux shows it.
fn last_level_cache_bytes() -> Option<usize> {
    let caches = fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?;
    caches
        .flatten()
        .filter_map(|cache| fs::read_to_string(cache.path().join("size")).ok())
        .filter_map(|size| parse_size(&size))
        .max()
}

/// Parses the kernel's `32768K`.
fn parse_size(text: &str) -> Option<usize> {
    let kib: usize = text.trim().strip_suffix('K')?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_the_kernel_prints_them() {
        assert_eq!(parse_size("32768K\n"), Some(32 << 20));
        for other in ["", "12", "K", "-1K", "99999999999999999999K"] {
            assert_eq!(parse_size(other), None, "{other:?}");
        }
    }

    #[test]
    fn small_buffers_never_pass_the_caches_by() {
        assert!(streaming_from_bytes() >= LEAST_BYTES);
    }
}
