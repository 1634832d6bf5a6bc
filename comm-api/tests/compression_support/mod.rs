//! Codecs, settings and data for tests of compression.

use std::cell::Cell;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use comm_api::{
    Codec, Compressed, CompressionBuilder, CompressionSettings, CompressionStats, Error, ErrorKind,
    Result, Tensor, Worker,
};
use comm_testkit::codec::samples;

use crate::group_support::workers_with;

/// Compresses what is one byte value all through to that byte; is there without any feature.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// Decompresses to other bytes.
    pub(crate) is_broken: bool,
}

impl Codec for Runs {
    fn name(&self) -> &str {
        "runs"
    }

    fn wire_id(&self) -> u8 {
        200
    }

    fn compress_bound(&self, _: usize) -> Option<usize> {
        None
    }

    fn target_bytes(&self, raw_bytes: usize) -> Option<usize> {
        Some(raw_bytes.saturating_sub(1))
    }

    fn compress_into(&self, raw: &[u8], target: &mut [u8]) -> Result<Compressed> {
        match (raw, target) {
            ([first, rest @ ..], [byte, ..]) if rest.iter().all(|other| other == first) => {
                *byte = *first;
                Ok(Compressed::Bytes(1))
            }
            _ => Ok(Compressed::DoesNotFit),
        }
    }

    fn decompress_into(&self, compressed: &[u8], raw: &mut [u8]) -> Result<()> {
        let [byte] = compressed else {
            return Err(Error::new(ErrorKind::Protocol, "not a run"));
        };
        raw.fill(if self.is_broken { !byte } else { *byte });
        Ok(())
    }
}

/// Settings with which the codec above compresses tensors of bytes.
pub(crate) fn runs() -> CompressionBuilder {
    CompressionSettings::builder().codec("runs")
}

/// Settings for each codec of this build.
pub(crate) fn builtin() -> Vec<CompressionSettings> {
    let mut names: Vec<&str> = Vec::new();
    if cfg!(any(feature = "lz4", feature = "lz4-c")) {
        names.push("lz4");
    }
    if cfg!(feature = "zstd") {
        names.push("zstd");
    }
    let settings = names
        .iter()
        .map(|name| CompressionSettings::builder().codec(*name).build());
    settings.map(Result::unwrap).collect()
}

/// Two workers with these settings each, which know the codec above.
pub(crate) fn workers_of(settings: [Option<CompressionSettings>; 2]) -> Vec<Worker> {
    let place = Cell::new(0);
    workers_with(&["left:0", "right:0"], |builder| {
        let own = settings[place.replace(place.get() + 1)].clone();
        builder.codec(Arc::new(Runs::default())).compression(own)
    })
}

/// Bytes that become fewer.
pub(crate) fn zeros(len: usize) -> Tensor {
    Tensor::from_vec(vec![0_u8; len], &[len]).unwrap()
}

/// Bytes that do not.
pub(crate) fn noise(seed: u64, len: usize) -> Tensor {
    Tensor::from_vec(samples::noise(len, seed), &[len]).unwrap()
}

/// The statistics of two workers when all buffers are given back.
pub(crate) fn settle(workers: &[Worker]) -> [CompressionStats; 2] {
    for _ in 0..60_000 {
        let stats = [0, 1].map(|place: usize| workers[place].compression_stats());
        let is_settled =
            |stats: &CompressionStats| stats.pool_allocated_bytes == stats.pool_cached_bytes;
        if stats.iter().all(is_settled) {
            return stats;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("buffers are lent that nothing needs any more");
}
