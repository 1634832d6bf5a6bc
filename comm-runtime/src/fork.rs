//! Telling a forked child from its parent without a system call.
//!
//! A fork copies the mappings of shared memory but none of the threads, so a child that went on
//! using its parent's communicator would write into the parent's edges. On Linux a page with
//! `MADV_WIPEONFORK` reads as zero in the child; elsewhere the process number is compared.

#[cfg(target_os = "linux")]
mod page {
    use std::ptr::{self, NonNull};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU8, Ordering};

    use comm_core::{Error, Result};
    use rustix::mm::{MapFlags, ProtFlags};

    const PAGE_BYTES: usize = 4096;

    /// One page per process, never unmapped.
    static PAGE: OnceLock<Result<Page>> = OnceLock::new();

    #[derive(Clone, Copy, Debug)]
    struct Page(NonNull<AtomicU8>);

    // SAFETY: the page holds one atomic byte and stays mapped for the life of the process.
    unsafe impl Send for Page {}
    // SAFETY: as above.
    unsafe impl Sync for Page {}

    /// Knows whether this process is the one in which the guard was made.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct ForkGuard(Page);

    impl ForkGuard {
        pub(crate) fn new() -> Result<Self> {
            let page = PAGE.get_or_init(map).as_ref().map_err(Clone::clone)?;
            // A child that makes its own communicator is a parent from then on. Guards that it
            // inherited then cannot tell any more; their doorbells and control plane are gone, so
            // they fail when they wait.
            byte(*page).store(1, Ordering::Relaxed);
            Ok(Self(*page))
        }

        #[inline]
        pub(crate) fn in_child(&self) -> bool {
            byte(self.0).load(Ordering::Relaxed) == 0
        }
    }

    #[inline]
    fn byte<'a>(page: Page) -> &'a AtomicU8 {
        // SAFETY: the page is mapped, aligned and never unmapped; the kernel zeroes it in a
        // forked child before that runs.
        unsafe { page.0.as_ref() }
    }

    fn map() -> Result<Page> {
        // SAFETY: a new private mapping at an address that the kernel chooses aliases nothing.
        let address = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                PAGE_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let address = address.map_err(|errno| Error::system("mapping the fork guard", errno))?;
        // SAFETY: the range was just mapped; the advice changes what a child sees of it.
        let advised = unsafe {
            rustix::mm::madvise(address, PAGE_BYTES, rustix::mm::Advice::LinuxWipeOnFork)
        };
        advised.map_err(|errno| Error::system("marking the fork guard", errno))?;
        NonNull::new(address.cast())
            .map(Page)
            .ok_or_else(|| Error::system("mapping the fork guard", rustix::io::Errno::NOMEM))
    }
}

#[cfg(not(target_os = "linux"))]
mod page {
    use comm_core::Result;

    /// Knows whether this process is the one in which the guard was made.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct ForkGuard(u32);

    impl ForkGuard {
        pub(crate) fn new() -> Result<Self> {
            Ok(Self(std::process::id()))
        }

        pub(crate) fn in_child(&self) -> bool {
            std::process::id() != self.0
        }
    }
}

pub(crate) use page::ForkGuard;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_made_a_guard_is_no_child() {
        assert!(!ForkGuard::new().unwrap().in_child());
    }
}
