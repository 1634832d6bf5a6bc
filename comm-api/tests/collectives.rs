//! Collectives of 1 to 9 ranks against values computed here.

mod support;

use comm_api::{
    Algorithm, Communicator, Element, ErrorKind, ReduceOp, Tensor, TensorMut, bf16, f16,
};
use support::{on_every_rank, on_every_transport, with_ranks};

/// Element `index` of rank `rank`: small whole numbers, exact in every type.
fn value(rank: usize, index: usize) -> usize {
    (rank * 3 + index * 7) % 5 + 1
}

/// What the ranks' values reduce to, for operators with exact results.
fn expected(ranks: usize, index: usize, op: ReduceOp) -> usize {
    let values = (0..ranks).map(|rank| value(rank, index));
    match op {
        ReduceOp::Sum => values.sum(),
        ReduceOp::Prod => values.product(),
        ReduceOp::Min => values.min().unwrap(),
        ReduceOp::Max => values.max().unwrap(),
        other => panic!("no exact expectation for {other}"),
    }
}

/// A conversion from small whole numbers.
trait FromSmall: Element + PartialEq {
    fn from_small(value: usize) -> Self;
}

macro_rules! from_small {
    ($($type:ty: $convert:expr),* $(,)?) => {$(
        impl FromSmall for $type {
            fn from_small(value: usize) -> Self {
                $convert(value)
            }
        }
    )*};
}

from_small! {
    // Products of nine ranks exceed a byte: integers wrap.
    i8: |value| value as i8, u8: |value| value as u8, i32: |value| value as i32,
    u32: |value| value as u32, i64: |value| value as i64, u64: |value| value as u64,
    f32: |value| value as f32, f64: |value| value as f64,
    f16: |value| f16::from_f32(value as f32), bf16: |value| bf16::from_f32(value as f32),
}

fn check_all_reduce<T: FromSmall>(comm: &Communicator, count: usize, op: ReduceOp) {
    let (rank, ranks) = (comm.rank() as usize, comm.world_size() as usize);
    let input: Vec<T> = (0..count)
        .map(|index| T::from_small(value(rank, index)))
        .collect();
    let expected: Vec<T> = (0..count)
        .map(|index| T::from_small(expected(ranks, index, op)))
        .collect();
    let mut output = vec![T::default(); count];
    comm.all_reduce_into(&input, &mut output, op).unwrap();
    assert!(
        output == expected,
        "{} {op} of {count} {} out of place",
        ranks,
        T::DTYPE
    );
    let mut buffer = input;
    comm.all_reduce(&mut buffer, op).unwrap();
    assert!(
        buffer == expected,
        "{} {op} of {count} {} in place",
        ranks,
        T::DTYPE
    );
}

const COUNTS: [usize; 8] = [0, 1, 3, 7, 64, 1000, 4099, 100_003];

fn all_reduce_is_right_for_every_type_operator_count_and_world_size() {
    for ranks in [1, 2, 3, 4, 5, 9] {
        with_ranks(ranks, move |comm| {
            // A seeded cover: each type meets every operator and every count, not all triples.
            for (turn, count) in COUNTS.into_iter().enumerate() {
                let ops = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max];
                let op = |type_index: usize| ops[(turn + type_index) % ops.len()];
                check_all_reduce::<i8>(comm, count, op(0));
                check_all_reduce::<u8>(comm, count, op(1));
                check_all_reduce::<i32>(comm, count, op(2));
                check_all_reduce::<u32>(comm, count, op(3));
                check_all_reduce::<i64>(comm, count, op(0));
                check_all_reduce::<u64>(comm, count, op(1));
                check_all_reduce::<f32>(comm, count, op(2));
                check_all_reduce::<f64>(comm, count, op(3));
                // Sums and products of more than two ranks are not exact in 8 mantissa bits.
                let narrow = if turn % 2 == 0 {
                    ReduceOp::Min
                } else {
                    ReduceOp::Max
                };
                check_all_reduce::<f16>(comm, count, narrow);
                check_all_reduce::<bf16>(comm, count, narrow);
            }
        })
        .unwrap();
    }
}

fn both_algorithms_give_the_same_result_on_several_channels() {
    for algorithm in [Algorithm::OneShot, Algorithm::Ring] {
        let comms = support::init_all_with(4, |builder| {
            builder
                .algorithms(vec![algorithm])
                .channels(3)
                .step_bytes(4096)
        })
        .unwrap();
        on_every_rank(comms, |comm| {
            for count in COUNTS {
                check_all_reduce::<i32>(comm, count, ReduceOp::Sum);
                check_all_reduce::<f64>(comm, count, ReduceOp::Max);
            }
        });
    }
}

fn an_average_is_the_sum_divided_once_and_integers_truncate() {
    with_ranks(3, |comm| {
        let rank = comm.rank() as i32;
        for count in [1, 1000, 50_000] {
            let mut integers = vec![-(rank + 1); count];
            comm.all_reduce(&mut integers, ReduceOp::Avg).unwrap();
            // -(1 + 2 + 3) / 3
            assert!(integers.iter().all(|value| *value == -2));
            let mut truncated = vec![if rank == 0 { -5 } else { 0 }; count];
            comm.all_reduce(&mut truncated, ReduceOp::Avg).unwrap();
            assert!(truncated.iter().all(|value| *value == -1));
            let mut floats = vec![rank as f32; count];
            comm.all_reduce(&mut floats, ReduceOp::Avg).unwrap();
            assert!(floats.iter().all(|value| *value == 1.0));
        }
    })
    .unwrap();
}

fn broadcast_gives_everybody_the_roots_buffer() {
    for ranks in [1, 2, 3, 5] {
        with_ranks(ranks, move |comm| {
            for root in 0..ranks {
                for count in COUNTS {
                    let expected: Vec<u32> = (0..count as u32).map(|n| n ^ root).collect();
                    let mut buffer = if comm.rank() == root {
                        expected.clone()
                    } else {
                        vec![0; count]
                    };
                    comm.broadcast(&mut buffer, root).unwrap();
                    assert!(
                        buffer == expected,
                        "{count} elements from {root} of {ranks}"
                    );
                    let mut output = vec![0; count];
                    let input: &[u32] = if comm.rank() == root { &expected } else { &[] };
                    comm.broadcast_into(input, &mut output, root).unwrap();
                    assert!(
                        output == expected,
                        "{count} elements from {root} of {ranks}"
                    );
                }
            }
        })
        .unwrap();
    }
}

fn nobody_leaves_a_barrier_before_everybody_came() {
    use std::sync::atomic::{AtomicU32, Ordering};
    static CAME: AtomicU32 = AtomicU32::new(0);
    with_ranks(5, |comm| {
        for round in 1..=50 {
            CAME.fetch_add(1, Ordering::SeqCst);
            comm.barrier().unwrap();
            assert!(CAME.load(Ordering::SeqCst) >= round * 5);
            comm.barrier().unwrap();
        }
    })
    .unwrap();
}

fn asynchronous_collectives_run_in_submission_order_also_if_handles_are_dropped() {
    with_ranks(3, |comm| {
        let mut works = Vec::new();
        for turn in 0..40_i64 {
            let tensor =
                TensorMut::from_vec(vec![turn + i64::from(comm.rank()); 100], &[100]).unwrap();
            let work = comm.all_reduce_async(tensor, ReduceOp::Sum).unwrap();
            if turn % 4 == 0 {
                work.detach()
            } else {
                works.push((turn, work))
            }
        }
        comm.barrier().unwrap();
        for (turn, work) in works {
            assert!(
                work.is_done(),
                "a barrier runs behind what was submitted before it"
            );
            let tensor = work.take().unwrap();
            assert!(
                tensor
                    .as_slice::<i64>()
                    .unwrap()
                    .iter()
                    .all(|sum| *sum == 3 * turn + 3)
            );
        }
        let tensor = TensorMut::from_vec(vec![comm.rank(); 10], &[10]).unwrap();
        let tensor = comm.broadcast_async(tensor, 2).unwrap().take().unwrap();
        assert_eq!(tensor.as_slice::<u32>().unwrap(), [2; 10]);
    })
    .unwrap();
}

fn arguments_that_make_no_sense_are_refused_and_harm_nothing() {
    with_ranks(2, |comm| {
        let error = comm.broadcast(&mut [0_u8], 2).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let error = comm
            .all_reduce_into(&[0_u8; 2], &mut [0; 3], ReduceOp::Sum)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let error = comm.send(&[1_u8], 9).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let tensor = Tensor::zeros(comm_api::DType::F32, &[4, 4]).unwrap();
        let strided = tensor.permute(&[1, 0]).unwrap();
        let error = comm.send_async(&strided, 1).unwrap_err();
        assert!(error.to_string().contains("contiguous"), "{error}");
        let bools = TensorMut::zeros(comm_api::DType::Bool, &[4]).unwrap();
        let error = comm.all_reduce_async(bools, ReduceOp::Max).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let mut buffer = [1_i32; 5];
        comm.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
        assert_eq!(buffer, [2; 5]);
    })
    .unwrap();
}

on_every_transport! {
    all_reduce_is_right_for_every_type_operator_count_and_world_size,
    both_algorithms_give_the_same_result_on_several_channels,
    an_average_is_the_sum_divided_once_and_integers_truncate,
    broadcast_gives_everybody_the_roots_buffer,
    nobody_leaves_a_barrier_before_everybody_came,
    asynchronous_collectives_run_in_submission_order_also_if_handles_are_dropped,
    arguments_that_make_no_sense_are_refused_and_harm_nothing,
}
