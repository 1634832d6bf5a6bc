//! The bytes of a message's header: numbers, byte strings and tensor layouts.
//!
//! # Contract
//!
//! * Whatever the bytes are, reading ends in a value or an error. Nothing is allocated by a length
//!   that was read before that many bytes are known to be there.
//! * Numbers are LEB128: seven bits a byte, least significant first, at most ten bytes.

use comm_core::{DType, Error, ErrorKind, Result, TensorLayout};

/// More dimensions than any program uses; keeps a layout small.
const MAX_DIMENSIONS: u64 = 64;

#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(crate) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push((number as u8) | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// 64 bits, least significant byte first.
    pub(crate) fn word(&mut self, word: u64) {
        self.0.extend_from_slice(&word.to_le_bytes());
    }

    /// Element type and shape; the elements follow each other without gaps.
    pub(crate) fn layout(&mut self, dtype: DType, shape: &[usize]) {
        self.byte(dtype as u8);
        self.number(shape.len() as u64);
        for size in shape {
            self.number(*size as u64);
        }
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}

#[derive(Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        let (first, rest) = self.0.split_first().ok_or_else(cut_short)?;
        self.0 = rest;
        Ok(*first)
    }

    pub(crate) fn number(&mut self) -> Result<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(malformed("a number in it has more than 64 bits"))
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.number()?;
        let split = usize::try_from(len)
            .ok()
            .and_then(|len| self.0.split_at_checked(len));
        let (bytes, rest) = split.ok_or_else(cut_short)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(crate) fn word(&mut self) -> Result<u64> {
        let (word, rest) = self.0.split_first_chunk().ok_or_else(cut_short)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*word))
    }

    pub(crate) fn layout(&mut self) -> Result<TensorLayout> {
        let dtype = DType::from_wire(self.byte()?)?;
        let dimensions = self.number()?;
        if dimensions > MAX_DIMENSIONS {
            return Err(malformed("a tensor in it has more than 64 dimensions"));
        }
        let shape = (0..dimensions)
            .map(|_| {
                usize::try_from(self.number()?)
                    .map_err(|_| malformed("a tensor in it is larger than the address space"))
            })
            .collect::<Result<Vec<_>>>()?;
        TensorLayout::contiguous(dtype, &shape)
            .map_err(|error| malformed("the size of a tensor in it overflows").with_source(error))
    }

    /// Checks that nothing is left.
    pub(crate) fn end(&self) -> Result<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(malformed("it goes on behind its end"))
        }
    }
}

fn cut_short() -> Error {
    malformed("it ends too early")
}

pub(super) fn malformed(what: &str) -> Error {
    Error::new(
        ErrorKind::Protocol,
        format!("the header of a message does not follow the protocol: {what}"),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_largest_number_fits_and_nothing_beyond_it() {
        let mut writer = Writer::default();
        writer.number(u64::MAX);
        let bytes = writer.finish();
        assert_eq!(Reader::new(&bytes).number().unwrap(), u64::MAX);
        for bad in [
            &[0xff_u8; 9][..],
            &[0xff; 11],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
        ] {
            assert!(Reader::new(bad).number().is_err());
        }
    }

    #[test]
    fn a_length_beyond_the_end_is_an_error_before_anything_is_allocated() {
        let mut writer = Writer::default();
        writer.number(u64::MAX);
        assert!(Reader::new(&writer.finish()).bytes().is_err());
        let mut writer = Writer::default();
        writer.byte(DType::U8 as u8);
        writer.number(u64::MAX);
        assert!(Reader::new(&writer.finish()).layout().is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            numbers in proptest::collection::vec(any::<u64>(), 0..8),
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
            shape in proptest::collection::vec(0_usize..9, 0..6),
            dtype in 0..DType::ALL.len(),
        ) {
            let mut writer = Writer::default();
            numbers.iter().for_each(|number| writer.number(*number));
            writer.bytes(&bytes);
            writer.layout(DType::ALL[dtype], &shape);
            writer.word(numbers.len() as u64);
            let written = writer.finish();
            let mut reader = Reader::new(&written);
            for number in &numbers {
                prop_assert_eq!(reader.number().unwrap(), *number);
            }
            prop_assert_eq!(reader.bytes().unwrap(), &bytes[..]);
            let layout = reader.layout().unwrap();
            prop_assert_eq!((layout.dtype(), layout.shape()), (DType::ALL[dtype], &shape[..]));
            prop_assert_eq!(reader.word().unwrap(), numbers.len() as u64);
            prop_assert!(reader.end().is_ok());
            prop_assert!(reader.word().is_err());
        }
    }
}
