//! C1, C2, names and empty inputs.

use comm_core::Compressed;

use super::{LENGTHS, Result, decompressed};
use crate::codec::samples::SAMPLES;
use crate::codec::{CodecFixture, compressed};

/// The name is in lower case and not empty, and the number is not that of "not compressed".
///
/// # Errors
///
/// What the codec says instead.
pub fn name_and_wire_id_are_allowed<F: CodecFixture>() -> Result<()> {
    let codec = F::codec()?;
    assert!(!codec.name().is_empty());
    assert!(!codec.name().chars().any(char::is_uppercase));
    assert_ne!(codec.wire_id(), 0);
    Ok(())
}

/// What was compressed comes back bit by bit, for data of all kinds and lengths.
///
/// # Errors
///
/// What the codec says instead.
pub fn c1_what_is_compressed_comes_back<F: CodecFixture>() -> Result<()> {
    let codec = F::codec()?;
    for (name, sample) in SAMPLES {
        for len in LENGTHS {
            let raw = sample(*len, *len as u64);
            if let Some(block) = compressed(&*codec, &raw)? {
                let back = decompressed(&*codec, &block, *len)?;
                assert!(back == Some(raw), "{len} bytes of {name} came back");
            }
        }
    }
    Ok(())
}

/// Blocks that earlier releases wrote still mean the same.
///
/// # Errors
///
/// What the codec says instead.
pub fn c1_blocks_of_earlier_releases_decompress<F: CodecFixture>() -> Result<()> {
    let codec = F::codec()?;
    for (block, raw) in F::known_blocks() {
        assert_eq!(decompressed(&*codec, &block, raw.len())?, Some(raw));
    }
    Ok(())
}

/// Calls that did not fit, and damaged input, leave nothing behind that later calls see.
///
/// # Errors
///
/// What the codec says instead.
pub fn c1_contexts_keep_nothing_of_earlier_calls<F: CodecFixture>() -> Result<()> {
    let codec = F::codec()?;
    for (name, sample) in SAMPLES {
        let raw = sample(100_000, 7);
        for seed in 0..4 {
            let other = sample(50_000, seed);
            let _ = codec.compress_into(&other, &mut [0; 3])?;
            let _ = codec.compress_into(&other, &mut [])?;
            decompressed(&*codec, &other[..100], 1000)?;
            if let Some(block) = compressed(&*codec, &raw)? {
                let back = decompressed(&*codec, &block, raw.len())?;
                assert!(back.as_ref() == Some(&raw), "{name} came back");
            }
        }
    }
    Ok(())
}

/// A block is decompressed by another instance of the codec, which knows nothing but the bytes and
/// the length.
///
/// # Errors
///
/// What the codec says instead.
pub fn c2_exactly_the_bytes_and_the_length_are_needed<F: CodecFixture>() -> Result<()> {
    for (name, sample) in SAMPLES {
        let raw = sample(70_000, 3);
        let block = compressed(&*F::codec()?, &raw)?;
        if let Some(block) = block {
            let other = F::codec()?;
            let back = decompressed(&*other, &block, raw.len())?;
            assert!(back == Some(raw), "{name} came back from another instance");
        }
    }
    Ok(())
}

/// An empty input compresses, into an empty target if its form is empty, and comes back.
///
/// # Errors
///
/// What the codec says instead.
pub fn an_empty_input_is_valid<F: CodecFixture>() -> Result<()> {
    let codec = F::codec()?;
    let mut target = [0; 64];
    let Compressed::Bytes(bytes) = codec.compress_into(&[], &mut target)? else {
        panic!("an empty input fits 64 bytes");
    };
    assert!(bytes <= codec.compress_bound(0).unwrap_or(64));
    codec.decompress_into(&target[..bytes], &mut [])
}
