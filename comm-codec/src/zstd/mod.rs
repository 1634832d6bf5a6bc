//! Zstandard: [`Zstd`].
//!
//! # Contract
//!
//! * The format is one Zstandard frame without dictionary and without its checksum; an empty input
//!   is no bytes.
//! * At most `max_inflight` contexts exist, shared by compressing and decompressing, the one used
//!   last first. Compressing answers [`Compressed::Busy`] when all are in use or somebody waits to
//!   decompress; decompressing waits for one, for [`Zstd::DECODE_PATIENCE`] unless told otherwise.
//! * A context compresses with 0.6 MiB (level 1) to tens of MiB (levels above 15) and decompresses
//!   with 0.1 MiB; both are taken when first needed and kept.

mod contexts;

use std::time::Duration;

use comm_core::{Codec, Compressed, Error, ErrorKind, Result};
use zstd::zstd_safe;
use zstd_safe::zstd_sys::ZSTD_ErrorCode;

use crate::settings::{DEFAULT_LEVEL, DEFAULT_MAX_INFLIGHT};
use crate::{damaged, wire_id};
use contexts::Contexts;

const NAME: &str = "zstd";

/// Zstandard: smaller than LZ4, and slower; see the [module](self) for the contract.
#[derive(Debug)]
pub struct Zstd {
    contexts: Contexts,
    patience: Duration,
}

impl Zstd {
    /// How long decompressing waits for a context unless told otherwise. All of them compress for
    /// that long only if a machine is hopelessly overloaded.
    pub const DECODE_PATIENCE: Duration = Duration::from_secs(60);

    /// The codec with this level and at most this many contexts.
    ///
    /// `level` is 1 (fast) to 22 (small), or negative for less compression than level 1.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfiguration`] for a level that the library does not have, or no context.
    pub fn new(level: i32, max_inflight: usize) -> Result<Self> {
        let (least, most) = (zstd_safe::min_c_level(), zstd_safe::max_c_level());
        if level == 0 || !(least..=most).contains(&level) {
            return Err(Error::new(
                ErrorKind::InvalidConfiguration,
                format!("zstd has the levels {least} to -1 and 1 to {most}"),
            )
            .with("level", level));
        }
        if max_inflight == 0 {
            return Err(Error::new(
                ErrorKind::InvalidConfiguration,
                "zstd needs at least one context; set max_inflight to 1 or more",
            ));
        }
        Ok(Self {
            contexts: Contexts::new(level, max_inflight),
            patience: Self::DECODE_PATIENCE,
        })
    }

    /// Sets how long decompressing waits for a context.
    #[must_use]
    pub const fn decode_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }
}

impl Default for Zstd {
    /// Level 1 with 4 contexts.
    fn default() -> Self {
        Self {
            contexts: Contexts::new(DEFAULT_LEVEL, DEFAULT_MAX_INFLIGHT),
            patience: Self::DECODE_PATIENCE,
        }
    }
}

impl Codec for Zstd {
    fn name(&self) -> &str {
        NAME
    }

    fn wire_id(&self) -> u8 {
        wire_id::ZSTD
    }

    fn compress_bound(&self, raw_bytes: usize) -> Option<usize> {
        if raw_bytes == 0 {
            return Some(0);
        }
        // Beyond its largest input the library answers with an error code, which is huge.
        let bound = zstd_safe::compress_bound(raw_bytes);
        (raw_bytes <= isize::MAX as usize && bound >= raw_bytes).then_some(bound)
    }

    fn target_bytes(&self, raw_bytes: usize) -> Option<usize> {
        self.compress_bound(raw_bytes)
            .map(|_| raw_bytes.saturating_sub(1))
    }

    fn compress_into(&self, raw: &[u8], target: &mut [u8]) -> Result<Compressed> {
        if raw.is_empty() {
            return Ok(Compressed::Bytes(0));
        }
        let Some(mut context) = self.contexts.try_take() else {
            return Ok(Compressed::Busy);
        };
        match context.encoder()?.compress2(target, raw) {
            Ok(written) => Ok(Compressed::Bytes(written)),
            Err(code) if is(code, ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall) => {
                Ok(Compressed::DoesNotFit)
            }
            Err(code) => Err(failed(code)),
        }
    }

    fn decompress_into(&self, compressed: &[u8], raw: &mut [u8]) -> Result<()> {
        if raw.is_empty() && compressed.is_empty() {
            return Ok(());
        }
        if raw.is_empty() || compressed.is_empty() {
            return Err(damaged(NAME, compressed, raw, "no frame has such lengths"));
        }
        let Some(mut context) = self.contexts.take_within(self.patience) else {
            return Err(Error::new(
                ErrorKind::ResourceExhausted,
                "no zstd context became free in time; raise max_inflight, or use fewer threads",
            )
            .with("max_inflight", self.contexts.max())
            .with("waited_ms", self.patience.as_millis()));
        };
        match context.decoder()?.decompress(raw, compressed) {
            Ok(written) if written == raw.len() => Ok(()),
            Ok(written) => {
                let reason = format!("it holds {written} bytes");
                Err(damaged(NAME, compressed, raw, &reason))
            }
            Err(code) if is(code, ZSTD_ErrorCode::ZSTD_error_memory_allocation) => {
                Err(failed(code))
            }
            Err(code) => {
                let reason = zstd_safe::get_error_name(code);
                Err(damaged(NAME, compressed, raw, reason))
            }
        }
    }
}

fn is(code: usize, kind: ZSTD_ErrorCode) -> bool {
    zstd_safe::is_error_kind(code, kind)
}

/// A failure that is not the data's.
#[cold]
fn failed(code: usize) -> Error {
    if is(code, ZSTD_ErrorCode::ZSTD_error_memory_allocation) {
        return no_memory();
    }
    let reason = zstd_safe::get_error_name(code);
    Error::new(ErrorKind::Unavailable, format!("zstd failed: {reason}"))
}

#[cold]
fn no_memory() -> Error {
    Error::new(
        ErrorKind::ResourceExhausted,
        "there is no memory for a zstd context; use a lower level or a smaller max_inflight",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c5_without_a_free_context_compressing_answers_at_once_and_decompressing_gives_up_in_time() {
        let codec = Zstd::new(1, 1).unwrap();
        let codec = codec.decode_patience(Duration::from_millis(20));
        let raw = vec![1; 10_000];
        let mut target = vec![0; 10_000];
        let taken = codec.contexts.try_take().unwrap();
        let compressed = codec.compress_into(&raw, &mut target).unwrap();
        assert_eq!(compressed, Compressed::Busy);
        let mut back = vec![0; 10_000];
        let error = codec.decompress_into(&[1, 2, 3], &mut back).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
        drop(taken);
        let Compressed::Bytes(bytes) = codec.compress_into(&raw, &mut target).unwrap() else {
            panic!("the context was given back");
        };
        codec.decompress_into(&target[..bytes], &mut back).unwrap();
        assert_eq!(raw, back);
    }

    #[test]
    fn levels_that_do_not_exist_and_no_contexts_are_refused() {
        for (level, contexts) in [(0, 1), (23, 1), (i32::MIN, 1), (1, 0)] {
            let error = Zstd::new(level, contexts).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
        }
        assert!(Zstd::new(-100, 1).is_ok() && Zstd::new(22, 1).is_ok());
    }
}
