//! How a message is split over the sockets of a connection.
//!
//! Both ends compute the split from the message's length, the number of sockets and the least
//! size of a stripe, so it is not sent.

use super::options::MAX_SOCKETS;

/// What is left of each socket's part of one message.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    parts: [Part; MAX_SOCKETS],
    count: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Part {
    next: usize,
    end: usize,
}

impl Parts {
    /// No message.
    pub(crate) const fn none() -> Self {
        Self {
            parts: [Part { next: 0, end: 0 }; MAX_SOCKETS],
            count: 0,
        }
    }

    /// Splits a message of `len_bytes` bytes into equal parts of at least `stripe_bytes`, if it is
    /// long enough for two of them.
    pub(crate) fn split(&mut self, len_bytes: usize, sockets: usize, stripe_bytes: usize) {
        let count = (len_bytes / stripe_bytes).clamp(1, sockets.min(MAX_SOCKETS));
        let each = len_bytes / count;
        for (number, part) in self.parts[..count].iter_mut().enumerate() {
            *part = Part {
                next: number * each,
                end: (number + 1) * each,
            };
        }
        self.parts[count - 1].end = len_bytes;
        self.count = count;
    }

    /// Number of sockets that carry a part.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// What is left for a socket.
    pub(crate) fn left(&self, socket: usize) -> std::ops::Range<usize> {
        let part = &self.parts[socket];
        part.next..part.end
    }

    /// Takes note that the socket carried `bytes` more.
    pub(crate) fn advance(&mut self, socket: usize, bytes: usize) {
        self.parts[socket].next += bytes;
    }

    /// Whether every socket has carried its part.
    pub(crate) fn is_done(&self) -> bool {
        self.parts[..self.count]
            .iter()
            .all(|part| part.next == part.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_cover_the_message_without_gaps_and_none_is_too_short() {
        let mut parts = Parts::none();
        for len in (0..300).chain([1000, 4096, 1 << 30]) {
            for sockets in 1..=MAX_SOCKETS {
                parts.split(len, sockets, 100);
                let mut at = 0;
                for socket in 0..parts.count() {
                    let left = parts.left(socket);
                    assert_eq!(left.start, at);
                    assert!(
                        parts.count() == 1 || left.len() >= 100,
                        "{len} over {sockets}"
                    );
                    at = left.end;
                }
                assert_eq!(at, len);
                assert!(parts.count() <= sockets);
            }
        }
    }

    #[test]
    fn a_message_is_done_when_all_parts_are() {
        let mut parts = Parts::none();
        parts.split(201, 2, 100);
        parts.advance(0, 100);
        assert!(!parts.is_done());
        parts.advance(1, 101);
        assert!(parts.is_done());
        parts.split(0, 2, 100);
        assert!(parts.is_done());
    }
}
