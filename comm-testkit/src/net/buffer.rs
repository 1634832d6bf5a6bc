//! Registered memory with safe access, for tests.

use comm_core::device::{Device, HostDevice};
use comm_core::net::{MrSlice, NetBackend, Region};
use comm_core::{Error, ErrorKind, Result};

/// Host memory, registered with a backend, whose contents are only ever copied in and out.
///
/// The methods are safe because of a rule that the conformance suite and its rigs keep: a test
/// fills a buffer before it sends from it, and looks at it when no request is outstanding or when
/// the bytes that it looks at are none that the network may write.
#[derive(Debug)]
pub struct Buffer {
    slice: MrSlice,
}

impl Buffer {
    /// A buffer of `len_bytes` bytes, all `0xEE`, registered with `backend`'s device.
    ///
    /// # Errors
    ///
    /// What the backend says to the registration.
    pub fn new(backend: &dyn NetBackend, device: usize, len_bytes: usize) -> Result<Self> {
        let region = backend.register(device, Region::new(HostDevice.alloc(len_bytes)?))?;
        let buffer = Self {
            slice: region.slice(0, len_bytes)?,
        };
        buffer.fill(&vec![0xEE; len_bytes]);
        Ok(buffer)
    }

    /// The whole buffer as a slice for requests.
    #[must_use]
    pub const fn slice(&self) -> &MrSlice {
        &self.slice
    }

    /// Copies `bytes` to the beginning.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter.
    pub fn fill(&self, bytes: &[u8]) {
        assert!(
            bytes.len() <= self.slice.len_bytes(),
            "the buffer is too short"
        );
        // SAFETY: the memory is host memory of at least this length, and by the rule of this type
        // no request is outstanding.
        unsafe {
            self.slice
                .as_ptr()
                .as_ptr()
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        }
    }

    /// A copy of the contents.
    #[must_use]
    pub fn contents(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.slice.len_bytes()];
        // SAFETY: the memory is host memory of exactly this length, and by the rule of this type
        // the network does not write to it now.
        unsafe {
            bytes
                .as_mut_ptr()
                .copy_from_nonoverlapping(self.slice.as_ptr().as_ptr(), bytes.len())
        };
        bytes
    }

    /// Checks that nothing was written behind the first `len_bytes` bytes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Internal`] with the position of the first byte that was.
    pub fn check_untouched_behind(&self, len_bytes: usize) -> Result<()> {
        match self.contents()[len_bytes..]
            .iter()
            .position(|&byte| byte != 0xEE)
        {
            None => Ok(()),
            Some(at) => Err(Error::new(
                ErrorKind::Internal,
                "the network wrote behind the message",
            )
            .with("message_bytes", len_bytes)
            .with("written_at", len_bytes + at)),
        }
    }
}
