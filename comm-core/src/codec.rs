//! Lossless compression of payloads: [`Codec`].
//!
//! # Contract
//!
//! * C1. **Lossless.** Decompressing what [`Codec::compress_into`] wrote gives back the input, bit
//!   by bit, on every platform and with every later version of the codec that has the same
//!   [`Codec::wire_id`].
//! * C2. **Nothing beside the bytes.** A compressed block says neither its codec nor its lengths;
//!   the frame around it does. `decompress_into` gets exactly the compressed bytes and a target of
//!   exactly the original length.
//! * C3. **Hostile input.** `decompress_into` ends with an error on any input that is not the
//!   compressed form of exactly that many bytes; it does not panic, reads nothing outside the
//!   input, and allocates no more than a constant that does not depend on the input.
//!   (Some damage still decompresses to the right length: frames carry a checksum for that.)
//! * C4. **Bounds.** If [`Codec::compress_bound`] answers `Some(bound)`, a target of `bound` bytes
//!   always suffices. With a smaller target compression may answer [`Compressed::DoesNotFit`],
//!   which is how a sender learns that compression is not worth it. With a target of
//!   [`Codec::target_bytes`], it answers so only if the result would not be smaller than the input.
//! * C5. **Threads.** A codec is shared by threads, and compressing waits for no other call: a codec
//!   that has no context left answers [`Compressed::Busy`], and the sender sends the bytes as they
//!   are. Decompressing has no such way out. It may wait for a context, for a bounded time.
//! * An empty input is valid and its compressed form may be empty.
//! * After an error the contents of the target are unspecified.
//!
//! ```
//! use comm_core::{Codec, Compressed, Error, ErrorKind, Result};
//!
//! /// Compresses runs of one byte value and nothing else.
//! #[derive(Debug)]
//! struct OneRun;
//!
//! impl Codec for OneRun {
//!     fn name(&self) -> &str {
//!         "one_run"
//!     }
//!     fn wire_id(&self) -> u8 {
//!         200
//!     }
//!     fn compress_bound(&self, _raw_bytes: usize) -> Option<usize> {
//!         None
//!     }
//!     fn target_bytes(&self, _raw_bytes: usize) -> Option<usize> {
//!         Some(1)
//!     }
//!     fn compress_into(&self, raw: &[u8], target: &mut [u8]) -> Result<Compressed> {
//!         match (raw, target) {
//!             ([], _) => Ok(Compressed::Bytes(0)),
//!             ([first, rest @ ..], [byte, ..]) if rest.iter().all(|other| other == first) => {
//!                 *byte = *first;
//!                 Ok(Compressed::Bytes(1))
//!             }
//!             _ => Ok(Compressed::DoesNotFit),
//!         }
//!     }
//!     fn decompress_into(&self, compressed: &[u8], raw: &mut [u8]) -> Result<()> {
//!         match (compressed, raw.is_empty()) {
//!             ([], true) => Ok(()),
//!             ([byte], false) => Ok(raw.fill(*byte)),
//!             _ => Err(Error::new(ErrorKind::Protocol, "not a run")),
//!         }
//!     }
//! }
//!
//! let (mut small, mut back) = ([0; 8], [0; 1000]);
//! assert_eq!(OneRun.compress_into(&[7; 1000], &mut small)?, Compressed::Bytes(1));
//! OneRun.decompress_into(&small[..1], &mut back)?;
//! assert_eq!(back, [7; 1000]);
//! assert_eq!(OneRun.compress_into(&[1, 2, 3], &mut small)?, Compressed::DoesNotFit);
//! # Ok::<(), Error>(())
//! ```

use std::fmt;

use crate::Result;

/// How an attempt to compress ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Compressed {
    /// The compressed form is this many bytes at the beginning of the target.
    Bytes(usize),
    /// The target is too small for the compressed form, or for this codec to try.
    DoesNotFit,
    /// Other calls use all contexts of the codec; nothing was tried.
    Busy,
}

/// A lossless compressor; see the [module documentation](self) for the contract.
pub trait Codec: Send + Sync + fmt::Debug {
    /// The name by which users choose the codec, in lower case.
    fn name(&self) -> &str;

    /// The number that names the compressed format on the wire.
    ///
    /// 0 means "not compressed" in a frame and is never a codec's; 1 to 127 are codecs of this
    /// workspace, 128 to 255 are free for codecs of other crates. A format that changes gets a new
    /// number.
    fn wire_id(&self) -> u8;

    /// The most bytes that `raw_bytes` bytes can become, or `None` if that is not known or does
    /// not fit `usize`.
    fn compress_bound(&self, raw_bytes: usize) -> Option<usize>;

    /// The length of a target for a caller to whom only a result smaller than `raw_bytes` is worth
    /// anything, or `None` if inputs of this length cannot be compressed.
    ///
    /// A codec that stops as soon as its target is full answers `raw_bytes - 1`, which takes less
    /// memory and ends early. The default is for codecs that want a target for the worst case.
    fn target_bytes(&self, raw_bytes: usize) -> Option<usize> {
        self.compress_bound(raw_bytes)
    }

    /// Compresses all of `raw` into the beginning of `target`. Does not wait.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ResourceExhausted`](crate::ErrorKind) if there is no memory for a context,
    /// [`ErrorKind::Unavailable`](crate::ErrorKind) if the codec's library fails.
    fn compress_into(&self, raw: &[u8], target: &mut [u8]) -> Result<Compressed>;

    /// Decompresses all of `compressed` so that it fills `raw` exactly. May wait for a context.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`](crate::ErrorKind) if `compressed` is damaged or is not the
    /// compressed form of `raw.len()` bytes; [`ErrorKind::ResourceExhausted`](crate::ErrorKind) if
    /// no context became free in time; otherwise as for [`Codec::compress_into`].
    fn decompress_into(&self, compressed: &[u8], raw: &mut [u8]) -> Result<()>;
}
