//! Collective calls as values, carried out and checked against results computed here.

use comm_api::{
    Communicator, DType, Element, OperationKind, ReduceOp, Result, Tensor, TensorMut, Work, bf16,
    f16,
};

/// The collectives on data.
pub(crate) const KINDS: [OperationKind; 8] = [
    OperationKind::AllReduce,
    OperationKind::Broadcast,
    OperationKind::Reduce,
    OperationKind::AllGather,
    OperationKind::ReduceScatter,
    OperationKind::AllToAll,
    OperationKind::Gather,
    OperationKind::Scatter,
];

/// The element types that can be reduced.
pub(crate) const DTYPES: [DType; 10] = [
    DType::I8,
    DType::U8,
    DType::I32,
    DType::U32,
    DType::I64,
    DType::U64,
    DType::F16,
    DType::Bf16,
    DType::F32,
    DType::F64,
];

/// How a collective is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    InPlace,
    Into,
    InPlaceAsync,
    IntoAsync,
}

pub(crate) const FORMS: [Form; 4] = [
    Form::InPlace,
    Form::Into,
    Form::InPlaceAsync,
    Form::IntoAsync,
];

/// One collective call, the same on all ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) kind: OperationKind,
    pub(crate) dtype: DType,
    pub(crate) op: ReduceOp,
    pub(crate) root: u32,
    /// Elements of one block.
    pub(crate) count: usize,
    pub(crate) form: Form,
}

/// A conversion from exact numbers.
pub(crate) trait FromExact: Element + PartialEq {
    /// Integers wrap and truncate.
    fn from_exact(value: f64) -> Self;
}

macro_rules! from_exact {
    ($($type:ty: $convert:expr),* $(,)?) => {$(
        impl FromExact for $type {
            fn from_exact(value: f64) -> Self {
                $convert(value)
            }
        }
    )*};
}

from_exact! {
    i8: |value| value as i64 as i8, u8: |value| value as i64 as u8,
    i32: |value| value as i32, u32: |value| value as u32,
    i64: |value| value as i64, u64: |value| value as u64,
    f32: |value| value as f32, f64: |value| value,
    f16: f16::from_f64, bf16: bf16::from_f64,
}

/// Carries a call out on this rank and checks its result.
pub(crate) fn check(comm: &Communicator, call: &Call) {
    match call.dtype {
        DType::I8 => call.check::<i8>(comm),
        DType::U8 => call.check::<u8>(comm),
        DType::I32 => call.check::<i32>(comm),
        DType::U32 => call.check::<u32>(comm),
        DType::I64 => call.check::<i64>(comm),
        DType::U64 => call.check::<u64>(comm),
        DType::F16 => call.check::<f16>(comm),
        DType::Bf16 => call.check::<bf16>(comm),
        DType::F32 => call.check::<f32>(comm),
        DType::F64 => call.check::<f64>(comm),
        other => panic!("no test values for {other}"),
    }
}

/// Whether a collective reduces, so that an operator belongs to it.
pub(crate) fn reduces(kind: OperationKind) -> bool {
    matches!(
        kind,
        OperationKind::AllReduce | OperationKind::Reduce | OperationKind::ReduceScatter
    )
}

impl Call {
    /// Element `index` of the input of `rank`: a small number, such that results of all operators
    /// over nine ranks are exact in every type, or wrap.
    fn value(&self, rank: usize, index: usize) -> f64 {
        let value = match self.op {
            ReduceOp::Prod if reduces(self.kind) => (rank + index) % 2 + 1,
            _ => index % 5 + rank,
        };
        value as f64
    }

    fn reduced(&self, ranks: usize, index: usize) -> f64 {
        let values = (0..ranks).map(|rank| self.value(rank, index));
        match self.op {
            ReduceOp::Sum => values.sum(),
            ReduceOp::Avg => values.sum::<f64>() / ranks as f64,
            ReduceOp::Prod => values.product(),
            ReduceOp::Min => values.fold(f64::INFINITY, f64::min),
            ReduceOp::Max => values.fold(0.0, f64::max),
            other => panic!("no expectation for {other}"),
        }
    }

    /// Lengths of input and output on a rank, in blocks.
    fn blocks(&self, ranks: usize, is_root: bool) -> (usize, usize) {
        match (self.kind, is_root) {
            (OperationKind::AllReduce, _) | (OperationKind::Reduce, true) => (1, 1),
            (OperationKind::Broadcast, true) => (1, 1),
            (OperationKind::Reduce | OperationKind::Gather, false) => (1, 0),
            (OperationKind::Broadcast | OperationKind::Scatter, false) => (0, 1),
            (OperationKind::AllGather, _) | (OperationKind::Gather, true) => (1, ranks),
            (OperationKind::ReduceScatter, _) | (OperationKind::Scatter, true) => (ranks, 1),
            (OperationKind::AllToAll, _) => (ranks, ranks),
            (other, _) => panic!("{other} is no collective on data"),
        }
    }

    fn expected(&self, rank: usize, ranks: usize, index: usize) -> f64 {
        let (root, count) = (self.root as usize, self.count);
        match self.kind {
            OperationKind::AllReduce | OperationKind::Reduce => self.reduced(ranks, index),
            OperationKind::ReduceScatter => self.reduced(ranks, rank * count + index),
            OperationKind::Broadcast => self.value(root, index),
            OperationKind::AllGather | OperationKind::Gather => {
                self.value(index / count, index % count)
            }
            OperationKind::AllToAll => self.value(index / count, rank * count + index % count),
            OperationKind::Scatter => self.value(root, rank * count + index),
            other => panic!("{other} is no collective on data"),
        }
    }

    fn check<T: FromExact>(&self, comm: &Communicator) {
        let (rank, ranks) = (comm.rank() as usize, comm.world_size() as usize);
        let (inputs, outputs) = self.blocks(ranks, rank == self.root as usize);
        let input: Vec<T> = (0..inputs * self.count)
            .map(|index| T::from_exact(self.value(rank, index)))
            .collect();
        let expected: Vec<T> = (0..outputs * self.count)
            .map(|index| T::from_exact(self.expected(rank, ranks, index)))
            .collect();
        let output = match self.form {
            Form::InPlace | Form::InPlaceAsync => self.run_in_place(comm, &input, outputs),
            Form::Into | Form::IntoAsync => self.run_into(comm, &input, outputs).unwrap(),
        };
        assert!(output == expected, "rank {rank} of {ranks} in {self:?}");
    }

    /// The result, taken from where it belongs in the one buffer.
    fn run_in_place<T: FromExact>(
        &self,
        comm: &Communicator,
        input: &[T],
        outputs: usize,
    ) -> Vec<T> {
        let own = comm.rank() as usize * self.count;
        let own = own..own + self.count;
        let untouched = T::from_exact(77.0);
        let inputs = input.len() / self.count.max(1);
        let mut buffer = vec![untouched; inputs.max(outputs).max(1) * self.count];
        if inputs >= outputs {
            buffer[..input.len()].copy_from_slice(input);
        } else if inputs == 1 {
            buffer[own.clone()].copy_from_slice(input);
        }
        let before = buffer.clone();
        if self.form == Form::InPlace {
            self.call_in_place(comm, &mut buffer).unwrap();
        } else {
            let tensor = TensorMut::from_vec(buffer, &[before.len()]).unwrap();
            let work = self.call_in_place_async(comm, tensor).unwrap();
            buffer = work.take().unwrap().as_slice::<T>().unwrap().to_vec();
        }
        if outputs == 0 {
            assert!(
                buffer == before,
                "{self:?} changed a buffer that is only read"
            );
            return Vec::new();
        }
        if inputs > outputs {
            buffer[own].to_vec()
        } else {
            buffer
        }
    }

    fn call_in_place<T: Element>(&self, comm: &Communicator, buffer: &mut [T]) -> Result<()> {
        let (op, root) = (self.op, self.root);
        match self.kind {
            OperationKind::AllReduce => comm.all_reduce(buffer, op),
            OperationKind::Broadcast => comm.broadcast(buffer, root),
            OperationKind::Reduce => comm.reduce(buffer, op, root),
            OperationKind::AllGather => comm.all_gather(buffer),
            OperationKind::ReduceScatter => {
                let own = comm.reduce_scatter(buffer, op)?;
                assert_eq!(own.len(), self.count);
                Ok(())
            }
            OperationKind::AllToAll => comm.all_to_all(buffer),
            OperationKind::Gather => comm.gather(buffer, root),
            _ => {
                let own = comm.scatter(buffer, root)?;
                assert_eq!(own.len(), self.count);
                Ok(())
            }
        }
    }

    fn call_in_place_async(
        &self,
        comm: &Communicator,
        tensor: TensorMut,
    ) -> Result<Work<TensorMut>> {
        let (op, root) = (self.op, self.root);
        match self.kind {
            OperationKind::AllReduce => comm.all_reduce_async(tensor, op),
            OperationKind::Broadcast => comm.broadcast_async(tensor, root),
            OperationKind::Reduce => comm.reduce_async(tensor, op, root),
            OperationKind::AllGather => comm.all_gather_async(tensor),
            OperationKind::ReduceScatter => comm.reduce_scatter_async(tensor, op),
            OperationKind::AllToAll => comm.all_to_all_async(tensor),
            OperationKind::Gather => comm.gather_async(tensor, root),
            _ => comm.scatter_async(tensor, root),
        }
    }

    /// The result in a second buffer.
    fn run_into<T: FromExact>(
        &self,
        comm: &Communicator,
        input: &[T],
        outputs: usize,
    ) -> Result<Vec<T>> {
        let (op, root) = (self.op, self.root);
        let is_root = comm.rank() == root;
        let mut output = vec![T::from_exact(77.0); outputs * self.count];
        // There is no asynchronous broadcast into a second buffer.
        if self.form == Form::IntoAsync && self.kind != OperationKind::Broadcast {
            let tensor = TensorMut::from_vec(output, &[outputs * self.count])?;
            let input = Tensor::from_slice(input, &[input.len()])?;
            let output = self.call_into_async(comm, &input, tensor)?;
            return Ok(match output {
                Some(output) => output.as_slice::<T>()?.to_vec(),
                None => Vec::new(),
            });
        }
        match self.kind {
            OperationKind::AllReduce => comm.all_reduce_into(input, &mut output, op)?,
            OperationKind::Broadcast => comm.broadcast_into(input, &mut output, root)?,
            OperationKind::Reduce => {
                comm.reduce_into(input, is_root.then_some(&mut output[..]), op, root)?;
            }
            OperationKind::AllGather => comm.all_gather_into(input, &mut output)?,
            OperationKind::ReduceScatter => comm.reduce_scatter_into(input, &mut output, op)?,
            OperationKind::AllToAll => comm.all_to_all_into(input, &mut output)?,
            OperationKind::Gather => {
                comm.gather_into(input, is_root.then_some(&mut output[..]), root)?;
            }
            _ => comm.scatter_into(is_root.then_some(input), &mut output, root)?,
        }
        Ok(output)
    }

    fn call_into_async(
        &self,
        comm: &Communicator,
        input: &Tensor,
        output: TensorMut,
    ) -> Result<Option<TensorMut>> {
        let (op, root) = (self.op, self.root);
        let is_root = comm.rank() == root;
        match self.kind {
            OperationKind::AllReduce => comm.all_reduce_into_async(input, output, op)?.take(),
            OperationKind::Reduce => {
                let output = is_root.then_some(output);
                return comm.reduce_into_async(input, output, op, root)?.take();
            }
            OperationKind::AllGather => comm.all_gather_into_async(input, output)?.take(),
            OperationKind::ReduceScatter => {
                comm.reduce_scatter_into_async(input, output, op)?.take()
            }
            OperationKind::AllToAll => comm.all_to_all_into_async(input, output)?.take(),
            OperationKind::Gather => {
                let output = is_root.then_some(output);
                return comm.gather_into_async(input, output, root)?.take();
            }
            _ => {
                let input = is_root.then_some(input);
                comm.scatter_into_async(input, output, root)?.take()
            }
        }
        .map(Some)
    }
}
