//! [`Blocks`]: what a header says about the compressed tensors of its message.
//!
//! # Contract
//!
//! * Behind the layouts, if the flag is set: the codec's wire id, then for each tensor a number, 0 for
//!   one that is not compressed, else the bytes of its block, followed by the checksum
//!   ([`comm_codec::checksum`]) of the tensor's bytes, eight bytes, least significant first.
//! * A block is smaller than its tensor and not empty, and there is one; all else is refused before
//!   memory is taken for it.

use comm_core::{Result, TensorLayout};

use super::wire::{Reader, Writer, malformed};

/// The compressed form of one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Its length.
    pub(crate) bytes: usize,
    /// Of the tensor's bytes.
    pub(crate) checksum: u64,
}

/// Which tensors of a message are compressed, and by what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blocks {
    pub(crate) wire_id: u8,
    /// One for each tensor; `None` for those that are not compressed.
    pub(crate) of_tensors: Vec<Option<Block>>,
}

impl Blocks {
    pub(super) fn write(&self, header: &mut Writer) {
        header.byte(self.wire_id);
        for block in &self.of_tensors {
            match block {
                None => header.number(0),
                Some(block) => {
                    header.number(block.bytes as u64);
                    header.word(block.checksum);
                }
            }
        }
    }

    /// # Errors
    ///
    /// [`ErrorKind::Protocol`](comm_core::ErrorKind) if the blocks cannot be those of tensors with
    /// these layouts.
    pub(super) fn read(header: &mut Reader<'_>, tensors: &[TensorLayout]) -> Result<Self> {
        let wire_id = header.byte()?;
        if wire_id == 0 {
            return Err(malformed("its tensors are compressed by nothing"));
        }
        let of_tensors = tensors
            .iter()
            .map(|tensor| {
                let bytes = header.number()?;
                if bytes == 0 {
                    return Ok(None);
                }
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                if bytes >= tensor.len_bytes() {
                    return Err(malformed("a compressed tensor in it is not smaller")
                        .with("block_bytes", bytes)
                        .with("tensor_bytes", tensor.len_bytes()));
                }
                let checksum = header.word()?;
                Ok(Some(Block { bytes, checksum }))
            })
            .collect::<Result<Vec<_>>>()?;
        if of_tensors.iter().all(Option::is_none) {
            return Err(malformed("it is marked as compressed, and no tensor is"));
        }
        Ok(Self {
            wire_id,
            of_tensors,
        })
    }

    /// The block of this tensor, if it is compressed.
    pub(crate) fn of_tensor(&self, place: usize) -> Option<Block> {
        self.of_tensors.get(place).copied().flatten()
    }
}
