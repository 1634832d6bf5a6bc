//! What a process holds of the kernel, to be compared before and after.

use std::thread;
use std::time::{Duration, Instant};

/// Kernel resources of this process that a transport may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resources {
    /// Open descriptors.
    pub descriptors: usize,
    /// Mappings of memory files and of other shared memory.
    pub shared_mappings: usize,
}

impl Resources {
    /// What this process holds now; zeros where there is no `/proc`.
    #[must_use]
    pub fn now() -> Self {
        // The directory's own descriptor is counted each time.
        let descriptors = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let shared_mappings = maps.lines().filter(|line| is_shared(line)).count();
        Self {
            descriptors,
            shared_mappings,
        }
    }

    /// Waits until this process holds no more than `self`.
    ///
    /// A transport may release from a thread of its own, so there is no moment at which it must
    /// have happened, but after half a minute it counts as never.
    ///
    /// # Panics
    ///
    /// If more is held then.
    pub fn wait_for_return(self) {
        let patience = Instant::now() + Duration::from_secs(120);
        loop {
            let now = Self::now();
            if now.descriptors <= self.descriptors && now.shared_mappings <= self.shared_mappings {
                return;
            }
            assert!(
                Instant::now() < patience,
                "not released: {now:?}, before: {self:?}"
            );
            thread::yield_now();
        }
    }
}

/// A line of `/proc/self/maps` like `7f..-7f.. rw-s 00000000 00:01 42 /memfd:name (deleted)`.
fn is_shared(line: &str) -> bool {
    line.split_whitespace()
        .nth(1)
        .is_some_and(|permissions| permissions.ends_with('s'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_mappings_are_told_from_private_ones() {
        assert!(is_shared(
            "7f00-7f10 rw-s 00000000 00:01 42 /memfd:comm-edge (deleted)"
        ));
        assert!(!is_shared(
            "7f00-7f10 r-xp 00000000 00:01 42 /usr/lib/libc.so"
        ));
        assert!(!is_shared(""));
    }
}
