//! Random inputs through every codec of this build, and LZ4 from one library to the other.

#![cfg(any(feature = "lz4", feature = "lz4-c", feature = "zstd"))]

use std::sync::Arc;

use comm_codec::Registry;
use comm_core::{Codec, Compressed};
use comm_testkit::codec::samples::SAMPLES;
use proptest::prelude::*;

/// The compressed form of `raw`.
fn compressed(codec: &dyn Codec, raw: &[u8]) -> Vec<u8> {
    let mut target = vec![0; codec.compress_bound(raw.len()).unwrap()];
    let Compressed::Bytes(bytes) = codec.compress_into(raw, &mut target).unwrap() else {
        panic!("the bound suffices");
    };
    target.truncate(bytes);
    target
}

fn comes_back(writer: &dyn Codec, reader: &dyn Codec, raw: &[u8]) {
    let block = compressed(writer, raw);
    let mut back = vec![0; raw.len()];
    reader.decompress_into(&block, &mut back).unwrap();
    assert!(back == raw, "{} bytes of {writer:?}", raw.len());
}

fn codecs() -> Vec<Arc<dyn Codec>> {
    let registry = Registry::builtin();
    let names: Vec<_> = registry.names().map(str::to_owned).collect();
    let codecs = names.iter().map(|name| registry.named(name).unwrap());
    codecs.cloned().collect()
}

/// Pieces that codecs look for: noise, runs, and what has been there before.
fn input() -> impl Strategy<Value = Vec<u8>> {
    let noise = proptest::collection::vec(any::<u8>(), 0..300);
    let run = (any::<u8>(), 0..5000_usize).prop_map(|(byte, len)| vec![byte; len]);
    let words = (any::<[u8; 5]>(), 0..900_usize).prop_map(|(word, count)| word.repeat(count));
    let piece = prop_oneof![noise, run, words];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_input_comes_back(raw in input()) {
        for codec in codecs() {
            comes_back(&*codec, &*codec, &raw);
        }
    }

    #[test]
    fn any_bytes_decompress_or_end_in_an_error(
        block in proptest::collection::vec(any::<u8>(), 0..400),
        len in 0..4000_usize,
    ) {
        for codec in codecs() {
            // The answer is open; that there is one is what is tested.
            let _ = codec.decompress_into(&block, &mut vec![0; len]);
        }
    }

    #[cfg(all(feature = "lz4", feature = "lz4-c"))]
    #[test]
    fn each_lz4_library_reads_what_the_other_wrote(raw in input(), acceleration in 1..100_u32) {
        let (rust, c) = libraries(acceleration);
        comes_back(&rust, &c, &raw);
        comes_back(&c, &rust, &raw);
    }
}

#[cfg(all(feature = "lz4", feature = "lz4-c"))]
fn libraries(acceleration: u32) -> (comm_codec::Lz4, comm_codec::Lz4) {
    use comm_codec::{Lz4, Lz4Library};
    (
        Lz4::of_library(Lz4Library::Rust, 1).unwrap(),
        Lz4::of_library(Lz4Library::C, acceleration).unwrap(),
    )
}

#[cfg(all(feature = "lz4", feature = "lz4-c"))]
#[test]
fn each_lz4_library_reads_data_of_all_kinds_from_the_other() {
    let (rust, c) = libraries(1);
    for (_, sample) in SAMPLES {
        let raw = sample(3 << 20, 1);
        comes_back(&rust, &c, &raw);
        comes_back(&c, &rust, &raw);
    }
}

#[test]
fn a_context_compresses_data_of_all_kinds_one_after_the_other() {
    for codec in codecs() {
        for (_, sample) in SAMPLES.iter().cycle().take(2 * SAMPLES.len()) {
            comes_back(&*codec, &*codec, &sample(300_000, 1));
        }
    }
}
