//! The first bytes of a frame.
//!
//! # Layout
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | magic |
//! | 2 | version |
//! | 3 | tag, the user's |
//! | 4..8 | flags |
//! | 8..12 | number of segments |
//! | 12..16 | length of the header |
//! | 16..24 | sequence number |
//! | 24.. | the length of each segment, 8 bytes |
//!
//! Numbers are little-endian; header and segments follow in the same stream (see [`super`]).
//!
//! # Contract
//!
//! Any bytes lead to a value within the limits or to [`ErrorKind::Protocol`].

use comm_core::{Error, ErrorKind, Result};

/// Length of the fixed part.
pub(crate) const PREFACE_BYTES: usize = 24;

/// Length of one entry of the table of segments.
pub(crate) const ENTRY_BYTES: usize = 8;

/// The longest header: it is received before its user was asked for memory.
pub(crate) const MAX_HEADER_BYTES: usize = 16 << 20;

/// The most segments of a frame.
pub(crate) const MAX_SEGMENTS: usize = 1 << 16;

/// The longest frame: what an address space can hold.
pub(crate) const MAX_FRAME_BYTES: u64 = 1 << 47;

const MAGIC: u16 = 0xc3f4;
const VERSION: u8 = 1;

/// The flag of a frame that its sender has cancelled: it stands for its place in the order only.
const CANCELLED: u32 = 1;

/// The fixed part of the preface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Preface {
    pub(crate) tag: u8,
    /// Whether the sender cancelled the frame.
    pub(crate) is_cancelled: bool,
    pub(crate) segments: usize,
    pub(crate) header_bytes: usize,
    pub(crate) sequence: u64,
}

impl Preface {
    /// The preface on the wire. The sizes were checked by [`check_sizes`].
    pub(crate) fn encode(&self) -> [u8; PREFACE_BYTES] {
        let mut bytes = [0; PREFACE_BYTES];
        bytes[0..2].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[2] = VERSION;
        bytes[3] = self.tag;
        let flags = if self.is_cancelled { CANCELLED } else { 0 };
        bytes[4..8].copy_from_slice(&flags.to_le_bytes());
        bytes[8..12].copy_from_slice(&(self.segments as u32).to_le_bytes());
        bytes[12..16].copy_from_slice(&(self.header_bytes as u32).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes
    }

    /// What a peer sent as the preface of frame `sequence`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] if it is none, of another version, of another frame, or announces
    /// more than the limits allow.
    pub(crate) fn parse(bytes: &[u8; PREFACE_BYTES], sequence: u64) -> Result<Self> {
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(word)
        };
        let magic = u16::from_le_bytes([bytes[0], bytes[1]]);
        if magic != MAGIC {
            return Err(corrupt("magic").with("found", format!("{magic:#06x}")));
        }
        if bytes[2] != VERSION {
            return Err(Error::new(
                ErrorKind::Protocol,
                "the peer sends frames of another version; run the same version of the library on \
                 all ranks",
            )
            .with("theirs", bytes[2])
            .with("ours", VERSION));
        }
        let flags = word(4);
        if flags & !CANCELLED != 0 {
            return Err(corrupt("flags").with("found", format!("{flags:#x}")));
        }
        let theirs = u64::from(word(16)) | u64::from(word(20)) << 32;
        if theirs != sequence {
            return Err(corrupt("sequence number")
                .with("expected", sequence)
                .with("found", theirs));
        }
        let preface = Self {
            tag: bytes[3],
            is_cancelled: flags & CANCELLED != 0,
            segments: word(8) as usize,
            header_bytes: word(12) as usize,
            sequence,
        };
        if preface.segments > MAX_SEGMENTS || preface.header_bytes > MAX_HEADER_BYTES {
            return Err(corrupt("sizes")
                .with("segments", preface.segments)
                .with("header_bytes", preface.header_bytes));
        }
        if preface.is_cancelled && (preface.segments > 0 || preface.header_bytes > 0) {
            return Err(corrupt("contents of a cancelled frame"));
        }
        Ok(preface)
    }
}

/// Fills `sizes` with the lengths of the segments in `table`.
///
/// # Errors
///
/// [`ErrorKind::Protocol`] if all together exceed the limit.
pub(crate) fn parse_table(table: &[u8], sizes: &mut [u64]) -> Result<()> {
    let mut sum = 0_u64;
    for (entry, size) in table.chunks_exact(ENTRY_BYTES).zip(sizes) {
        let mut bytes = [0; ENTRY_BYTES];
        bytes.copy_from_slice(entry);
        *size = u64::from_le_bytes(bytes);
        sum = sum.saturating_add(*size);
        if sum > MAX_FRAME_BYTES {
            return Err(corrupt("lengths of segments").with("segment_bytes", *size));
        }
    }
    Ok(())
}

/// Checks what a user wants to send against the limits.
///
/// # Errors
///
/// [`ErrorKind::InvalidArgument`] with the limit.
pub(crate) fn check_sizes(header_bytes: usize, segments: usize) -> Result<()> {
    if header_bytes > MAX_HEADER_BYTES {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            "the header of a frame is too long; send what is large as a segment",
        )
        .with("header_bytes", header_bytes)
        .with("limit_bytes", MAX_HEADER_BYTES));
    }
    if segments > MAX_SEGMENTS {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            "the frame has too many segments; join small ones",
        )
        .with("segments", segments)
        .with("limit", MAX_SEGMENTS));
    }
    Ok(())
}

/// The error of a frame that makes no sense.
#[cold]
pub(super) fn corrupt(what: &'static str) -> Error {
    Error::new(
        ErrorKind::Protocol,
        "what the peer sent is not the frame that is due; its memory is corrupt or it runs another \
         version of the library",
    )
    .with("what", what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_preface_comes_back_as_it_was_sent(
            tag: u8,
            segments in 0..=MAX_SEGMENTS,
            header_bytes in 0..=MAX_HEADER_BYTES,
            sequence: u64,
        ) {
            let preface = Preface { tag, is_cancelled: false, segments, header_bytes, sequence };
            prop_assert_eq!(Preface::parse(&preface.encode(), sequence).unwrap(), preface);
        }

        #[test]
        fn any_bytes_are_a_preface_within_the_limits_or_a_protocol_error(
            random: [u8; PREFACE_BYTES],
            valid_until in 0..PREFACE_BYTES,
            sequence in 0..4_u64,
        ) {
            // Part valid, part random: a random magic alone would test little.
            let preface = Preface { tag: 7, is_cancelled: false, segments: 3, header_bytes: 5, sequence };
            let mut bytes = preface.encode();
            bytes[valid_until..].copy_from_slice(&random[valid_until..]);
            match Preface::parse(&bytes, sequence) {
                Ok(parsed) => {
                    prop_assert!(parsed.segments <= MAX_SEGMENTS);
                    prop_assert!(parsed.header_bytes <= MAX_HEADER_BYTES);
                    prop_assert_eq!(parsed.sequence, sequence);
                    prop_assert_eq!(parsed.encode(), bytes);
                }
                Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Protocol),
            }
        }

        #[test]
        fn any_table_is_within_the_limit_or_a_protocol_error(
            table in proptest::collection::vec(any::<u64>(), 0..40),
            shift in 0..64_u32,
        ) {
            let table: Vec<u64> = table.into_iter().map(|size| size >> shift).collect();
            let bytes: Vec<u8> = table.iter().flat_map(|size| size.to_le_bytes()).collect();
            let mut sizes = vec![0; table.len()];
            match parse_table(&bytes, &mut sizes) {
                Ok(()) => {
                    prop_assert!(sizes.iter().sum::<u64>() <= MAX_FRAME_BYTES);
                    prop_assert_eq!(sizes, table);
                }
                Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Protocol),
            }
        }
    }

    #[test]
    fn a_cancelled_frame_has_no_contents() {
        let tombstone = Preface {
            tag: 0,
            is_cancelled: true,
            segments: 0,
            header_bytes: 0,
            sequence: 4,
        };
        assert_eq!(Preface::parse(&tombstone.encode(), 4).unwrap(), tombstone);
        let full = Preface {
            segments: 1,
            ..tombstone
        };
        assert!(Preface::parse(&full.encode(), 4).is_err());
    }

    #[test]
    fn what_cannot_be_sent_is_an_invalid_argument() {
        assert!(check_sizes(MAX_HEADER_BYTES, MAX_SEGMENTS).is_ok());
        for (header_bytes, segments) in [(MAX_HEADER_BYTES + 1, 0), (0, MAX_SEGMENTS + 1)] {
            let error = check_sizes(header_bytes, segments).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
    }
}
