//! What a collective would run with: the fastest way and how much of the machine it takes.

use super::model::{CostModel, Prediction};
use super::names::{Algorithm, Collective, Protocol};

/// GPU threads that execute in step.
const WARP: u64 = 32;
/// The most threads of one channel.
const MOST_THREADS: u64 = 640;
/// NVLS reaches its bandwidth with this many channels.
const NVLS_CHANNELS: usize = 16;
/// A ring below this bandwidth in GB/s is fed by half as many threads.
const SLOW_RING_GBPS: f64 = 12.0;

/// How a collective of one size runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The way and its time.
    pub prediction: Prediction,
    /// Channels that take part; small messages use few.
    pub channels: usize,
    /// GPU warps per channel; without meaning for host memory.
    pub warps: u64,
}

impl CostModel {
    /// The fastest way for a message, with NCCL's rule for channels and threads: channels are given
    /// up first and threads second, until every thread has enough bytes.
    ///
    /// `None` when there is a single rank.
    #[must_use]
    pub fn choose(&self, collective: Collective, bytes: u64) -> Option<Choice> {
        let prediction = *self.predict(collective, bytes).first()?;
        let Prediction {
            algorithm,
            protocol,
            ..
        } = prediction;
        let (channels, threads) = match algorithm {
            Algorithm::Nvls | Algorithm::NvlsTree => (NVLS_CHANNELS, MOST_THREADS),
            Algorithm::Pat => (self.final_channels, MOST_THREADS),
            Algorithm::Tree => (self.shrink(algorithm, protocol, bytes).0, MOST_THREADS),
            Algorithm::Ring => {
                let (channels, threads) = self.shrink(algorithm, protocol, bytes);
                // One warp more waits for the neighbours.
                let waiting = if protocol == Protocol::Simple {
                    WARP
                } else {
                    0
                };
                (channels, (threads + waiting).max(3 * WARP))
            }
        };
        Some(Choice {
            prediction,
            channels,
            warps: threads / WARP,
        })
    }

    /// Channels and threads per channel that still have enough to do.
    fn shrink(&self, algorithm: Algorithm, protocol: Protocol, bytes: u64) -> (usize, u64) {
        let ring = algorithm == Algorithm::Ring;
        let ring_gbps = self.ring.channels as f64 * f64::from(self.ring.bw_intra);
        let most_threads = match protocol {
            Protocol::Simple if ring && ring_gbps <= SLOW_RING_GBPS => 256,
            Protocol::Simple | Protocol::Ll => 512,
            Protocol::Ll128 => MOST_THREADS,
        };
        let bytes_per_thread = match protocol {
            Protocol::Ll if ring => 8 * self.ranks as u64,
            Protocol::Ll | Protocol::Ll128 => 8,
            Protocol::Simple => 64,
        };
        let enough = |channels: usize, threads: u64| {
            bytes >= (channels as u64).saturating_mul(threads * bytes_per_thread)
        };
        let (mut channels, mut threads) = (self.final_channels, most_threads);
        while channels > 1 && !enough(channels, threads) {
            channels -= 1;
        }
        while threads % (4 * WARP) == 0 && !enough(channels, threads) {
            threads /= 2;
        }
        (channels, threads)
    }
}
