//! Codecs, settings and data for tests of compression.

use std::cell::Cell;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use comm_api::{CompressionBuilder, CompressionSettings, CompressionStats, Result, Tensor, Worker};
use comm_testkit::codec::{Runs, samples};

use crate::group_support::workers_with;

/// Settings with which [`Runs`] compresses tensors of bytes.
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

/// Two workers with these settings each, which know [`Runs`].
pub(crate) fn workers_of(settings: [Option<CompressionSettings>; 2]) -> Vec<Worker> {
    let place = Cell::new(0);
    workers_with(&["left:0", "right:0"], |builder| {
        let own = settings[place.replace(place.get() + 1)].clone();
        builder.codec(Arc::new(Runs::new())).compression(own)
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
