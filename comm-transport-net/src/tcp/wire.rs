//! What travels between the two ends: the listener's handle, the greeting and the frames.
//!
//! All numbers are little-endian.
//!
//! * **Handle**: magic, version, number of addresses, the two tokens of the listener, and for each
//!   address family (4 or 6), port and IP address. It reaches the sender over the authenticated
//!   control plane, so whoever knows the tokens belongs to the job.
//! * **Greeting**: the sender says [`Hello`] with the first token, the receiver answers with the
//!   second one, the sender confirms with one byte. A sender that took the wrong turn (another
//!   host with the same address) notices by the answer; a receiver never sees a sender that has
//!   given up meanwhile, by the confirmation.
//! * **Frame**: 8 bytes on the first socket, the message's length, then its bytes, split over the
//!   sockets as [`stripes`](super::stripes) says. The highest bit of the length marks a direct
//!   transfer.
//! * The receiver never sends anything afterwards, except one byte that says why it hangs up.

use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};

use bytes::{BufMut, BytesMut};
use comm_core::{Error, ErrorKind, Result};

use super::options::{MAX_ADDRESSES, MAX_SOCKETS};

const HANDLE_MAGIC: u32 = 0x6354_4350;
const HELLO_MAGIC: u32 = 0x6354_4348;
const ANSWER_MAGIC: u32 = 0x6354_4341;
const VERSION: u8 = 1;

/// The byte with which a sender confirms.
pub(crate) const CONFIRMATION: u8 = 0x2E;
/// The byte by which a receiver says that a message did not fit.
pub(crate) const HANG_UP_TRUNCATED: u8 = 1;
/// The byte by which a receiver says that a direct transfer has another length than its own.
pub(crate) const HANG_UP_LENGTH: u8 = 2;

/// Length of a frame's head.
pub(crate) const FRAME_BYTES: usize = 8;
const DIRECT: u64 = 1 << 63;

/// Longest message.
pub(crate) const MAX_MESSAGE_BYTES: usize = isize::MAX as usize;

/// Encodes a frame's head.
pub(crate) const fn frame(len_bytes: usize, direct: bool) -> [u8; FRAME_BYTES] {
    let flag = if direct { DIRECT } else { 0 };
    (len_bytes as u64 | flag).to_le_bytes()
}

/// Decodes a frame's head into length and whether it is a direct transfer.
pub(crate) fn parse_frame(head: [u8; FRAME_BYTES]) -> (usize, bool) {
    let word = u64::from_le_bytes(head);
    // What does not fit into memory does not fit into any buffer.
    let len_bytes = usize::try_from(word & !DIRECT).unwrap_or(usize::MAX);
    (len_bytes, word & DIRECT != 0)
}

/// A secret number that nobody else has.
#[derive(Clone, Copy)]
pub(crate) struct Token([u8; Self::BYTES]);

impl Token {
    pub(crate) const BYTES: usize = 16;

    pub(crate) fn random() -> Result<Self> {
        let mut bytes = [0; Self::BYTES];
        getrandom::fill(&mut bytes).map_err(|error| {
            Error::new(
                ErrorKind::System,
                "the system gives no random numbers for tokens",
            )
            .with_source(error)
        })?;
        Ok(Self(bytes))
    }

    pub(crate) const fn bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// Whether both are equal, in a time that does not tell where they differ.
    pub(crate) fn matches(&self, other: &Self) -> bool {
        let mut difference = 0;
        for (one, other) in self.0.iter().zip(&other.0) {
            difference |= black_box(one ^ other);
        }
        black_box(difference) == 0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// A listener as its handle describes it.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    /// What a sender has to know.
    pub(crate) knock: Token,
    /// What the receiver answers.
    pub(crate) answer: Token,
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Handle {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = BytesMut::new();
        bytes.put_u32_le(HANDLE_MAGIC);
        bytes.put_u8(VERSION);
        bytes.put_u8(self.addresses.len() as u8);
        bytes.put_slice(&self.knock.0);
        bytes.put_slice(&self.answer.0);
        for address in &self.addresses {
            match address.ip() {
                IpAddr::V4(ip) => {
                    bytes.put_u8(4);
                    bytes.put_u16_le(address.port());
                    bytes.put_slice(&ip.octets());
                }
                IpAddr::V6(ip) => {
                    bytes.put_u8(6);
                    bytes.put_u16_le(address.port());
                    bytes.put_slice(&ip.octets());
                }
            }
        }
        bytes.to_vec()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        Self::parse(bytes).ok_or_else(|| {
            Error::new(
                ErrorKind::Protocol,
                "the handle is none of this version of the TCP network; use the same release \
                 everywhere",
            )
            .with("bytes", bytes.len())
        })
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor(bytes);
        if cursor.take()? != HANDLE_MAGIC.to_le_bytes() || cursor.take()? != [VERSION] {
            return None;
        }
        let [count] = cursor.take()?;
        let (knock, answer) = (Token(cursor.take()?), Token(cursor.take()?));
        let mut addresses = Vec::new();
        for _ in 0..count {
            let [family] = cursor.take()?;
            let port = u16::from_le_bytes(cursor.take()?);
            let ip = match family {
                4 => IpAddr::from(cursor.take::<4>()?),
                6 => IpAddr::from(cursor.take::<16>()?),
                _ => return None,
            };
            addresses.push(SocketAddr::new(ip, port));
        }
        let whole = cursor.0.is_empty() && (1..=MAX_ADDRESSES).contains(&addresses.len());
        whole.then_some(Self {
            knock,
            answer,
            addresses,
        })
    }
}

/// What a sender says first on each socket.
#[derive(Clone, Debug)]
pub(crate) struct Hello {
    pub(crate) knock: Token,
    /// The connection to which the socket belongs.
    pub(crate) connection: [u8; Token::BYTES],
    /// Sockets of the connection.
    pub(crate) sockets: usize,
    /// Which of them this one is.
    pub(crate) index: usize,
    /// The least size of a stripe.
    pub(crate) stripe_bytes: u32,
}

impl Hello {
    pub(crate) const BYTES: usize = 4 + 4 + 4 + 2 * Token::BYTES;

    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..4].copy_from_slice(&HELLO_MAGIC.to_le_bytes());
        bytes[4] = VERSION;
        bytes[5] = self.sockets as u8;
        bytes[6] = self.index as u8;
        bytes[8..12].copy_from_slice(&self.stripe_bytes.to_le_bytes());
        bytes[12..28].copy_from_slice(&self.knock.0);
        bytes[28..].copy_from_slice(&self.connection);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let mut cursor = Cursor(bytes);
        if cursor.take()? != HELLO_MAGIC.to_le_bytes() {
            return None;
        }
        let [version, sockets, index, reserved] = cursor.take()?;
        let (sockets, index) = (usize::from(sockets), usize::from(index));
        let stripe_bytes = u32::from_le_bytes(cursor.take()?);
        let sensible = version == VERSION
            && reserved == 0
            && (1..=MAX_SOCKETS).contains(&sockets)
            && index < sockets
            && stripe_bytes > 0;
        if !sensible {
            return None;
        }
        Some(Self {
            knock: Token(cursor.take()?),
            connection: cursor.take()?,
            sockets,
            index,
            stripe_bytes,
        })
    }
}

/// Length of an answer.
pub(crate) const ANSWER_BYTES: usize = 4 + Token::BYTES;

/// Encodes a receiver's answer.
pub(crate) fn answer(token: &Token) -> [u8; ANSWER_BYTES] {
    let mut bytes = [0; ANSWER_BYTES];
    bytes[..4].copy_from_slice(&ANSWER_MAGIC.to_le_bytes());
    bytes[4..].copy_from_slice(&token.0);
    bytes
}

/// Whether these bytes are the answer with this token.
pub(crate) fn is_answer(bytes: &[u8; ANSWER_BYTES], token: &Token) -> bool {
    let mut cursor = Cursor(bytes);
    cursor.take() == Some(ANSWER_MAGIC.to_le_bytes())
        && cursor
            .take()
            .is_some_and(|bytes| Token(bytes).matches(token))
}

struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }
}

#[cfg(test)]
mod tests {
    use comm_core::net::MAX_HANDLE_BYTES;

    use super::*;

    fn handle(addresses: usize) -> Handle {
        let address = |number| SocketAddr::new(IpAddr::from([number as u8; 16]), number as u16);
        Handle {
            knock: Token::random().unwrap(),
            answer: Token::random().unwrap(),
            addresses: (0..addresses).map(address).collect(),
        }
    }

    #[test]
    fn n1_the_longest_handle_is_short_enough_and_comes_back() {
        let mut longest = handle(MAX_ADDRESSES);
        longest.addresses[3] = "10.0.0.1:80".parse().unwrap();
        let bytes = longest.encode();
        assert!(bytes.len() <= MAX_HANDLE_BYTES);
        let back = Handle::decode(&bytes).unwrap();
        assert_eq!(back.addresses, longest.addresses);
        assert!(back.knock.matches(&longest.knock) && back.answer.matches(&longest.answer));
        assert!(!back.knock.matches(&longest.answer));
    }

    #[test]
    fn n3_every_shortened_or_lengthened_handle_is_refused() {
        let mut bytes = handle(2).encode();
        for len in 0..bytes.len() {
            assert!(Handle::decode(&bytes[..len]).is_err(), "{len} bytes");
        }
        bytes.push(0);
        assert!(Handle::decode(&bytes).is_err());
        assert!(Handle::decode(&handle(0).encode()).is_err());
    }

    #[test]
    fn a_greeting_comes_back_and_a_damaged_one_does_not() {
        let hello = Hello {
            knock: Token::random().unwrap(),
            connection: [7; 16],
            sockets: 4,
            index: 3,
            stripe_bytes: 1000,
        };
        let bytes = hello.encode();
        let back = Hello::decode(&bytes).unwrap();
        assert!(back.knock.matches(&hello.knock));
        assert_eq!((back.sockets, back.index, back.stripe_bytes), (4, 3, 1000));
        assert_eq!(back.connection, hello.connection);
        for (at, value) in [(0, 0), (4, 9), (5, 0), (5, 17), (6, 4), (7, 1)] {
            let mut damaged = bytes;
            damaged[at] = value;
            assert!(Hello::decode(&damaged).is_none(), "byte {at} = {value}");
        }
        let token = Token::random().unwrap();
        assert!(is_answer(&answer(&token), &token));
        assert!(!is_answer(&answer(&hello.knock), &token));
    }

    #[test]
    fn a_frame_carries_length_and_kind() {
        for (len, direct) in [(0, false), (5, true), (MAX_MESSAGE_BYTES, true)] {
            assert_eq!(parse_frame(frame(len, direct)), (len, direct));
        }
    }
}
