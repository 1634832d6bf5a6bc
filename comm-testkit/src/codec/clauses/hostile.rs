//! C3.
//!
//! Damage may go unnoticed, so most clauses only ask that every input ends in an answer, that it is
//! the right error if it is one, and that nothing beside the target was written to.

use comm_core::Codec;

use super::{Result, decompressed};
use crate::codec::samples::{SAMPLES, noise};
use crate::codec::{CodecFixture, compressed};
use crate::net::Rng;

/// Small enough to damage thousands of times.
const RAW_BYTES: usize = 3000;

/// The blocks that are damaged: one of each kind of data that fits.
fn blocks(codec: &dyn Codec) -> Result<Vec<Vec<u8>>> {
    let blocks = SAMPLES
        .iter()
        .map(|(_, sample)| compressed(codec, &sample(RAW_BYTES, 5)));
    Ok(blocks
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .collect())
}

/// One to four bytes of a block are changed, thousands of times.
///
/// # Errors
///
/// What the codec says instead.
pub fn c3_damaged_blocks_end_in_an_answer<F: CodecFixture>() -> Result<()> {
    let codec = F::codec()?;
    let mut rng = Rng::new(1);
    for block in blocks(&*codec)?.iter().filter(|block| !block.is_empty()) {
        for _ in 0..2000 {
            let mut damaged = block.clone();
            for _ in 0..=rng.below(4) {
                let place = rng.below(block.len() as u64) as usize;
                damaged[place] ^= 1 << rng.below(8);
            }
            decompressed(&*codec, &damaged, RAW_BYTES)?;
        }
    }
    Ok(())
}

/// Every beginning of a block, and blocks with something behind them.
///
/// # Errors
///
/// What the codec says instead.
pub fn c3_blocks_cut_short_or_prolonged_end_in_an_answer<F: CodecFixture>() -> Result<()> {
    let codec = F::codec()?;
    for block in blocks(&*codec)? {
        for len in 0..block.len().min(2000) {
            decompressed(&*codec, &block[..len], RAW_BYTES)?;
        }
        for more in [1, 7, 1000] {
            let mut longer = block.clone();
            longer.extend_from_slice(&noise(more, 2));
            decompressed(&*codec, &longer, RAW_BYTES)?;
        }
    }
    Ok(())
}

/// Bytes that no codec wrote, also with targets of lengths that they cannot have.
///
/// # Errors
///
/// What the codec says instead.
pub fn c3_noise_ends_in_an_answer<F: CodecFixture>() -> Result<()> {
    let codec = F::codec()?;
    for seed in 0..2000 {
        let mut rng = Rng::new(seed);
        let (block, raw) = (rng.below(200) as usize, rng.below(5000) as usize);
        decompressed(&*codec, &noise(block, seed), raw)?;
    }
    for byte in [0, 0xFF] {
        decompressed(&*codec, &vec![byte; 10_000], RAW_BYTES)?;
        decompressed(&*codec, &vec![byte; 10_000], 1 << 20)?;
    }
    Ok(())
}

/// A block does not decompress to another length, unless it is also the form of those bytes.
///
/// # Errors
///
/// What the codec says instead.
pub fn c3_other_lengths_are_refused<F: CodecFixture>() -> Result<()> {
    let codec = F::codec()?;
    for block in blocks(&*codec)? {
        for len in [0, 1, RAW_BYTES - 1, RAW_BYTES + 1, 2 * RAW_BYTES] {
            if let Some(raw) = decompressed(&*codec, &block, len)? {
                let form = compressed(&*codec, &raw)?;
                assert!(
                    form.as_ref() == Some(&block),
                    "a block of {RAW_BYTES} bytes decompressed to {len}"
                );
            }
        }
    }
    Ok(())
}
