//! The sender's part: which tensors are compressed, and into what.

use bytes::Bytes;
use comm_codec::checksum;
use comm_core::{Compressed, DType, Tensor};

use super::{Compression, Sending};
use crate::message::blocks::{Block, Blocks};

/// The tensors of a message, some of them compressed.
#[derive(Debug)]
pub(crate) struct CompressedTensors {
    pub(crate) blocks: Blocks,
    /// What travels in place of the tensors.
    pub(crate) segments: Vec<Tensor>,
}

/// Why a tensor goes as it is.
enum Declined {
    NotSmaller,
    NoBuffer,
    NoContext,
    NotPossible,
}

impl Compression {
    /// Compresses those of these contiguous host tensors that are worth it; `None` if none was.
    ///
    /// What it is declined for is counted and no error.
    pub(crate) fn compress(&self, tensors: &[Tensor]) -> Option<CompressedTensors> {
        let sending = self.sending.as_ref()?;
        let mut compressed: Option<CompressedTensors> = None;
        for (place, tensor) in tensors.iter().enumerate() {
            if !sending
                .settings
                .is_eligible(tensor.dtype(), tensor.len_bytes())
            {
                continue;
            }
            match sending.compress(tensor) {
                Ok((block, segment)) => {
                    self.counters.compressed_tensors.add(1);
                    self.counters.compressed_from_bytes.add(tensor.len_bytes());
                    self.counters.compressed_to_bytes.add(block.bytes);
                    let compressed = compressed.get_or_insert_with(|| CompressedTensors {
                        blocks: Blocks {
                            wire_id: sending.codec.wire_id(),
                            of_tensors: vec![None; tensors.len()],
                        },
                        segments: tensors.to_vec(),
                    });
                    compressed.blocks.of_tensors[place] = Some(block);
                    compressed.segments[place] = segment;
                }
                Err(declined) => {
                    let counter = match declined {
                        Declined::NotSmaller => &self.counters.not_smaller,
                        Declined::NoBuffer => &self.counters.no_buffer,
                        Declined::NoContext => &self.counters.no_context,
                        Declined::NotPossible => &self.counters.not_possible,
                    };
                    counter.add(1);
                }
            }
        }
        compressed
    }
}

impl Sending {
    /// The tensor's block, in a buffer that goes back to the pool with the segment's last handle.
    fn compress(&self, tensor: &Tensor) -> Result<(Block, Tensor), Declined> {
        let raw = tensor.as_bytes().map_err(|_| Declined::NotPossible)?;
        let target_bytes = self.codec.target_bytes(raw.len());
        let target_bytes = target_bytes.ok_or(Declined::NotPossible)?;
        let mut buffer = self.pool.acquire(target_bytes).ok_or(Declined::NoBuffer)?;
        let bytes = match self.codec.compress_into(raw, &mut buffer) {
            Ok(Compressed::Bytes(bytes)) if (1..raw.len()).contains(&bytes) => bytes,
            Ok(Compressed::Bytes(_) | Compressed::DoesNotFit) => {
                // A buffer of a size that does not pay is not kept.
                buffer.discard();
                return Err(Declined::NotSmaller);
            }
            Ok(Compressed::Busy) => return Err(Declined::NoContext),
            Err(error) => {
                tracing::debug!(%error, codec = self.codec.name(), "a tensor goes uncompressed");
                buffer.discard();
                return Err(Declined::NotPossible);
            }
        };
        buffer.truncate(bytes);
        let block = Block {
            bytes,
            checksum: checksum(raw),
        };
        let segment = Tensor::from_bytes(Bytes::from_owner(buffer), DType::U8, &[bytes]);
        Ok((block, segment.map_err(|_| Declined::NotPossible)?))
    }
}
