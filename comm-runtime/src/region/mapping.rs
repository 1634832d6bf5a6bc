//! Mappings of shared memory, on systems that have them.

#[cfg(target_os = "linux")]
pub(super) use comm_core::memory::{ReadMapping, SharedMapping};

#[cfg(not(target_os = "linux"))]
pub(super) use none::{ReadMapping, SharedMapping};

#[cfg(not(target_os = "linux"))]
mod none {
    use std::convert::Infallible;
    use std::os::fd::OwnedFd;
    use std::ptr::NonNull;

    use comm_core::{Error, ErrorKind, Result};

    /// Here there is none.
    pub(crate) struct ReadMapping(Infallible);

    impl ReadMapping {
        pub(crate) fn map(_: OwnedFd, _: usize) -> Result<Self> {
            let what = "this system has no memory files that can be sealed";
            Err(Error::new(ErrorKind::Unsupported, what))
        }

        pub(crate) const fn as_ptr(&self) -> *const u8 {
            match self.0 {}
        }
    }

    /// Here there is none.
    pub(crate) struct SharedMapping(Infallible);

    impl SharedMapping {
        pub(crate) const fn as_ptr(&self) -> NonNull<u8> {
            match self.0 {}
        }

        pub(crate) const fn len_bytes(&self) -> usize {
            match self.0 {}
        }
    }
}
