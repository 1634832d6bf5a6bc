//! The receiver's part: where blocks go, and what becomes of them.

use std::sync::Arc;

use comm_codec::checksum;
use comm_core::{Codec, DType, Error, ErrorKind, Result, TensorLayout, TensorMut};

use super::Compression;
use crate::message::blocks::{Block, Blocks};
use crate::pool::ReceivePool;

/// The memory of a message whose tensors arrive compressed.
#[derive(Debug)]
pub(crate) struct Packed {
    codec: Arc<dyn Codec>,
    /// In the order of the tensors: a block that arrives, and where its tensor goes.
    tensors: Vec<Option<(Block, TensorMut)>>,
}

impl Compression {
    /// Puts memory for the blocks in the place of that of the tensors, which is kept for
    /// [`Compression::unpack`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the codec is not there; [`ErrorKind::ResourceExhausted`] without
    /// memory.
    pub(crate) fn set_aside(
        &self,
        blocks: Blocks,
        memory: &mut [TensorMut],
        pool: &ReceivePool,
    ) -> Result<Packed> {
        let codec = self.registry.with_wire_id(blocks.wire_id)?;
        let tensors = blocks
            .of_tensors
            .into_iter()
            .zip(memory)
            .map(|(block, tensor)| {
                let Some(block) = block else {
                    return Ok(None);
                };
                let layout = TensorLayout::contiguous(DType::U8, &[block.bytes])?;
                let tensor = std::mem::replace(tensor, pool.provide(&layout)?);
                Ok(Some((block, tensor)))
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Packed {
            codec: Arc::clone(codec),
            tensors,
        })
    }

    /// Decompresses the blocks that have arrived into their tensors' memory, which takes their places
    /// again. Takes its time, and may wait for a context of the codec.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] if a block is damaged; what the codec says.
    pub(crate) fn unpack(
        &self,
        packed: Packed,
        segments: &mut [TensorMut],
        pool: &ReceivePool,
    ) -> Result<()> {
        let codec = packed.codec;
        for (place, (tensor, segment)) in packed.tensors.into_iter().zip(segments).enumerate() {
            let Some((block, tensor)) = tensor else {
                continue;
            };
            let arrived = std::mem::replace(segment, tensor);
            let raw = segment.as_mut_bytes()?;
            let unpacked = codec.decompress_into(arrived.as_bytes()?, raw);
            let found = unpacked.map(|()| checksum(raw));
            let bytes = raw.len();
            pool.adopt(&arrived.freeze());
            if found? != block.checksum {
                return Err(Error::new(
                    ErrorKind::Protocol,
                    "a compressed tensor was damaged on the way: its checksum is another one",
                )
                .with("tensor", place)
                .with("codec", codec.name()));
            }
            self.counters.decompressed_tensors.add(1);
            self.counters.decompressed_from_bytes.add(block.bytes);
            self.counters.decompressed_to_bytes.add(bytes);
        }
        Ok(())
    }
}
