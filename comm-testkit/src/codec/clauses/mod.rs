//! The clauses of [`Codec`], by number.

mod bounds;
mod hostile;
mod lossless;
mod threads;

pub use comm_core::Result;

pub use bounds::{
    c4_targets_of_any_length_end_in_an_answer, c4_the_bound_suffices_for_noise,
    c4_the_useful_target_suffices_for_what_becomes_smaller,
};
pub use hostile::{
    c3_blocks_cut_short_or_prolonged_end_in_an_answer, c3_damaged_blocks_end_in_an_answer,
    c3_noise_ends_in_an_answer, c3_other_lengths_are_refused,
};
pub use lossless::{
    an_empty_input_is_valid, c1_blocks_of_earlier_releases_decompress,
    c1_contexts_keep_nothing_of_earlier_calls, c1_what_is_compressed_comes_back,
    c2_exactly_the_bytes_and_the_length_are_needed, name_and_wire_id_are_allowed,
};
pub use threads::c5_threads_share_a_codec;

use comm_core::{Codec, ErrorKind};

/// Bytes around the target that a call must leave alone.
const GUARD_BYTES: usize = 64;

/// What stands in them.
const GUARD: u8 = 0xA5;

/// Lengths around those at which codecs change their ways.
const LENGTHS: &[usize] = &[
    1,
    2,
    11,
    12,
    13,
    100,
    4095,
    65_535,
    65_536,
    100_001,
    1 << 20,
];

/// Runs `call` on `len` bytes in the middle of guarded memory; its answer and those bytes.
fn guarded<T>(len: usize, call: impl FnOnce(&mut [u8]) -> T) -> (T, Vec<u8>) {
    let mut memory = vec![GUARD; GUARD_BYTES + len + GUARD_BYTES];
    let answer = call(&mut memory[GUARD_BYTES..][..len]);
    let untouched = |bytes: &[u8]| bytes.iter().all(|byte| *byte == GUARD);
    assert!(
        untouched(&memory[..GUARD_BYTES]) && untouched(&memory[GUARD_BYTES + len..]),
        "memory beside the target was written to"
    );
    (answer, memory[GUARD_BYTES..][..len].to_vec())
}

/// Decompresses into `len` bytes; `None` for an answer that is the error of damaged input.
///
/// # Errors
///
/// Any other error of the codec.
fn decompressed(codec: &dyn Codec, block: &[u8], len: usize) -> Result<Option<Vec<u8>>> {
    // An allocation of its own, behind whose end nothing is.
    let block: Box<[u8]> = block.into();
    match guarded(len, |raw| codec.decompress_into(&block, raw)) {
        (Ok(()), raw) => Ok(Some(raw)),
        (Err(error), _) if error.kind() == ErrorKind::Protocol => Ok(None),
        (Err(error), _) => Err(error),
    }
}
