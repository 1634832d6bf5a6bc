//! Large collectives over a network with direct transfers: from the user's memory to the user's memory.
#![cfg(feature = "tcp")]

mod calls;
mod support;

use std::time::Duration;

use calls::{Call, DTYPES, FORMS, KINDS, check};
use comm_api::{Communicator, Error, ErrorKind, ReduceOp, TensorMut};
use support::on_every_rank;

/// More than the kernel keeps for a connection of two sockets that nobody receives from.
const VAST_BYTES: usize = 96 << 20;

fn ranks_over_net(ranks: u32) -> Vec<Communicator> {
    support::init_all_with(ranks, |builder| {
        builder.only_transports(vec!["net".to_owned()])
    })
    .unwrap()
}

/// What rank `rank` has for rank `to`.
fn block(rank: u32, to: u32, count: usize) -> Vec<u32> {
    let word = |index: usize| rank << 28 | to << 24 | index as u32 & 0xFF_FFFF;
    (0..count).map(word).collect()
}

fn blocks_for_all(rank: u32, ranks: u32, count: usize) -> Vec<u32> {
    (0..ranks).flat_map(|to| block(rank, to, count)).collect()
}

fn blocks_from_all(rank: u32, ranks: u32, count: usize) -> Vec<u32> {
    (0..ranks)
        .flat_map(|from| block(from, rank, count))
        .collect()
}

#[test]
fn every_collective_is_right_with_blocks_of_several_slices_on_several_channels() {
    for (ranks, channels) in [(2, 1), (2, 2), (3, 1)] {
        let comms = support::init_all_with(ranks, |builder| {
            builder
                .only_transports(vec!["net".to_owned()])
                .channels(channels)
        })
        .unwrap();
        on_every_rank(comms, move |comm| {
            for (index, kind) in KINDS.into_iter().enumerate() {
                for (turn, op) in [(0, ReduceOp::Sum), (1, ReduceOp::Avg)] {
                    check(
                        comm,
                        &Call {
                            kind,
                            dtype: DTYPES[(index + 6 * turn) % DTYPES.len()],
                            op,
                            root: index as u32 % ranks,
                            count: 330_007,
                            form: FORMS[(index + 2 * turn) % FORMS.len()],
                        },
                    );
                }
            }
        });
    }
}

#[test]
fn an_all_to_all_whose_ranks_differ_in_the_form_is_right_and_waits_in_no_circle() {
    // Blocks that replace each other go through slots, the others directly, on the same edges.
    for in_place in [
        [true, true, true],
        [true, false, false],
        [true, false, true],
    ] {
        for ranks in [2, 3] {
            on_every_rank(ranks_over_net(ranks), move |comm| {
                let (rank, count) = (comm.rank(), 1_500_000);
                let mut input = blocks_for_all(rank, ranks, count);
                let expected = blocks_from_all(rank, ranks, count);
                for _ in 0..2 {
                    if in_place[rank as usize] {
                        let mut both = input.clone();
                        comm.all_to_all(&mut both).unwrap();
                        assert!(both == expected, "rank {rank} in place");
                    } else {
                        let mut output = vec![0; input.len()];
                        comm.all_to_all_into(&input, &mut output).unwrap();
                        assert!(output == expected, "rank {rank} out of place");
                    }
                }
                input.clear();
            });
        }
    }
}

#[test]
fn a_blocking_reduction_meets_an_asynchronous_one() {
    on_every_rank(ranks_over_net(2), |comm| {
        for count in [3, 20_000, 70_000, 1_000_003] {
            for blocks in [0, 1] {
                let values = vec![comm.rank() as i32 + 1; count];
                if comm.rank() == blocks {
                    let mut buffer = values;
                    comm.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
                    assert!(buffer.iter().all(|sum| *sum == 3));
                } else {
                    let tensor = TensorMut::from_vec(values, &[count]).unwrap();
                    let work = comm.all_reduce_async(tensor, ReduceOp::Sum).unwrap();
                    let tensor = work.take().unwrap();
                    assert!(
                        tensor
                            .as_slice::<i32>()
                            .unwrap()
                            .iter()
                            .all(|sum| *sum == 3)
                    );
                }
            }
        }
    });
}

#[test]
fn reductions_longer_than_what_the_network_keeps_wait_in_no_circle() {
    for in_place in [[true, true], [true, false]] {
        on_every_rank(ranks_over_net(2), move |comm| {
            let input = vec![1.5_f32 + comm.rank() as f32; VAST_BYTES / 4];
            let sums = if in_place[comm.rank() as usize] {
                let mut buffer = input;
                comm.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
                buffer
            } else {
                let mut output = vec![0.0; input.len()];
                comm.all_reduce_into(&input, &mut output, ReduceOp::Sum)
                    .unwrap();
                output
            };
            assert!(sums.iter().all(|sum| *sum == 4.0));
        });
    }
}

#[test]
fn a_mismatch_is_found_before_a_byte_lands_in_the_output() {
    let outputs = on_every_rank(ranks_over_net(2), |comm| {
        let rank = comm.rank();
        // Of the same number of bytes, so that nothing but the signatures differs.
        let mut output = vec![7_u64; 400_000];
        let error = if rank == 0 {
            let input = vec![1_u64; 200_000];
            comm.all_gather_into(&input, &mut output).unwrap_err()
        } else {
            let input = vec![1_f64; 200_000];
            let mut floats = vec![7_f64; 400_000];
            let error = comm.all_gather_into(&input, &mut floats).unwrap_err();
            output = floats.iter().map(|value| *value as u64).collect();
            error
        };
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
        let text = error.to_string();
        assert!(text.contains("u64") && text.contains("f64"), "{text}");
        output
    });
    for (rank, output) in outputs.iter().enumerate() {
        let peers = &output[(1 - rank) * 200_000..][..200_000];
        assert!(peers.iter().all(|value| *value == 7), "rank {rank}");
    }
}

#[test]
fn lengths_that_differ_are_a_mismatch_also_between_a_direct_and_a_slotted_block() {
    for (one, other) in [(200_000, 200_001), (200_000, 3), (3, 200_000)] {
        let errors = on_every_rank(ranks_over_net(2), move |comm| {
            let count = if comm.rank() == 0 { one } else { other };
            let input = vec![0_u32; count];
            let gathered = comm.all_gather_into(&input, &mut vec![0; 2 * count]);
            gathered.and_then(|()| comm.barrier()).unwrap_err()
        });
        for error in errors {
            let text = error.to_string();
            for count in [one, other] {
                assert!(text.contains(&count.to_string()), "{count}: {text}");
            }
        }
    }
}

/// A large reduction, or a large gather, in which the others do not take part; over edges that a barrier
/// has connected before.
fn alone(comm: &Communicator, reduces: bool) -> Error {
    let input = vec![1_u8; VAST_BYTES];
    if reduces {
        comm.all_reduce_into(&input, &mut vec![0; VAST_BYTES], ReduceOp::Max)
            .unwrap_err()
    } else {
        let mut output = vec![0; 2 * VAST_BYTES];
        comm.all_gather_into(&input, &mut output).unwrap_err()
    }
}

#[test]
fn an_abort_in_the_middle_ends_the_call_on_every_rank() {
    for reduces in [true, false] {
        let errors = on_every_rank(ranks_over_net(2), move |comm| {
            comm.barrier().unwrap();
            if comm.rank() == 0 {
                return alone(comm, reduces);
            }
            // The other rank has filled the network by then, or will be stopped before.
            std::thread::sleep(Duration::from_millis(150));
            comm.abort();
            comm.barrier().unwrap_err()
        });
        for error in errors {
            assert!(error.to_string().contains("abort()"), "{error}");
        }
    }
}

#[test]
fn a_deadline_in_the_middle_ends_the_call() {
    for reduces in [true, false] {
        let comms = support::init_all_with(2, |builder| {
            builder
                .only_transports(vec!["net".to_owned()])
                .operation_timeout(Some(Duration::from_millis(300)))
        })
        .unwrap();
        let errors = on_every_rank(comms, move |comm| {
            comm.barrier().unwrap();
            if comm.rank() == 0 {
                return alone(comm, reduces);
            }
            while comm.failure().is_none() {
                std::thread::sleep(Duration::from_millis(10));
            }
            comm.barrier().unwrap_err()
        });
        assert_eq!(errors[0].kind(), ErrorKind::Timeout, "{}", errors[0]);
    }
}

#[test]
fn a_rank_that_leaves_in_the_middle_ends_the_call() {
    for reduces in [true, false] {
        let comms = ranks_over_net(2);
        let ends: Vec<_> = comms
            .into_iter()
            .map(|comm| {
                std::thread::spawn(move || {
                    comm.barrier().unwrap();
                    if comm.rank() == 0 {
                        return Some(alone(&comm, reduces));
                    }
                    std::thread::sleep(Duration::from_millis(150));
                    drop(comm);
                    None
                })
            })
            .collect();
        let errors: Vec<_> = ends.into_iter().map(|end| end.join().unwrap()).collect();
        let error = errors[0].as_ref().unwrap();
        assert_eq!(error.kind(), ErrorKind::PeerDied, "{error}");
    }
}
