//! The bytes that the two ends of an edge exchange: magic "CP2P", version, 16-byte token.
//!
//! Everything else about the edge stands in the [registry](crate::registry), where nobody outside
//! the process can change it.

use bytes::{BufMut, Bytes, BytesMut};
use comm_core::{Error, ErrorKind, Result};

/// Version of the facts and of the handles; processes of different versions do not connect.
pub(crate) const VERSION: u8 = 1;

const MAGIC: [u8; 4] = *b"CP2P";

/// Names one end of one edge in this process; cannot be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Token([u8; 16]);

impl Token {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(random()?))
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_slice(&MAGIC);
        bytes.put_u8(VERSION);
        bytes.put_slice(&self.0);
        bytes.freeze()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        bytes
            .strip_prefix(&MAGIC)
            .and_then(|rest| rest.strip_prefix(&[VERSION]))
            .and_then(|token| token.try_into().ok())
            .map(Self)
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::Protocol,
                    "a peer sent something that is no p2p handle of this version",
                )
                .with("bytes", bytes.len())
            })
    }
}

/// Bytes from the system's random generator.
pub(crate) fn random() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::new(
            ErrorKind::System,
            "the system's random number generator failed",
        )
        .with_source(error)
    })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_comes_back_whole_and_other_bytes_are_refused() {
        let token = Token::new().unwrap();
        let bytes = token.encode();
        assert_eq!(Token::decode(&bytes).unwrap(), token);
        let mut version = bytes.to_vec();
        version[4] += 1;
        for wrong in [&b""[..], &bytes[1..], &bytes[..20], &version, &[0; 21]] {
            let error = Token::decode(wrong).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol);
        }
    }
}
