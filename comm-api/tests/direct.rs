//! Direct access between threads of one process: offered messages, all-reduce in place, and that
//! nobody touches a buffer after its call has returned, however that ended.

#![cfg(feature = "p2p")]

mod support;

use std::sync::{Arc, Barrier};
use std::time::Duration;

use comm_api::{
    Algorithm, Communicator, DType, ErrorKind, OperationKind, ReduceOp, Request, Result, Tensor,
    TensorMut,
};
use support::on_every_rank;

/// Larger than all slots of an edge together, so that it is offered.
const LARGE_BYTES: usize = 6_000_001;

/// Written to a buffer as soon as a call has given it back; no message contains it.
const POISON: u8 = 0xee;

fn threads(ranks: u32) -> Result<Vec<Communicator>> {
    comm_api::init_all_with(ranks, |builder| builder.only_transports(["p2p"]))
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|index| (index * 31 + seed * 17 + index / 251) as u8 % 0xe0)
        .collect()
}

/// Steps of a linear congruential generator (Knuth's MMIX constants), for reproducible delays.
fn random(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn threads_of_one_process_take_p2p_and_work_in_place() {
    let comms = comm_api::init_all(3).unwrap();
    on_every_rank(comms, |comm| {
        let request = Request {
            kind: OperationKind::AllReduce,
            dtype: Some(DType::F32),
            op: Some(ReduceOp::Sum),
            root: 0,
            count: 1 << 20,
            in_place: true,
        };
        let plan = comm.plan(&request).unwrap();
        assert_eq!(plan.algorithm(), Algorithm::DirectShared, "{plan}");
        comm.all_reduce(&mut vec![1_f32; 1 << 20], ReduceOp::Sum)
            .unwrap();
        let explanation = comm.explain();
        assert!(!explanation.edges.is_empty());
        assert!(explanation.edges.iter().all(|edge| edge.transport == "p2p"));
    });
}

#[test]
fn messages_around_every_limit_arrive_whole_and_leave_the_senders_buffer_alone() {
    let (slots, slice) = (8 * 65_536, 512 << 10);
    let sizes = [
        slots - 1,
        slots,
        slots + 1,
        2 * slice - 1,
        2 * slice,
        2 * slice + 1,
        9 * slice + 7,
        (17 << 20) + 3,
    ];
    on_every_rank(threads(2).unwrap(), move |comm| {
        for (turn, len) in sizes.into_iter().enumerate() {
            let expected = pattern(turn, len);
            if comm.rank() == 0 {
                let buffer = expected.clone();
                comm.send(&buffer, 1).unwrap();
                assert!(buffer == expected);
                comm.send(&[turn as u32], 1).unwrap();
            } else {
                let mut buffer = vec![0; len];
                comm.recv(&mut buffer, 0).unwrap();
                assert!(buffer == expected, "{len} bytes");
                let mut small = [0_u32];
                comm.recv(&mut small, 0).unwrap();
                assert_eq!(small, [turn as u32]);
            }
        }
    });
}

#[test]
fn two_ranks_may_both_send_first_what_the_slots_hold() {
    // A program that works over shared memory must not hang because its ranks became threads.
    on_every_rank(threads(2).unwrap(), |comm| {
        let peer = 1 - comm.rank();
        let mut buffer = vec![0_u8; 8 * 65_536];
        comm.send(&vec![comm.rank() as u8; buffer.len()], peer)
            .unwrap();
        comm.recv(&mut buffer, peer).unwrap();
        assert!(buffer.iter().all(|byte| *byte == peer as u8));
    });
}

#[test]
fn all_reduce_in_place_on_some_ranks_and_out_of_place_on_others() {
    for ranks in 1..=9 {
        on_every_rank(threads(ranks).unwrap(), move |comm| {
            let rank = comm.rank() as usize;
            for count in [70_000, 100_003, 262_147] {
                let value = |rank: usize, index: usize| ((rank * 3 + index * 7) % 11) as i64;
                let all = |index| (0..ranks as usize).map(move |rank| value(rank, index));
                let input: Vec<i64> = (0..count).map(|index| value(rank, index)).collect();
                for op in [ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Max] {
                    let expected: Vec<i64> = (0..count)
                        .map(|index| match op {
                            ReduceOp::Sum => all(index).sum(),
                            ReduceOp::Avg => all(index).sum::<i64>() / i64::from(ranks),
                            _ => all(index).max().unwrap(),
                        })
                        .collect();
                    let mut output = input.clone();
                    if rank.is_multiple_of(2) {
                        comm.all_reduce(&mut output, op).unwrap();
                    } else {
                        output.fill(-1);
                        comm.all_reduce_into(&input, &mut output, op).unwrap();
                    }
                    assert!(
                        output == expected,
                        "{op} of {count} on rank {rank} of {ranks}"
                    );
                }
            }
        });
    }
}

#[test]
fn all_ranks_get_bitwise_equal_sums_of_floats() {
    let results = on_every_rank(threads(5).unwrap(), |comm| {
        let mut state = u64::from(comm.rank()) + 1;
        let mut buffer: Vec<f32> = (0..100_001)
            .map(|_| random(&mut state) as f32 / 1e6)
            .collect();
        comm.all_reduce(&mut buffer, ReduceOp::Avg).unwrap();
        buffer.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    });
    assert!(results.iter().all(|result| *result == results[0]));
}

#[test]
fn asynchronous_forms_are_offered_by_workers_also_if_the_handle_is_dropped() {
    on_every_rank(threads(2).unwrap(), |comm| {
        let expected = pattern(1, LARGE_BYTES);
        if comm.rank() == 0 {
            let tensor = Tensor::from_slice(&expected, &[LARGE_BYTES]).unwrap();
            comm.send_async(&tensor, 1).unwrap().detach();
            drop(tensor);
        } else {
            let tensor = TensorMut::zeros(DType::U8, &[LARGE_BYTES]).unwrap();
            let tensor = comm.recv_async(tensor, 0).unwrap().take().unwrap();
            assert!(tensor.as_slice::<u8>().unwrap() == expected);
        }
        let tensor = TensorMut::from_vec(vec![1_i32; 1_000_003], &[1_000_003]).unwrap();
        let tensor = comm.all_reduce_async(tensor, ReduceOp::Sum).unwrap();
        let tensor = tensor.take().unwrap();
        assert!(
            tensor
                .as_slice::<i32>()
                .unwrap()
                .iter()
                .all(|sum| *sum == 2)
        );
        comm.barrier().unwrap();
    });
}

#[test]
fn a_message_that_nobody_takes_is_given_back_when_the_communicator_fails() {
    on_every_rank(threads(2).unwrap(), |comm| {
        if comm.rank() == 0 {
            let tensor = Tensor::from_vec(vec![1_u8; LARGE_BYTES], &[LARGE_BYTES]).unwrap();
            let queued = comm.send_async(&tensor, 1).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            comm.abort();
            assert_eq!(queued.take().unwrap_err().kind(), ErrorKind::Aborted);
            let mut memory = tensor.try_into_mut().expect("nobody else holds the memory");
            memory.as_mut_slice::<u8>().unwrap().fill(POISON);
        } else {
            while comm.failure().is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let mut buffer = vec![0_u8; LARGE_BYTES];
            comm.recv(&mut buffer, 0).unwrap_err();
            assert!(!buffer.contains(&POISON));
        }
    });
}

#[test]
fn a_receiver_that_panics_ends_the_senders_call() {
    let mut comms = threads(2).unwrap().into_iter();
    let (first, second) = (comms.next().unwrap(), comms.next().unwrap());
    let sending = std::thread::spawn(move || {
        let mut buffer = pattern(1, LARGE_BYTES);
        let error = first.send(&buffer, 1).unwrap_err();
        buffer.fill(POISON);
        error
    });
    let panicking = std::thread::spawn(move || {
        let second = second;
        // Connects the edge, and takes nothing.
        std::thread::sleep(Duration::from_millis(50));
        drop(second.explain());
        panic!("expected in this test");
    });
    assert!(panicking.join().is_err());
    let error = sending.join().unwrap();
    assert_eq!(error.kind(), ErrorKind::PeerDied, "{error}");
    assert!(error.to_string().contains("rank 1 panicked"), "{error}");
}

#[test]
fn an_abort_in_a_large_message_leaves_both_buffers_alone_from_then_on() {
    let mut seed = 7;
    let mut ended_early = 0;
    for _ in 0..25 {
        let delay = Duration::from_micros(random(&mut seed) % 6000);
        let results = on_every_rank(threads(2).unwrap(), move |comm| {
            let len = 24 << 20;
            // Connects the edge, so that the delay falls into the transfer.
            let mut token = [0_u8];
            if comm.rank() == 0 {
                comm.send(&token, 1).unwrap();
            } else {
                comm.recv(&mut token, 0).unwrap();
            }
            std::thread::scope(|scope| {
                if comm.rank() == 1 {
                    scope.spawn(|| {
                        std::thread::sleep(delay);
                        comm.abort();
                    });
                }
                let expected = pattern(3, len);
                let mut buffer = if comm.rank() == 0 {
                    expected.clone()
                } else {
                    vec![0; len]
                };
                let result = if comm.rank() == 0 {
                    comm.send(&buffer, 1)
                } else {
                    comm.recv(&mut buffer, 0)
                };
                if comm.rank() == 0 {
                    buffer.fill(POISON);
                    return result.is_err();
                }
                match &result {
                    Ok(()) => assert!(buffer == expected),
                    Err(_) => assert!(
                        buffer
                            .iter()
                            .zip(&expected)
                            .all(|(got, sent)| got == sent || *got == 0),
                        "a slice was read after the send had returned"
                    ),
                }
                result.is_err()
            })
        });
        ended_early += usize::from(results.contains(&true));
    }
    println!("{ended_early} of 25 transfers were cut off");
}

#[test]
fn an_abort_in_an_all_reduce_leaves_all_buffers_alone_from_then_on() {
    let mut seed = 11;
    let mut ended_early = 0;
    for turn in 0..25 {
        let ranks = 2 + turn % 4;
        let (aborting, delay) = (
            random(&mut seed) as u32 % ranks,
            Duration::from_micros(random(&mut seed) % 4000),
        );
        let all_here = Arc::new(Barrier::new(ranks as usize));
        let results = on_every_rank(threads(ranks).unwrap(), move |comm| {
            let count = 1 << 20;
            comm.all_reduce(&mut vec![0_u32; 40_000], ReduceOp::Sum)
                .unwrap();
            all_here.wait();
            std::thread::scope(|scope| {
                if comm.rank() == aborting {
                    scope.spawn(|| {
                        std::thread::sleep(delay);
                        comm.abort();
                    });
                }
                let mut input = vec![1_u32; count];
                let mut output = vec![0_u32; count];
                let result = loop {
                    let result = comm.all_reduce_into(&input, &mut output, ReduceOp::Sum);
                    assert!(
                        output.iter().all(|sum| *sum == 0 || *sum == ranks),
                        "an input was read after its rank had returned"
                    );
                    if let Err(error) = result {
                        break error;
                    }
                    assert!(output.iter().all(|sum| *sum == ranks));
                    output.fill(0);
                };
                // From here on both belong to this rank again: poison what peers would read, and
                // look whether peers write.
                input.fill(1_000_000);
                output.fill(77);
                all_here.wait();
                std::thread::sleep(Duration::from_millis(2));
                assert!(
                    output.iter().all(|value| *value == 77),
                    "an output was written after its rank had returned"
                );
                result.kind() == ErrorKind::Aborted
            })
        });
        ended_early += usize::from(results.contains(&true));
    }
    assert!(ended_early > 0, "every turn ends by the abort");
}

#[cfg(all(feature = "shm", target_os = "linux"))]
#[test]
fn a_switch_in_the_environment_turns_the_transport_off_and_is_named() {
    const CHILD: &str = "COMM_TEST_P2P_DISABLED";
    if std::env::var_os(CHILD).is_none() {
        for variable in ["COMM_P2P_DISABLE", "NCCL_P2P_DISABLE"] {
            let name = "a_switch_in_the_environment_turns_the_transport_off_and_is_named";
            let child = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", name, "--nocapture"])
                .envs([(CHILD, variable), (variable, "1")])
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&child.stdout);
            assert!(child.status.success(), "{text}");
            let line = text
                .lines()
                .find(|line| line.contains("transport p2p: unavailable"));
            let line = line.unwrap_or_else(|| panic!("not in: {text}"));
            assert!(line.contains(&format!("{variable}=1 is set")), "{line}");
        }
        return;
    }
    let explanations = on_every_rank(comm_api::init_all(2).unwrap(), |comm| {
        let mut value = vec![1_i32; 100_000];
        comm.all_reduce(&mut value, ReduceOp::Sum).unwrap();
        assert!(value.iter().all(|sum| *sum == 2));
        comm.explain().to_string()
    });
    println!("{}", explanations[0]);
}
