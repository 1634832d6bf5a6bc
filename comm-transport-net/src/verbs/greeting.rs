//! What the two sides of a connection say while it is made, and the handle of a listener.
//!
//! ```text
//! connecting side                     listening side
//!   Greeting {knock, queue} --------->  makes and connects its queue
//!                           <---------  Greeting {answer, queue}
//!   connects its queue
//!   confirmation ---------------------> the connection can be accepted
//! ```

use std::net::{IpAddr, SocketAddr};

use comm_core::{Error, ErrorKind, Result};

use super::ffi::{Gid, Peer};

/// Begins handles and greetings; the last byte is the version.
const MAGIC: [u8; 8] = *b"comm-vb\x01";

/// What the connecting side says at last.
pub(super) const CONFIRMATION: u8 = 0x42;

/// Most addresses in a handle.
const MOST_ADDRESSES: usize = 16;

/// Proves that somebody knows a listener's handle.
pub(super) type Token = [u8; 16];

/// A new token.
pub(super) fn token() -> Result<Token> {
    let mut token = Token::default();
    getrandom::fill(&mut token).map_err(|error| {
        Error::new(ErrorKind::System, "the system gives no random numbers").with("reason", error)
    })?;
    Ok(token)
}

/// Whether two tokens are equal; takes equally long whatever they are.
fn matches(a: &Token, b: &Token) -> bool {
    let difference = a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(difference) == 0
}

/// What a side says of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) token: Token,
    pub(super) peer: Peer,
}

impl Greeting {
    pub(super) const BYTES: usize = 56;

    pub(super) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&self.token);
        bytes[24..28].copy_from_slice(&self.peer.queue_number.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.peer.first_packet.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.peer.gid.0);
        bytes[48..50].copy_from_slice(&self.peer.lid.to_le_bytes());
        bytes[50] = self.peer.mtu;
        bytes
    }

    /// The queue of who shows the token; `None` for anybody else.
    pub(super) fn decode(bytes: &[u8; Self::BYTES], token: &Token) -> Option<Peer> {
        let mut shown = Token::default();
        shown.copy_from_slice(&bytes[8..24]);
        if bytes[..8] != MAGIC || !matches(&shown, token) {
            return None;
        }
        let mut gid = Gid::default();
        gid.0.copy_from_slice(&bytes[32..48]);
        Some(Peer {
            queue_number: u32::from_le_bytes(bytes[24..28].try_into().ok()?),
            first_packet: u32::from_le_bytes(bytes[28..32].try_into().ok()?),
            gid,
            lid: u16::from_le_bytes(bytes[48..50].try_into().ok()?),
            mtu: bytes[50],
        })
    }
}

/// How to reach a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Handle {
    /// Shown by who connects.
    pub(super) knock: Token,
    /// Shown by who listens.
    pub(super) answer: Token,
    pub(super) addresses: Vec<SocketAddr>,
}

impl Handle {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.knock);
        bytes.extend_from_slice(&self.answer);
        for address in self.addresses.iter().take(MOST_ADDRESSES) {
            match address.ip() {
                IpAddr::V4(ip) => {
                    bytes.push(4);
                    bytes.extend_from_slice(&ip.octets());
                }
                IpAddr::V6(ip) => {
                    bytes.push(6);
                    bytes.extend_from_slice(&ip.octets());
                }
            }
            bytes.extend_from_slice(&address.port().to_le_bytes());
        }
        bytes
    }

    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] if the bytes are no handle of this network.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        Self::read(bytes).ok_or_else(|| {
            Error::new(
                ErrorKind::Protocol,
                "the handle is none of an RDMA listener of this version",
            )
            .with("bytes", bytes.len())
        })
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&MAGIC)?;
        let (knock, rest) = rest.split_first_chunk()?;
        let (answer, mut rest) = rest.split_first_chunk()?;
        let mut addresses = Vec::new();
        while let Some((kind, behind)) = rest.split_first() {
            let ip: IpAddr = match kind {
                4 => {
                    let (octets, behind) = behind.split_first_chunk::<4>()?;
                    rest = behind;
                    (*octets).into()
                }
                6 => {
                    let (octets, behind) = behind.split_first_chunk::<16>()?;
                    rest = behind;
                    (*octets).into()
                }
                _ => return None,
            };
            let (port, behind) = rest.split_first_chunk()?;
            rest = behind;
            addresses.push(SocketAddr::new(ip, u16::from_le_bytes(*port)));
        }
        (1..=MOST_ADDRESSES)
            .contains(&addresses.len())
            .then_some(Self {
                knock: *knock,
                answer: *answer,
                addresses,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_and_handles_come_back_and_nothing_else_does() {
        let peer = Peer {
            queue_number: 7,
            first_packet: 99,
            gid: Gid([3; 16]),
            lid: 5,
            mtu: 4,
        };
        let token = [1; 16];
        let bytes = Greeting { token, peer }.encode();
        assert_eq!(Greeting::decode(&bytes, &token), Some(peer));
        assert_eq!(Greeting::decode(&bytes, &[2; 16]), None);
        assert_eq!(Greeting::decode(&[0; Greeting::BYTES], &token), None);
        let addresses = ["10.0.0.1:80", "[::1]:9"].map(|text| text.parse().unwrap());
        let handle = Handle {
            knock: token,
            answer: [2; 16],
            addresses: addresses.into(),
        };
        let bytes = handle.encode();
        assert_eq!(Handle::decode(&bytes).unwrap(), handle);
        for len in 0..bytes.len() {
            let cut = Handle::decode(&bytes[..len]);
            assert!(cut.is_err() || cut.unwrap().addresses.len() == 1);
        }
        let mut longer = bytes;
        longer.push(4);
        assert_eq!(
            Handle::decode(&longer).unwrap_err().kind(),
            ErrorKind::Protocol
        );
    }
}
