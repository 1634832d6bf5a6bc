//! The numbers that name compressed formats on the wire.
//!
//! # Contract
//!
//! * A number never changes its meaning. A format that changes gets a new one.
//! * 0 is "not compressed", 1 to 127 are given here, 128 to 255 are free for codecs of other crates
//!   ([`FIRST_CUSTOM`]).

/// A raw LZ4 block, without frame, size or checksum; an empty input is no bytes. Written alike by
/// the features `lz4` and `lz4-c`.
pub const LZ4: u8 = 1;

/// One Zstandard frame (RFC 8878) without dictionary; an empty input is no bytes.
pub const ZSTD: u8 = 2;

/// The first number for codecs of other crates.
pub const FIRST_CUSTOM: u8 = 128;

/// A codec of this crate, compiled in or not.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) name: &'static str,
    pub(crate) wire_id: u8,
    /// The Cargo features that bring it.
    pub(crate) features: &'static str,
}

/// All codecs of this crate, in the order of their numbers.
pub(crate) const KNOWN: [Known; 2] = [
    Known {
        name: "lz4",
        wire_id: LZ4,
        features: "`lz4` or `lz4-c`",
    },
    Known {
        name: "zstd",
        wire_id: ZSTD,
        features: "`zstd`",
    },
];
