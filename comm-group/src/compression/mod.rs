//! Lossless compression of tensors on the way from worker to worker.
//!
//! # Contract
//!
//! * **What.** The host tensors of messages that [`send`](crate::CollectiveGroup::send) and its like
//!   take, if the worker has [`CompressionSettings`]: those of `min_bytes` or more whose element type
//!   is not excluded. Never what `send_tensor` sends, nor the serialised rest of a message.
//! * **Only if it pays.** A tensor travels compressed if that is smaller. If it is not, if the pool
//!   has no buffer, if the codec has no context free or fails: it travels as it is, and
//!   [`CompressionStats`] counts why. Nothing waits, and nothing fails because of compression.
//! * **When.** The sender compresses during its call, on the calling thread, before the message takes
//!   its place in the order; asynchronous calls, too. The buffers of the pool are lent until the
//!   message has left or will not leave any more, however that comes about.
//! * **Receiving** needs no settings: whoever has the codec reads it, whatever it sends by itself. The
//!   caller of a blocking receive decompresses; for asynchronous ones up to two threads of the worker
//!   do, so that the next message is received meanwhile. The sender has its acknowledgement before
//!   that.
//! * **Wrong messages.** A codec that the receiver does not have, a size that makes no sense, a buffer
//!   that does not fit: found before anything is received, and ends this direction between the two
//!   workers, on both, as everything that is wrong with a head does. A block that is damaged has
//!   arrived in full: it is the error of that receive alone.

mod decoders;
mod receiving;
mod sending;
mod stats;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use comm_codec::{BufferPool, CompressionSettings, Registry};
use comm_core::{Codec, Result};

pub(crate) use decoders::Decoders;
pub(crate) use receiving::Packed;
pub use stats::CompressionStats;
use stats::Counters;

/// How a worker compresses and decompresses; see the [module](self).
#[derive(Debug)]
pub(crate) struct Compression {
    /// The codecs that are understood.
    registry: Registry,
    /// `None` if what is sent is not compressed.
    sending: Option<Sending>,
    counters: Counters,
    decoders: Decoders,
}

#[derive(Debug)]
struct Sending {
    settings: CompressionSettings,
    codec: Arc<dyn Codec>,
    pool: BufferPool,
}

impl Compression {
    /// Compresses as `settings` say, nothing without any; understands the codecs of this build and
    /// `own` ones.
    ///
    /// # Errors
    ///
    /// Those of [`Registry`]: a codec that is not there, settings that it does not have, names and
    /// numbers that are taken.
    pub(crate) fn new(
        settings: Option<CompressionSettings>,
        own: impl IntoIterator<Item = Arc<dyn Codec>>,
    ) -> Result<Self> {
        let mut registry = match &settings {
            Some(settings) => Registry::configured(settings)?,
            None => Registry::builtin(),
        };
        own.into_iter()
            .try_for_each(|codec| registry.register(codec))?;
        let sending = match settings {
            None => None,
            Some(settings) => Some(Sending {
                codec: Arc::clone(registry.named(settings.codec().name())?),
                pool: BufferPool::new(settings.pool_bytes()),
                settings,
            }),
        };
        Ok(Self {
            registry,
            sending,
            counters: Counters::default(),
            decoders: Decoders::default(),
        })
    }

    /// Understands the codecs of this build and compresses nothing.
    pub(crate) fn receiving_only() -> Self {
        Self {
            registry: Registry::builtin(),
            sending: None,
            counters: Counters::default(),
            decoders: Decoders::default(),
        }
    }

    /// What has been compressed and decompressed.
    pub(crate) fn stats(&self) -> CompressionStats {
        let mut stats = self.counters.snapshot();
        if let Some(sending) = &self.sending {
            stats.pool_allocated_bytes = sending.pool.allocated_bytes();
            stats.pool_cached_bytes = sending.pool.cached_bytes();
        }
        stats
    }

    /// Runs what takes its time with a message that has arrived, away from the calling thread.
    pub(crate) fn later(&self, job: impl FnOnce() + Send + 'static) {
        self.decoders.run(Box::new(job));
    }

    /// Gives idle buffers back to the system.
    pub(crate) fn clear(&self) {
        if let Some(sending) = &self.sending {
            sending.pool.clear();
        }
    }
}
