//! Times of one call, from the durations of batches.

use serde::{Deserialize, Serialize};

/// Times of one call in microseconds, over the batches of one measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimeUs {
    /// Half of the batches were at most as slow.
    pub p50: f64,
    /// 99 of 100 batches were at most as slow; the slowest one if there were fewer.
    pub p99: f64,
    /// The fastest batch.
    pub min: f64,
}

impl TimeUs {
    /// Summarises batches of `calls` measured units each, of which one call is `share`.
    ///
    /// `batch_ns` holds the duration of each batch in nanoseconds. Without batches all times are 0.
    pub(crate) fn of_batches(batch_ns: &[u64], calls: u64, share: f64) -> Self {
        let mut sorted = batch_ns.to_vec();
        sorted.sort_unstable();
        let one_call = |batch_ns: u64| rounded(batch_ns as f64 / 1e3 / calls.max(1) as f64 * share);
        Self {
            p50: one_call(percentile(&sorted, 50)),
            p99: one_call(percentile(&sorted, 99)),
            min: one_call(percentile(&sorted, 0)),
        }
    }
}

/// The smallest value to which at least `percent` of 100 values are not greater (nearest rank).
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

/// Rounds to a tenth of a nanosecond, as more digits are noise.
fn rounded(us: f64) -> f64 {
    (us * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let hundred: Vec<u64> = (1..=100).collect();
        for (percent, wanted) in [(0, 1), (50, 50), (99, 99), (100, 100)] {
            assert_eq!(percentile(&hundred, percent), wanted);
        }
        assert_eq!(percentile(&[7], 99), 7);
        assert_eq!(percentile(&[1, 2, 3], 50), 2);
        assert_eq!(percentile(&[], 50), 0);
    }

    #[test]
    fn times_are_per_call_whatever_the_order_of_batches() {
        let time = TimeUs::of_batches(&[30_000, 20_000, 40_000], 10, 1.0);
        assert_eq!(
            time,
            TimeUs {
                p50: 3.0,
                p99: 4.0,
                min: 2.0
            }
        );
        let half = TimeUs::of_batches(&[30_000, 20_000, 40_000], 10, 0.5);
        assert_eq!(
            half,
            TimeUs {
                p50: 1.5,
                p99: 2.0,
                min: 1.0
            }
        );
    }

    #[test]
    fn without_batches_there_is_no_time() {
        assert_eq!(
            TimeUs::of_batches(&[], 0, 1.0),
            TimeUs {
                p50: 0.0,
                p99: 0.0,
                min: 0.0
            }
        );
    }
}
