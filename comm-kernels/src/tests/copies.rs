//! Copies of all kinds move the payload and nothing else.

use super::{Bits, Shifted};
use crate::{copy, copy_far, copy_streaming};

#[test]
fn copies_of_every_small_size_move_exactly_the_payload() {
    let mut bits = Bits(3);
    for bytes in (0..600).chain([4095, 4096, 4097, 70_001]) {
        let payload = bits.bytes(bytes);
        for (from, to) in [(0, 0), (1, 0), (0, 1), (31, 33)] {
            let source = Shifted::new(&payload, from);
            let mut target = Shifted::new(&vec![0; bytes], to);
            // SAFETY: both buffers hold `bytes` bytes.
            unsafe { copy(target.as_mut_ptr(), source.as_ptr(), bytes) };
            assert_eq!(target.payload(), payload);
            let mut target = Shifted::new(&vec![0; bytes], to);
            // SAFETY: both buffers hold `bytes` bytes.
            unsafe { copy_far(target.as_mut_ptr(), source.as_ptr(), bytes) };
            assert_eq!(target.payload(), payload);
            for threshold in [0, bytes, bytes + 1] {
                let mut target = Shifted::new(&vec![0; bytes], to);
                // SAFETY: both buffers hold `bytes` bytes.
                unsafe { copy_streaming(target.as_mut_ptr(), source.as_ptr(), bytes, threshold) };
                assert_eq!(target.payload(), payload);
            }
        }
    }
}
