//! What all collectives have in common when they are measured.

use std::fmt::Debug;
use std::hint::black_box;
use std::marker::PhantomData;
use std::ops::Range;

use comm_api::{Communicator, OperationKind, ReduceOp, Result};

use super::{Buffers, Calls, Case, Route, route};
use crate::number::Number;

/// The rank that the others send to or receive from, where one of them is special.
pub(super) const ROOT: u32 = 0;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// A collective.
pub(super) trait Kind: Debug {
    const KIND: OperationKind;
    const REDUCES: bool = false;

    /// Which elements of the buffer with this rank's values, `len` long, are its own.
    fn own(_turn: &Turn<'_>, len: usize) -> Range<usize> {
        0..len
    }

    /// Makes one call. `input` and `output` are as long as all blocks together, where there are
    /// blocks; in place, `output` is the buffer.
    fn call<T: Number>(turn: &Turn<'_>, input: &[T], output: &mut [T]) -> Result<()>;

    /// Fills the buffers with the values of a round, makes one call, and returns how many elements of
    /// this rank are wrong.
    fn check<T: Number>(turn: &Turn<'_>, input: &mut [T], output: &mut [T]) -> Result<u64>;
}

/// What a call goes by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn<'a> {
    pub(super) comm: &'a Communicator,
    /// Of no meaning where nothing is reduced.
    pub(super) op: ReduceOp,
    pub(super) case: Case,
    /// Tells the values of one check from those of the others.
    pub(super) round: u64,
}

impl Turn<'_> {
    pub(super) fn rank(&self) -> u32 {
        self.comm.rank()
    }

    pub(super) fn ranks(&self) -> u32 {
        self.comm.world_size()
    }

    pub(super) fn is_root(&self) -> bool {
        self.rank() == ROOT
    }

    /// The buffer that this rank's values come from.
    pub(super) fn source<'b, T>(&self, input: &'b mut [T], output: &'b mut [T]) -> &'b mut [T] {
        if self.case.in_place { output } else { input }
    }
}

/// A collective with its buffers.
#[derive(Debug)]
pub(super) struct Collective<'a, T, K> {
    comm: &'a Communicator,
    op: ReduceOp,
    buffers: Buffers<T>,
    kind: PhantomData<K>,
}

impl<'a, T: Number, K: Kind> Collective<'a, T, K> {
    pub(super) fn new(comm: &'a Communicator, op: ReduceOp, buffers: Buffers<T>) -> Self {
        Self {
            comm,
            op,
            buffers,
            kind: PhantomData,
        }
    }

    fn turn(&self, round: u64) -> Turn<'a> {
        Turn {
            comm: self.comm,
            op: self.op,
            case: self.buffers.case,
            round,
        }
    }
}

impl<T: Number, K: Kind> Calls for Collective<'_, T, K> {
    fn prepare(&mut self, case: Case) -> Result<Route> {
        let op = K::REDUCES.then_some(self.op);
        self.buffers.start(case, T::resting(op))?;
        route::<T>(self.comm, K::KIND, op, case)
    }

    fn run(&mut self, calls: u64) -> Result<()> {
        let turn = self.turn(0);
        let (fresh, resting) = (
            self.buffers.fresh,
            T::resting(K::REDUCES.then_some(self.op)),
        );
        let (input, output) = self.buffers.both_mut()?;
        for _ in 0..calls {
            if fresh {
                let source = turn.source(input, output);
                let own = K::own(&turn, source.len());
                black_box(&mut source[own]).fill(resting);
            }
            K::call(&turn, input, output)?;
            if fresh {
                read(output);
            }
        }
        Ok(())
    }

    fn check(&mut self, round: u64) -> Result<u64> {
        let turn = self.turn(round);
        let (input, output) = self.buffers.both_mut()?;
        K::check(&turn, input, output)
    }
}

/// Reads something of every cache line.
fn read<T: Number>(values: &[T]) {
    for value in values.iter().step_by(LINE_BYTES / size_of::<T>()) {
        black_box(*value);
    }
}
