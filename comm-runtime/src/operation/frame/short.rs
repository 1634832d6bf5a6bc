//! A buffer that needs no allocation while it is short.

/// Up to `N` elements in place, more on the heap.
#[derive(Debug)]
pub(super) struct Short<T, const N: usize> {
    inline: [T; N],
    heap: Vec<T>,
    len: usize,
}

impl<T: Copy + Default, const N: usize> Short<T, N> {
    pub(super) fn new() -> Self {
        Self {
            inline: [T::default(); N],
            heap: Vec::new(),
            len: 0,
        }
    }

    /// Makes it `len` default elements long, keeping what is there.
    pub(super) fn grow(&mut self, len: usize) {
        if len > N {
            if self.heap.is_empty() {
                self.heap.extend_from_slice(&self.inline[..self.len]);
            }
            self.heap.resize(len, T::default());
        }
        self.len = len;
    }

    pub(super) fn as_slice(&self) -> &[T] {
        if self.heap.is_empty() {
            &self.inline[..self.len]
        } else {
            &self.heap
        }
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [T] {
        if self.heap.is_empty() {
            &mut self.inline[..self.len]
        } else {
            &mut self.heap
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_stays_when_the_buffer_moves_to_the_heap() {
        let mut buffer = Short::<u8, 4>::new();
        buffer.grow(3);
        buffer.as_mut_slice().copy_from_slice(&[1, 2, 3]);
        buffer.grow(4);
        assert_eq!(buffer.as_slice(), [1, 2, 3, 0]);
        buffer.grow(6);
        assert_eq!(buffer.as_slice(), [1, 2, 3, 0, 0, 0]);
        assert_eq!(buffer.as_mut_slice().len(), 6);
    }
}
