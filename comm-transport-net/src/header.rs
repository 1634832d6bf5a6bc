//! The 64 bytes in front of every step's payload.

use comm_core::{Error, ErrorKind, Result, StepHeader};

/// Length of a header; keeps the payload aligned to cache lines.
pub(crate) const HEADER_BYTES: usize = 64;

/// Upper 28 bits: magic. Lower 4 bits: version.
const MAGIC: u32 = 0xC033_57E0;
const VERSION: u32 = 1;

/// Encodes the header of step `step`.
pub(crate) fn encode(step: u64, header: &StepHeader) -> [u8; HEADER_BYTES] {
    let mut line = [0; HEADER_BYTES];
    line[0..4].copy_from_slice(&(MAGIC | VERSION).to_le_bytes());
    line[4..8].copy_from_slice(&header.signature_hash.to_le_bytes());
    line[8..16].copy_from_slice(&step.to_le_bytes());
    line[16..24].copy_from_slice(&(header.bytes as u64).to_le_bytes());
    for (word, bytes) in header
        .signature
        .iter()
        .zip(line[24..48].chunks_exact_mut(8))
    {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    line
}

/// Decodes and checks the header of a message of `message_bytes` bytes that must be step `step`.
pub(crate) fn decode(
    line: &[u8; HEADER_BYTES],
    step: u64,
    message_bytes: usize,
) -> Result<StepHeader> {
    let Some(payload_bytes) = message_bytes.checked_sub(HEADER_BYTES) else {
        return Err(violation("a message is shorter than a header").with("bytes", message_bytes));
    };
    let word = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&line[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    // Two 32-bit fields share the first word.
    let (first, signature_hash) = (word(0) as u32, (word(0) >> 32) as u32);
    if first & !0xF != MAGIC {
        return Err(violation("a message does not begin like a step"));
    }
    if first & 0xF != VERSION {
        return Err(violation(
            "the peer speaks another version of the step protocol; use the same release everywhere",
        )
        .with("peer_version", first & 0xF)
        .with("version", VERSION));
    }
    if word(8) != step {
        return Err(violation("a step is missing or came twice")
            .with("expected_step", step)
            .with("step", word(8)));
    }
    if word(16) != payload_bytes as u64 {
        return Err(
            violation("a step's header and message disagree on its length")
                .with("header_bytes", word(16))
                .with("message_bytes", payload_bytes),
        );
    }
    if (word(48), word(56)) != (0, 0) {
        return Err(violation("reserved fields of a step's header are set"));
    }
    let signature = [word(24), word(32), word(40)];
    Ok(StepHeader {
        bytes: payload_bytes,
        signature_hash,
        signature,
    })
}

fn violation(what: &'static str) -> Error {
    Error::new(ErrorKind::Protocol, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: StepHeader = StepHeader {
        bytes: 1000,
        signature_hash: 0x1234_5678,
        signature: [1, u64::MAX, 3],
    };

    #[test]
    fn a_header_comes_back_whole() {
        assert_eq!(decode(&encode(7, &EXAMPLE), 7, 1064).unwrap(), EXAMPLE);
    }

    #[test]
    fn the_wire_format_is_little_endian_and_fixed() {
        let line = encode(0x0102, &EXAMPLE);
        assert_eq!(
            line[..12],
            [0xE1, 0x57, 0x33, 0xC0, 0x78, 0x56, 0x34, 0x12, 2, 1, 0, 0]
        );
        assert_eq!(line[48..], [0; 16]);
    }

    #[test]
    fn any_damaged_header_byte_outside_of_the_signature_is_noticed() {
        let line = encode(7, &EXAMPLE);
        for at in (0..4).chain(8..24).chain(48..64) {
            let mut damaged = line;
            damaged[at] ^= 0x10;
            let error = decode(&damaged, 7, 1064).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol, "byte {at}");
        }
    }

    #[test]
    fn messages_of_another_length_are_refused() {
        for bytes in [0, 63, 1063, 1065] {
            assert!(decode(&encode(7, &EXAMPLE), 7, bytes).is_err(), "{bytes}");
        }
    }

    #[test]
    fn another_version_says_what_to_do() {
        let mut line = encode(1, &EXAMPLE);
        line[0] = line[0] & 0xF0 | 2;
        let error = decode(&line, 1, 1064).unwrap_err();
        assert!(error.to_string().contains("same release"), "{error}");
    }
}
