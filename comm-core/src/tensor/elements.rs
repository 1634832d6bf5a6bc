//! Typed slices seen as bytes.

use std::mem::size_of_val;
use std::slice;

use crate::Element;

/// The bytes of typed elements, in the order in which they lie in memory.
#[must_use]
#[inline]
pub const fn element_bytes<T: Element>(elements: &[T]) -> &[u8] {
    // SAFETY: the slice covers exactly this memory, and an `Element` is a plain number without
    // padding, so all of its bytes are initialised.
    unsafe { slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

/// The bytes of typed elements, to be written.
#[must_use]
#[inline]
pub const fn element_bytes_mut<T: Element>(elements: &mut [T]) -> &mut [u8] {
    let len_bytes = size_of_val(elements);
    // SAFETY: as above; the slice is borrowed exclusively, and every bit pattern is a valid
    // `Element`.
    unsafe { slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), len_bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_elements_are_the_same_memory() {
        let mut elements = [0x0102_u16.to_be(), 0x0304_u16.to_be()];
        assert_eq!(element_bytes(&elements), [1, 2, 3, 4]);
        element_bytes_mut(&mut elements)[3] = 9;
        assert_eq!(u16::from_be(elements[1]), 0x0309);
        assert!(element_bytes::<f64>(&[]).is_empty());
    }
}
