//! C5.

use std::sync::Arc;
use std::thread;

use comm_core::Compressed;

use super::{Result, decompressed};
use crate::codec::CodecFixture;
use crate::codec::samples::SAMPLES;

/// Many threads use one codec at once: each gets its own bytes back, or is told that the codec is
/// busy. Everybody can decompress in the end.
///
/// # Errors
///
/// What the codec says instead.
pub fn c5_threads_share_a_codec<F: CodecFixture>() -> Result<()> {
    let codec = F::codec()?;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..8_u64)
            .map(|number| {
                let codec = Arc::clone(&codec);
                scope.spawn(move || -> Result<()> {
                    for round in 0..20 {
                        let (name, sample) = SAMPLES[round % SAMPLES.len()];
                        let raw = sample(20_000, number);
                        let bytes = codec.compress_bound(raw.len()).unwrap_or(40_000);
                        let mut target = vec![0; bytes];
                        if let Compressed::Bytes(bytes) = codec.compress_into(&raw, &mut target)? {
                            let back = decompressed(&*codec, &target[..bytes], raw.len())?;
                            assert!(back == Some(raw), "{name} of thread {number} came back");
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| match thread.join() {
                Ok(answer) => answer,
                Err(panic) => std::panic::resume_unwind(panic),
            })
    })
}
