//! Results that are made in blocks are those of one call.

use comm_core::ReduceOp;

use super::{Bits, reducible};
use crate::Reducer;

#[test]
fn a_streamed_result_of_many_blocks_is_that_of_the_plain_kernel() {
    let mut bits = Bits(11);
    for dtype in reducible() {
        let element_bytes = dtype.size_bytes();
        let reducer = Reducer::new(dtype, ReduceOp::Max).unwrap();
        for count in [
            8191 / element_bytes,
            8192 / element_bytes,
            40_001 / element_bytes,
        ] {
            let [a, b] = [(); 2].map(|()| bits.bytes(count * element_bytes));
            let [mut plain, mut streamed] = [(); 2].map(|()| vec![0; count * element_bytes]);
            // SAFETY: all buffers hold `count` elements and are different.
            unsafe { reducer.reduce(plain.as_mut_ptr(), a.as_ptr(), b.as_ptr(), count) };
            let target = streamed.as_mut_ptr();
            // SAFETY: as above.
            unsafe { reducer.reduce_streaming(target, a.as_ptr(), b.as_ptr(), count) };
            assert_eq!(plain, streamed, "{dtype}, {count} elements");
        }
    }
}

#[test]
fn operands_that_are_far_are_reduced_like_near_ones() {
    let mut bits = Bits(12);
    for dtype in reducible() {
        let element_bytes = dtype.size_bytes();
        let near = Reducer::new(dtype, ReduceOp::Sum).unwrap();
        let far = near.far();
        for bytes in [4096, 4104, 5120, 9000, 70_008] {
            let count = bytes / element_bytes;
            let [a, b, c] = [(); 3].map(|()| bits.bytes(count * element_bytes));
            let results = [near, far].map(|reducer| {
                let [mut one, mut in_place, mut also] = [c.clone(), a.clone(), c.clone()];
                let (a, b) = (a.as_ptr(), b.as_ptr());
                // SAFETY: all buffers hold `count` elements and are different.
                unsafe { reducer.reduce(one.as_mut_ptr(), a, b, count) };
                let target = in_place.as_mut_ptr();
                // SAFETY: as above; the target may be one of the sources.
                unsafe { reducer.reduce2(target, also.as_mut_ptr(), target, b, count) };
                let sources = [a, b, c.as_ptr()];
                let mut many = vec![0; count * element_bytes];
                // SAFETY: as above.
                unsafe { reducer.reduce_many_scaled(many.as_mut_ptr(), &sources, count, 3) };
                [one, in_place, also, many]
            });
            assert_eq!(results[0], results[1], "{dtype}, {count} elements");
        }
    }
}
