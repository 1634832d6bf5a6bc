//! What the two ends of an edge tell each other before they connect.

use bytes::{BufMut, Bytes, BytesMut};
use comm_core::{ConnectHandle, Error, ErrorKind, Result};

use crate::pool::SLOTS;

/// Set in a handle if the end can carry direct transfers.
const DIRECT: u8 = 1;

const MAGIC: u32 = 0x634E_4554;
const VERSION: u8 = 1;
const FIXED_BYTES: usize = 4 + 1 + 1 + 1 + 8;

/// What an end learns from the other one's handle.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    /// The backend's listener handle; empty from a sender.
    pub(crate) address: Bytes,
    /// Whether the other end can carry direct transfers.
    pub(crate) direct: bool,
}

/// Encodes an end's handle; `address` is the backend's listener handle, empty for a sender.
pub(crate) fn encode(step_bytes: usize, direct: bool, address: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(FIXED_BYTES + address.len());
    bytes.put_u32_le(MAGIC);
    bytes.put_u8(VERSION);
    bytes.put_u8(SLOTS as u8);
    bytes.put_u8(if direct { DIRECT } else { 0 });
    bytes.put_u64_le(step_bytes as u64);
    bytes.put_slice(address);
    bytes.freeze()
}

/// Checks a receiver's handle against this end's step size.
pub(crate) fn from_receiver(handle: &ConnectHandle, step_bytes: usize) -> Result<Remote> {
    decode(handle, step_bytes)
}

/// Checks a sender's handle against this end's step size.
pub(crate) fn from_sender(handle: &ConnectHandle, step_bytes: usize) -> Result<Remote> {
    let remote = decode(handle, step_bytes)?;
    if remote.address.is_empty() {
        return Ok(remote);
    }
    Err(
        Error::new(ErrorKind::Protocol, "the handle of a sender has an address")
            .with("address_bytes", remote.address.len()),
    )
}

fn decode(handle: &ConnectHandle, step_bytes: usize) -> Result<Remote> {
    let refused = |what: &'static str| Error::new(ErrorKind::Protocol, what);
    let bytes = &handle.bytes;
    if !handle.fds.is_empty() {
        return Err(
            refused("the peer's handle of the NET transport came with descriptors")
                .with("descriptors", handle.fds.len()),
        );
    }
    if bytes.len() < FIXED_BYTES || bytes[..4] != MAGIC.to_le_bytes() {
        return Err(refused("the peer's handle is none of the NET transport"));
    }
    if bytes[4] != VERSION {
        return Err(refused(
            "the peer's NET transport speaks another version; use the same release everywhere",
        )
        .with("peer_version", bytes[4])
        .with("version", VERSION));
    }
    if bytes[6] & !DIRECT != 0 {
        return Err(refused(
            "the peer's handle of the NET transport has unknown flags",
        ));
    }
    let mut peer_step_bytes = [0; 8];
    peer_step_bytes.copy_from_slice(&bytes[7..FIXED_BYTES]);
    let peer_step_bytes = u64::from_le_bytes(peer_step_bytes);
    if usize::from(bytes[5]) != SLOTS || peer_step_bytes != step_bytes as u64 {
        return Err(Error::new(
            ErrorKind::InvalidConfiguration,
            "the ends of the edge use different slots; set the same step size on all ranks",
        )
        .with("step_bytes", step_bytes)
        .with("peer_step_bytes", peer_step_bytes)
        .with("slots", SLOTS)
        .with("peer_slots", bytes[5]));
    }
    Ok(Remote {
        address: bytes.slice(FIXED_BYTES..),
        direct: bytes[6] & DIRECT != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(bytes: impl Into<Bytes>) -> ConnectHandle {
        ConnectHandle::from_bytes(bytes.into())
    }

    #[test]
    fn the_address_comes_back() {
        for direct in [false, true] {
            let handle = handle(encode(4096, direct, b"address"));
            let remote = from_receiver(&handle, 4096).unwrap();
            assert_eq!(remote.address, &b"address"[..]);
            assert_eq!(remote.direct, direct);
        }
        from_sender(&handle(encode(4096, false, b"")), 4096).unwrap();
    }

    #[test]
    fn another_step_size_is_an_error_that_names_both() {
        let error = from_sender(&handle(encode(4096, false, b"")), 8192).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
        let text = error.to_string();
        assert!(
            text.contains("step_bytes=8192, peer_step_bytes=4096"),
            "{text}"
        );
    }

    #[test]
    fn damaged_handles_are_refused() {
        let whole = encode(4096, false, b"");
        for len in 0..FIXED_BYTES {
            assert!(
                from_sender(&handle(whole.slice(..len)), 4096).is_err(),
                "{len} bytes"
            );
        }
        for at in 0..FIXED_BYTES {
            let mut damaged = whole.to_vec();
            damaged[at] ^= 0x80;
            assert!(from_sender(&handle(damaged), 4096).is_err(), "byte {at}");
        }
        assert!(from_sender(&handle(encode(4096, false, b"x")), 4096).is_err());
    }

    #[test]
    fn descriptors_in_a_handle_are_refused() {
        let mut with_fd = handle(encode(4096, false, b""));
        with_fd
            .fds
            .push(std::fs::File::open("/dev/null").unwrap().into());
        assert_eq!(
            from_sender(&with_fd, 4096).unwrap_err().kind(),
            ErrorKind::Protocol
        );
    }
}
