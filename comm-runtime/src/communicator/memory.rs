//! From the memory of a call to a request and the pointers of its buffers.
//!
//! Every length is checked here, before anything is sent: an operation never reads or writes
//! outside of what it was given.

use comm_core::{
    DType, Element, Error, ErrorKind, OperationKind, Rank, ReduceOp, Result, Tensor, TensorMut,
};

use super::Communicator;
use crate::operation::Buffers;
use crate::plan::{Extent, Extents, Request};

/// What a call asks for, apart from its memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) kind: OperationKind,
    pub(super) op: Option<ReduceOp>,
    pub(super) root: Rank,
}

impl Wish {
    pub(super) const fn new(kind: OperationKind) -> Self {
        Self {
            kind,
            op: None,
            root: 0,
        }
    }

    pub(super) const fn op(mut self, op: ReduceOp) -> Self {
        self.op = Some(op);
        self
    }

    pub(super) const fn root(mut self, root: Rank) -> Self {
        self.root = root;
        self
    }
}

/// Memory that is only read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Readable {
    dtype: DType,
    len: usize,
    start: *const u8,
}

impl<T: Element> From<&[T]> for Readable {
    #[inline]
    fn from(slice: &[T]) -> Self {
        Self {
            dtype: T::DTYPE,
            len: slice.len(),
            start: slice.as_ptr().cast(),
        }
    }
}

/// Memory that is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writable {
    dtype: DType,
    len: usize,
    start: *mut u8,
}

impl<T: Element> From<&mut [T]> for Writable {
    #[inline]
    fn from(slice: &mut [T]) -> Self {
        Self {
            dtype: T::DTYPE,
            len: slice.len(),
            start: slice.as_mut_ptr().cast(),
        }
    }
}

impl Readable {
    /// The elements of a tensor, which the caller keeps alive.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the tensor is not contiguous host memory.
    pub(super) fn tensor(kind: OperationKind, tensor: &Tensor) -> Result<Self> {
        let host = tensor.memory_kind().is_host();
        check_tensor(kind.as_str(), tensor.is_contiguous(), host)?;
        Ok(Self {
            dtype: tensor.dtype(),
            len: tensor.element_count(),
            start: tensor.as_ptr(),
        })
    }
}

impl Writable {
    /// As [`Readable::tensor`].
    pub(super) fn tensor(kind: OperationKind, tensor: &mut TensorMut) -> Result<Self> {
        let host = tensor.memory_kind().is_host();
        check_tensor(kind.as_str(), tensor.is_contiguous(), host)?;
        Ok(Self {
            dtype: tensor.dtype(),
            len: tensor.element_count(),
            start: tensor.as_mut_ptr(),
        })
    }
}

impl Communicator {
    /// A call on one buffer.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if there is no such root, or the buffer cannot be divided
    /// into a block for each rank.
    #[inline]
    pub(super) fn in_place(&self, wish: Wish, buffer: Writable) -> Result<(Request, Buffers)> {
        let extents = self.extents(wish)?;
        let count = self.block_of(wish.kind, extents.in_place(), buffer.len)?;
        let (input, output) = extents.in_place_offsets(self.rank(), count);
        let at = |element: usize| {
            buffer
                .start
                .wrapping_add(element * buffer.dtype.size_bytes())
        };
        let buffers = Buffers {
            input: at(input).cast_const(),
            output: at(output),
        };
        Ok((request(wish, buffer.dtype, count, true), buffers))
    }

    /// A call on two buffers, each of which only some ranks may have.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if there is no such root, a buffer is missing or not used on
    /// this rank, lengths do not belong together, or element types differ.
    pub(super) fn out_of_place(
        &self,
        wish: Wish,
        input: Option<Readable>,
        output: Option<Writable>,
    ) -> Result<(Request, Buffers)> {
        let extents = self.extents(wish)?;
        let bad = |what: String| {
            let error = Error::new(ErrorKind::InvalidArgument, what);
            error.with("operation", wish.kind)
        };
        for (name, extent, given) in [
            ("input", extents.input, input.is_some()),
            ("output", extents.output, output.is_some()),
        ] {
            match (extent, given) {
                (Extent::Nothing, true) => {
                    let what = format!("only the root passes an {name}; other ranks pass None");
                    return Err(bad(what).with("root", wish.root));
                }
                (Extent::Block | Extent::Blocks, false) => {
                    return Err(bad(format!("the root must pass an {name}")));
                }
                _ => {}
            }
        }
        let dtype = match (&input, &output) {
            (Some(input), Some(output)) if input.dtype != output.dtype => {
                return Err(
                    bad("input and output must have the same element type".to_owned())
                        .with("input", input.dtype)
                        .with("output", output.dtype),
                );
            }
            (Some(Readable { dtype, .. }), _) | (None, Some(Writable { dtype, .. })) => *dtype,
            (None, None) => return Err(bad("there is neither input nor output".to_owned())),
        };
        let (input_len, output_len) = (
            input.as_ref().map_or(0, |input| input.len),
            output.as_ref().map_or(0, |output| output.len),
        );
        // One block tells its length by itself.
        let count = match (extents.input, extents.output) {
            (Extent::Block, _) => input_len,
            (_, Extent::Block) => output_len,
            (extent, _) => self.block_of(wish.kind, extent, input_len)?,
        };
        let fits = |extent: Extent, len: usize| {
            count.checked_mul(extent.blocks(self.world_size())) == Some(len)
        };
        if !fits(extents.input, input_len) || !fits(extents.output, output_len) {
            let what = match (extents.input, extents.output) {
                (Extent::Block, Extent::Blocks) => {
                    "the output must hold a block of the input's length for each rank"
                }
                (Extent::Blocks, Extent::Block) => {
                    "the input must hold a block of the output's length for each rank"
                }
                _ => "input and output must be equally long",
            };
            return Err(bad(what.to_owned())
                .with("input", input_len)
                .with("output", output_len)
                .with("world_size", self.world_size()));
        }
        let dangling = std::ptr::NonNull::<u8>::dangling().as_ptr();
        let nothing = dangling.cast_const();
        let buffers = Buffers {
            input: input.map_or(nothing, |input| input.start),
            output: output.map_or(dangling, |output| output.start),
        };
        Ok((request(wish, dtype, count, false), buffers))
    }

    #[inline]
    fn extents(&self, wish: Wish) -> Result<Extents> {
        self.core.planner.check_root(wish.kind, wish.root)?;
        Ok(Extents::new(wish.kind, wish.root == self.rank()))
    }

    /// The length of one block of a buffer.
    #[inline]
    fn block_of(&self, kind: OperationKind, extent: Extent, len: usize) -> Result<usize> {
        let blocks = extent.blocks(self.world_size()).max(1);
        if len.is_multiple_of(blocks) {
            return Ok(len / blocks);
        }
        Err(no_blocks(kind, len, self.world_size()))
    }
}

#[cold]
fn no_blocks(kind: OperationKind, len: usize, world_size: u32) -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        "the buffer must hold an equally long block for each rank",
    )
    .with("operation", kind)
    .with("elements", len)
    .with("world_size", world_size)
}

#[inline]
const fn request(wish: Wish, dtype: DType, count: usize, in_place: bool) -> Request {
    Request {
        kind: wish.kind,
        dtype: Some(dtype),
        op: wish.op,
        root: wish.root,
        count,
        in_place,
    }
}

/// Whether a tensor's memory can be handed to an operation.
pub(super) fn check_tensor(operation: &'static str, contiguous: bool, host: bool) -> Result<()> {
    let message = match (host, contiguous) {
        (true, true) => return Ok(()),
        (false, _) => "the tensor lies in device memory, which needs a device transport",
        (true, false) => "the tensor must be contiguous; pack() makes a contiguous copy",
    };
    Err(Error::new(ErrorKind::InvalidArgument, message).with("operation", operation))
}
