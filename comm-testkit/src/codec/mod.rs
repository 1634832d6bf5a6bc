//! The conformance suite of [`Codec`]: one function per clause of the contract, named after it.
//!
//! A codec gets all of them with one line:
//!
//! ```
//! use std::sync::Arc;
//! use comm_core::{Codec, Compressed, Error, ErrorKind, Result};
//! use comm_testkit::codec::CodecFixture;
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
//!     fn compress_bound(&self, _: usize) -> Option<usize> {
//!         None
//!     }
//!     fn target_bytes(&self, _: usize) -> Option<usize> {
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
//! impl CodecFixture for OneRun {
//!     fn codec() -> Result<Arc<dyn Codec>> {
//!         Ok(Arc::new(Self))
//!     }
//! }
//!
//! // In a test file: one #[test] for each clause.
//! comm_testkit::codec_conformance!(OneRun);
//!
//! // A clause can also be called alone.
//! comm_testkit::codec::clauses::c1_what_is_compressed_comes_back::<OneRun>()?;
//! comm_testkit::codec::clauses::c3_damaged_blocks_end_in_an_answer::<OneRun>()?;
//! # Ok::<(), comm_core::Error>(())
//! ```
//!
//! A broken promise is a panic or an error that says which one. [`samples`] has data like that of ML
//! jobs, also for benchmarks; [`Runs`] is a codec for tests of whoever uses one.

pub mod clauses;
mod runs;
pub mod samples;

pub use runs::Runs;

use std::sync::Arc;

use comm_core::{Codec, Compressed, Result};

/// A codec to be tested.
pub trait CodecFixture {
    /// A fresh codec.
    ///
    /// # Errors
    ///
    /// Whatever keeps the codec from working here; the test fails with it.
    fn codec() -> Result<Arc<dyn Codec>>;

    /// Compressed blocks of earlier releases with what they have to become, for C1; none by default.
    #[must_use]
    fn known_blocks() -> Vec<(Vec<u8>, Vec<u8>)> {
        Vec::new()
    }
}

/// The compressed form of `raw` in a vector of its length, or `None` if it does not fit any target
/// that the codec asks for.
///
/// # Errors
///
/// What the codec says.
pub fn compressed(codec: &dyn Codec, raw: &[u8]) -> Result<Option<Vec<u8>>> {
    let bytes = codec.compress_bound(raw.len());
    let Some(bytes) = bytes.or_else(|| codec.target_bytes(raw.len())) else {
        return Ok(None);
    };
    let mut target = vec![0xEE; bytes];
    match codec.compress_into(raw, &mut target)? {
        Compressed::Bytes(bytes) => {
            assert!(bytes <= target.len(), "no more than the target was written");
            target.truncate(bytes);
            Ok(Some(target))
        }
        Compressed::DoesNotFit => Ok(None),
        Compressed::Busy => panic!("C5: a codec that nobody else uses is not busy"),
    }
}

/// Makes a test of every clause, for a [`CodecFixture`](crate::codec::CodecFixture).
///
/// See [`codec`](crate::codec) for an example.
#[macro_export]
macro_rules! codec_conformance {
    ($fixture:ty) => {
        $crate::codec_conformance! { @ $fixture:
            name_and_wire_id_are_allowed
            c1_what_is_compressed_comes_back
            c1_blocks_of_earlier_releases_decompress
            c1_contexts_keep_nothing_of_earlier_calls
            c2_exactly_the_bytes_and_the_length_are_needed
            c3_damaged_blocks_end_in_an_answer
            c3_blocks_cut_short_or_prolonged_end_in_an_answer
            c3_noise_ends_in_an_answer
            c3_other_lengths_are_refused
            c4_the_bound_suffices_for_noise
            c4_targets_of_any_length_end_in_an_answer
            c4_the_useful_target_suffices_for_what_becomes_smaller
            c5_threads_share_a_codec
            an_empty_input_is_valid
        }
    };
    (@ $fixture:ty: $($clause:ident)*) => {$(
        #[test]
        fn $clause() -> $crate::codec::clauses::Result<()> {
            $crate::codec::clauses::$clause::<$fixture>()
        }
    )*};
}
