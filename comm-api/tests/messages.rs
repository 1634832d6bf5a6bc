//! Messages between two ranks: order, sizes, both directions, asynchronous forms.

mod support;

use comm_api::{ErrorKind, ReduceOp, Tensor, TensorMut};
use support::{on_every_transport, with_ranks};

const SIZES: [usize; 9] = [0, 1, 7, 56, 57, 4096, 65_536, 65_537, 3_000_000];

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|index| (index * 31 + seed * 17 + index / 251) as u8)
        .collect()
}

fn messages_of_every_size_arrive_in_order_and_whole() {
    with_ranks(2, |comm| {
        for turn in 0..3 {
            for (index, len) in SIZES.into_iter().enumerate() {
                let expected = pattern(turn * 100 + index, len);
                if comm.rank() == 0 {
                    comm.send(&expected, 1).unwrap();
                } else {
                    let mut buffer = vec![0; len];
                    comm.recv(&mut buffer, 0).unwrap();
                    assert!(buffer == expected, "{len} bytes");
                }
            }
        }
    })
    .unwrap();
}

fn both_directions_are_independent() {
    with_ranks(2, |comm| {
        let peer = 1 - comm.rank();
        for turn in 0..2000_u64 {
            comm.send(&[turn * 2 + u64::from(comm.rank())], peer)
                .unwrap();
            let mut got = [0_u64];
            comm.recv(&mut got, peer).unwrap();
            assert_eq!(got[0], turn * 2 + u64::from(peer));
        }
    })
    .unwrap();
}

fn a_message_to_oneself_arrives() {
    with_ranks(1, |comm| {
        comm.send(&[7_i32, 8], 0).unwrap();
        let mut got = [0_i32; 2];
        comm.recv(&mut got, 0).unwrap();
        assert_eq!(got, [7, 8]);
        let large = pattern(1, 2_000_000);
        let receive = comm
            .recv_async(
                TensorMut::from_vec(vec![0_u8; large.len()], &[large.len()]).unwrap(),
                0,
            )
            .unwrap();
        comm.send(&large, 0).unwrap();
        assert!(receive.take().unwrap().as_slice::<u8>().unwrap() == large);
    })
    .unwrap();
}

fn asynchronous_and_blocking_messages_share_one_order() {
    with_ranks(2, |comm| {
        if comm.rank() == 0 {
            let mut works = Vec::new();
            for turn in 0..100_i64 {
                if turn % 3 == 0 {
                    comm.send(&[turn; 100], 1).unwrap();
                } else {
                    let tensor = Tensor::from_vec(vec![turn; 100], &[100]).unwrap();
                    works.push(comm.send_async(&tensor, 1).unwrap());
                }
            }
            for work in works {
                work.take().unwrap();
            }
        } else {
            for turn in 0..100_i64 {
                if turn % 2 == 0 {
                    let tensor = TensorMut::from_vec(vec![-1_i64; 100], &[100]).unwrap();
                    let tensor = comm.recv_async(tensor, 0).unwrap().take().unwrap();
                    assert_eq!(tensor.as_slice::<i64>().unwrap(), [turn; 100]);
                } else {
                    let mut buffer = [-1_i64; 100];
                    comm.recv(&mut buffer, 0).unwrap();
                    assert_eq!(buffer, [turn; 100]);
                }
            }
        }
    })
    .unwrap();
}

fn a_message_that_nobody_receives_does_not_hold_up_a_collective() {
    with_ranks(2, |comm| {
        let large = vec![1_u8; 5_000_000];
        let tensor = Tensor::from_slice(&large, &[large.len()]).unwrap();
        let send = (comm.rank() == 0).then(|| comm.send_async(&tensor, 1).unwrap());
        for _ in 0..100 {
            let mut value = [1_i32];
            comm.all_reduce(&mut value, ReduceOp::Sum).unwrap();
            assert_eq!(value, [2]);
        }
        if let Some(send) = send {
            send.take().unwrap();
        } else {
            let mut buffer = vec![0_u8; large.len()];
            comm.recv(&mut buffer, 0).unwrap();
            assert!(buffer == large);
        }
    })
    .unwrap();
}

fn several_threads_may_use_one_communicator() {
    with_ranks(2, |comm| {
        let peer = 1 - comm.rank();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0..500_u32 {
                    comm.send(&[turn], peer).unwrap();
                }
            });
            scope.spawn(|| {
                for turn in 0..500_u32 {
                    let mut got = [0];
                    comm.recv(&mut got, peer).unwrap();
                    assert_eq!(got, [turn]);
                }
            });
            for _ in 0..200 {
                let mut value = [1.5_f32];
                comm.all_reduce(&mut value, ReduceOp::Sum).unwrap();
                assert_eq!(value, [3.0]);
            }
        });
    })
    .unwrap();
}

fn a_difference_in_length_or_type_names_both_sides() {
    for (large, kind) in [(false, "length"), (true, "length"), (false, "type")] {
        let errors = with_ranks(2, move |comm| {
            let count = if large { 10_000 } else { 2 };
            let result = if comm.rank() == 0 {
                comm.send(&vec![1_u32; count], 1)
            } else if kind == "length" {
                comm.recv(&mut vec![0_u32; count + 1], 0)
            } else {
                comm.recv(&mut vec![0_f32; count], 0)
            };
            // Sending completes when the buffer is reusable, so the sender may learn of it later.
            let result = result.and_then(|()| comm.barrier());
            result.unwrap_err()
        })
        .unwrap();
        for error in errors {
            let text = error.to_string();
            assert!(
                matches!(error.kind(), ErrorKind::Mismatch | ErrorKind::Poisoned),
                "{text}"
            );
            assert!(text.contains("rank 0") && text.contains("rank 1"), "{text}");
        }
    }
}

on_every_transport! {
    messages_of_every_size_arrive_in_order_and_whole,
    both_directions_are_independent,
    a_message_to_oneself_arrives,
    asynchronous_and_blocking_messages_share_one_order,
    a_message_that_nobody_receives_does_not_hold_up_a_collective,
    several_threads_may_use_one_communicator,
    a_difference_in_length_or_type_names_both_sides,
}
