//! Copy and reduce kernels for host memory.
//!
//! ```
//! use comm_core::{DType, ReduceOp};
//! use comm_kernels::Reducer;
//!
//! let sum = Reducer::new(DType::F32, ReduceOp::Sum)?;
//! let (left, right, mut total) = ([1.0_f32, 2.0], [10.0_f32, 20.0], [0.0_f32; 2]);
//! // SAFETY: all arrays hold two elements of the reducer's type and do not overlap.
//! unsafe { sum.reduce(total.as_mut_ptr().cast(), left.as_ptr().cast(), right.as_ptr().cast(), 2) };
//! assert_eq!(total, [11.0, 22.0]);
//! # Ok::<(), comm_core::Error>(())
//! ```
//!
//! # Contract
//!
//! * Everything works on raw pointers at any alignment. No Rust reference to the memory is formed
//!   and no control flow depends on its contents: a peer that writes to a slot at the same time
//!   gets garbage into the result, nothing more.
//! * The caller promises what each function's `Safety` section asks: valid ranges that overlap only
//!   where it says so.
//! * Results do not depend on the instruction set: the vectorised and the portable versions agree
//!   bit for bit (the payload of a NaN aside), as no operation is contracted or reordered.
//! * No allocation, no lock, no system call. The instruction set is looked up once, when a
//!   [`Reducer`] is made; [`copy()`] reads a cached flag for large copies only.
//!
//! # Meanings
//!
//! * Integers wrap. `Avg` accumulates as `Sum`; [`Reducer::scale`] divides by the number of ranks,
//!   integers towards zero.
//! * `Min` and `Max` propagate NaN and order -0 before +0, so they do not depend on the order of the
//!   operands.
//! * f16 and bf16 are widened to f32 for every operation and rounded to nearest, ties to even, when
//!   stored: after each step by [`Reducer::reduce`], once by [`Reducer::reduce_many`].

mod cache;
mod copy;
mod lane;
mod loops;
mod narrow_float;
mod number;
#[cfg(target_arch = "x86_64")]
mod packs;
mod prefetch;
mod reduce;
#[cfg(test)]
mod tests;

pub use cache::streaming_from_bytes;
pub use copy::{copy, copy_far, copy_streaming};
pub use reduce::Reducer;

/// The instruction sets that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Isa {
    /// What the target architecture always has.
    Baseline,
    /// AVX2 and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Isa {
    /// The best one that this processor has.
    #[inline]
    fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("f16c") {
            return Self::Avx2;
        }
        Self::Baseline
    }
}
