//! Contents that can be made and checked anywhere from a few numbers.

use super::Rng;

/// Bytes that depend on a seed and the number of the message.
#[derive(Clone, Copy, Debug)]
pub struct Payload {
    seed: u64,
}

impl Payload {
    /// Contents that depend on `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The contents of message `number`.
    #[must_use]
    pub fn bytes(&self, number: u64, len_bytes: usize) -> Vec<u8> {
        let mut rng = Rng::new(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut bytes = Vec::with_capacity(len_bytes.next_multiple_of(8));
        while bytes.len() < len_bytes {
            bytes.extend_from_slice(&rng.next().to_le_bytes());
        }
        bytes.truncate(len_bytes);
        bytes
    }

    /// Checks that `bytes` are the contents of message `number`.
    ///
    /// # Panics
    ///
    /// With the first position that differs, if they are not.
    pub fn check(&self, number: u64, bytes: &[u8]) {
        let expected = self.bytes(number, bytes.len());
        if let Some(at) = bytes
            .iter()
            .zip(&expected)
            .position(|(actual, right)| actual != right)
        {
            panic!(
                "message {number} of {} bytes differs at byte {at}: {:#04x} instead of {:#04x}",
                bytes.len(),
                bytes[at],
                expected[at]
            );
        }
    }
}
