//! Bytes that were read before their place was known.

use super::wire::FRAME_BYTES;

/// Size of the staging buffer: longer messages are worth a second read.
pub(crate) const STAGING_BYTES: usize = 8 << 10;

/// Bytes of the first socket that were read before their place was known.
pub(crate) struct Staging {
    bytes: Box<[u8; STAGING_BYTES]>,
    start: usize,
    end: usize,
}

impl Staging {
    pub(crate) fn new() -> Self {
        Self {
            bytes: Box::new([0; STAGING_BYTES]),
            start: 0,
            end: 0,
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.end - self.start
    }

    /// Where more can be read to.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.start > 0 {
            // Less than a head is left when more is read.
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.bytes[self.end..]
    }

    pub(crate) const fn received(&mut self, bytes: usize) {
        self.end += bytes;
    }

    pub(crate) fn take_head(&mut self) -> [u8; FRAME_BYTES] {
        let mut head = [0; FRAME_BYTES];
        self.take(&mut head);
        head
    }

    /// Moves bytes to `target`; how many.
    pub(crate) fn take(&mut self, target: &mut [u8]) -> usize {
        let bytes = self.len().min(target.len());
        target[..bytes].copy_from_slice(&self.bytes[self.start..self.start + bytes]);
        self.start += bytes;
        bytes
    }
}

impl std::fmt::Debug for Staging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Staging").field("len", &self.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_received_comes_out_in_order_and_makes_room() {
        let mut staging = Staging::new();
        staging.room()[..10].copy_from_slice(b"0123456789");
        staging.received(10);
        assert_eq!(staging.take_head(), *b"01234567");
        let room = staging.room();
        assert_eq!(room.len(), STAGING_BYTES - 2);
        room[0] = b'x';
        staging.received(1);
        let mut rest = [0; 5];
        assert_eq!(staging.take(&mut rest), 3);
        assert_eq!(rest, *b"89x\0\0");
        assert_eq!(staging.len(), 0);
    }
}
