//! Bytes like those of ML jobs, made from a seed.

use crate::net::Rng;

/// A kind of data: its name, and a function from length in bytes and seed.
pub type Sample = (&'static str, fn(usize, u64) -> Vec<u8>);

/// All kinds.
pub const SAMPLES: &[Sample] = &[
    ("zeros", zeros),
    ("mask", mask),
    ("token_ids", token_ids),
    ("bf16_weights", bf16_weights),
    ("noise", noise),
];

/// Nothing but zeros.
#[must_use]
pub fn zeros(bytes: usize, _: u64) -> Vec<u8> {
    vec![0; bytes]
}

/// A mask of bytes of which every sixteenth, at random, is one.
#[must_use]
pub fn mask(bytes: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let bit = |number: u64| u8::from(number.is_multiple_of(16));
    (0..bytes).map(|_| bit(rng.next() >> 32)).collect()
}

/// Token ids below 50000 as little-endian `i64`.
#[must_use]
pub fn token_ids(bytes: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    elements(bytes, || ((rng.next() >> 32) % 50_000).to_le_bytes())
}

/// Weights as little-endian `bf16`, of normal distribution around 0 with standard deviation 0.02.
#[must_use]
pub fn bf16_weights(bytes: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    elements(bytes, || {
        // Twelve uniform numbers are near enough to a normal one (Irwin and Hall).
        let sum: f64 = (0..12)
            .map(|_| (rng.next() >> 11) as f64 / (1_u64 << 53) as f64)
            .sum();
        let weight = (0.02 * (sum - 6.0)) as f32;
        ((weight.to_bits() >> 16) as u16).to_le_bytes()
    })
}

/// Nothing that any codec could make smaller.
#[must_use]
pub fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    elements(bytes, || rng.next().to_le_bytes())
}

/// `bytes` bytes of elements, the last one cut off.
fn elements<const N: usize>(bytes: usize, mut next: impl FnMut() -> [u8; N]) -> Vec<u8> {
    let mut data = Vec::with_capacity(bytes + N);
    while data.len() < bytes {
        data.extend_from_slice(&next());
    }
    data.truncate(bytes);
    data
}
