//! C4.

use comm_core::Compressed;

use super::{LENGTHS, Result, decompressed, guarded};
use crate::codec::samples::{SAMPLES, noise};
use crate::codec::{CodecFixture, compressed};

/// A target of the bound always suffices.
///
/// # Errors
///
/// What the codec says instead.
pub fn c4_the_bound_suffices_for_noise<F: CodecFixture>() -> Result<()> {
    let codec = F::codec()?;
    for len in LENGTHS {
        if let Some(bound) = codec.compress_bound(*len) {
            let raw = noise(*len, *len as u64);
            let (answer, _) = guarded(bound, |target| codec.compress_into(&raw, target));
            assert!(matches!(answer?, Compressed::Bytes(bytes) if bytes <= bound));
        }
    }
    Ok(())
}

/// With a target of any length, compressing either fits, and what it wrote is right, or says that it
/// does not.
///
/// # Errors
///
/// What the codec says instead.
pub fn c4_targets_of_any_length_end_in_an_answer<F: CodecFixture>() -> Result<()> {
    let codec = F::codec()?;
    for (name, sample) in SAMPLES {
        let raw = sample(4000, 11);
        let most = codec.compress_bound(raw.len()).unwrap_or(5000) + 100;
        for len in (0..60).chain((60..most).step_by(61)) {
            let (answer, target) = guarded(len, |target| codec.compress_into(&raw, target));
            match answer? {
                Compressed::Bytes(bytes) => {
                    let back = decompressed(&*codec, &target[..bytes], raw.len())?;
                    assert!(
                        back.as_ref() == Some(&raw),
                        "{name} in {len} bytes came back"
                    );
                }
                Compressed::DoesNotFit => {}
                Compressed::Busy => panic!("C5: a codec that nobody else uses is not busy"),
            }
        }
    }
    Ok(())
}

/// What becomes smaller fits the target for those who want nothing else.
///
/// # Errors
///
/// What the codec says instead.
pub fn c4_the_useful_target_suffices_for_what_becomes_smaller<F: CodecFixture>() -> Result<()> {
    let codec = F::codec()?;
    for (name, sample) in SAMPLES {
        for len in LENGTHS {
            let raw = sample(*len, 13);
            let Some(block) = compressed(&*codec, &raw)? else {
                continue;
            };
            let Some(useful) = codec.target_bytes(*len) else {
                continue;
            };
            let mut target = vec![0; useful];
            match codec.compress_into(&raw, &mut target)? {
                Compressed::Bytes(bytes) => {
                    let back = decompressed(&*codec, &target[..bytes], *len)?;
                    assert!(back.as_ref() == Some(&raw), "{name} came back");
                }
                _ => assert!(
                    block.len() >= *len,
                    "{len} bytes of {name} become {} but do not fit {useful}",
                    block.len()
                ),
            }
        }
    }
    Ok(())
}
