//! Asking for lines ahead of the loops that use them.
//!
//! Processors fetch ahead by themselves, but not across a page, and not for writing: a slot whose lines
//! the reader still has in its cache is got back line by line, each when it is stored to. Hints have no
//! effect on what a program means, whatever the address, but they are given inside the range at hand
//! only: beyond it a line may be in use elsewhere.

/// How far ahead sources are read: a page.
pub(super) const READ_BYTES: usize = 4096;

/// How far ahead destinations are claimed.
pub(super) const WRITE_BYTES: usize = 2048;

/// How much a kernel does between two rounds of hints.
pub(super) const BLOCK_BYTES: usize = 1024;

const LINE_BYTES: usize = 64;

/// Asks for the lines of a source that lie [`READ_BYTES`] behind `at`, for `block_bytes`, if they are
/// within its first `bytes`.
#[inline(always)]
pub(super) fn read(source: *const u8, at: usize, block_bytes: usize, bytes: usize) {
    if at + READ_BYTES + block_bytes <= bytes {
        for line in (0..block_bytes).step_by(LINE_BYTES) {
            will_read(source.wrapping_add(at + READ_BYTES + line));
        }
    }
}

/// Asks for the lines of a destination that lie [`WRITE_BYTES`] behind `at`, likewise.
#[inline(always)]
pub(super) fn write(destination: *mut u8, at: usize, block_bytes: usize, bytes: usize) {
    if at + WRITE_BYTES + block_bytes <= bytes {
        for line in (0..block_bytes).step_by(LINE_BYTES) {
            will_write(destination.wrapping_add(at + WRITE_BYTES + line));
        }
    }
}

/// Hints that the line at an address will be read: to the second-level cache.
#[inline(always)]
fn will_read(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a hint; it accesses nothing and cannot fault.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Hints that the line at an address will be written: takes it from other caches.
#[inline(always)]
fn will_write(address: *mut u8) {
    // The intrinsic becomes this instruction only where the compiler may assume it for all processors;
    // those that lack it do nothing.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint; it accesses nothing, changes no register or flag and cannot fault.
    unsafe {
        std::arch::asm!(
            "prefetchw byte ptr [{address}]",
            address = in(reg) address,
            options(nostack, preserves_flags, readonly),
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
