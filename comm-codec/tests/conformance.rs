//! Every codec of this crate keeps the contract of `Codec`, clause by clause.

#![cfg(any(feature = "lz4", feature = "lz4-c", feature = "zstd"))]

use std::sync::Arc;

use comm_core::{Codec, Result};
use comm_testkit::codec::CodecFixture;

/// A hundred equal bytes and five others, by hand from the description of the format.
#[cfg(any(feature = "lz4", feature = "lz4-c"))]
fn known_lz4() -> Vec<(Vec<u8>, Vec<u8>)> {
    // One literal, then 4 + 15 + 80 bytes from one byte back; five literals end the block.
    let mut block = vec![0x1F, b'a', 1, 0, 80, 0x50];
    block.extend_from_slice(b"bcdef");
    let mut raw = vec![b'a'; 100];
    raw.extend_from_slice(b"bcdef");
    vec![(block, raw)]
}

#[cfg(feature = "lz4")]
mod lz4_in_rust {
    use super::*;

    struct Fixture;

    impl CodecFixture for Fixture {
        fn codec() -> Result<Arc<dyn Codec>> {
            let library = comm_codec::Lz4Library::Rust;
            Ok(Arc::new(comm_codec::Lz4::of_library(library, 1)?))
        }

        fn known_blocks() -> Vec<(Vec<u8>, Vec<u8>)> {
            known_lz4()
        }
    }

    comm_testkit::codec_conformance!(Fixture);
}

#[cfg(feature = "lz4-c")]
mod lz4_in_c {
    use super::*;

    struct Fixture;

    impl CodecFixture for Fixture {
        fn codec() -> Result<Arc<dyn Codec>> {
            let library = comm_codec::Lz4Library::C;
            Ok(Arc::new(comm_codec::Lz4::of_library(library, 8)?))
        }

        fn known_blocks() -> Vec<(Vec<u8>, Vec<u8>)> {
            known_lz4()
        }
    }

    comm_testkit::codec_conformance!(Fixture);
}

#[cfg(feature = "zstd")]
mod zstd {
    use super::*;

    struct Fixture;

    impl CodecFixture for Fixture {
        fn codec() -> Result<Arc<dyn Codec>> {
            Ok(Arc::new(comm_codec::Zstd::new(1, 2)?))
        }

        fn known_blocks() -> Vec<(Vec<u8>, Vec<u8>)> {
            // RFC 8878: magic, a header with a content size of one byte, one last block that repeats
            // a byte 100 times.
            let block = vec![0x28, 0xB5, 0x2F, 0xFD, 0x20, 100, 0x23, 0x03, 0x00, b'a'];
            vec![(block, vec![b'a'; 100])]
        }
    }

    comm_testkit::codec_conformance!(Fixture);
}
