//! Frames: order, sizes, completion, over every transport.

mod frame_support;
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use comm_api::{ErrorKind, Frame, FrameOptions, FrameRef, Work};
use frame_support::{check, destinations, frame, pattern, receive, tensor};
use support::{on_every_transport, with_ranks};

/// From nothing through one line, one step and several steps to messages of their own; the last
/// ones are offered or direct where the edge has that.
const SEGMENTS: [&[usize]; 11] = [
    &[],
    &[0],
    &[16],
    &[24],
    &[25],
    &[64],
    &[4000; 12],
    &[65_536, 65_537],
    &[1; 300],
    &[200_000, 0, 700_000, 5],
    &[3, 5_000_000, 9],
];

fn frames_of_every_size_arrive_in_order_and_whole() {
    with_ranks(2, |comm| {
        for blocking in [true, false] {
            for (index, sizes) in SEGMENTS.into_iter().enumerate() {
                for header_bytes in [0, 8, 100, 70_000] {
                    let sent = frame(index, header_bytes, sizes);
                    let options = FrameOptions::new();
                    if comm.rank() == 0 {
                        if blocking {
                            comm.send_frame_blocking(1, sent.as_ref(), &options)
                                .unwrap();
                        } else {
                            comm.send_frame(1, sent, &options).unwrap().wait().unwrap();
                        }
                    } else if blocking {
                        let got = comm.recv_frame_blocking(0, destinations, &options).unwrap();
                        check(&got, &sent);
                    } else {
                        check(&receive(comm, 0), &sent);
                    }
                }
            }
        }
    })
    .unwrap();
}

fn receives_that_are_posted_first_on_both_sides_get_the_frames() {
    with_ranks(2, |comm| {
        let peer = 1 - comm.rank();
        let options = FrameOptions::new();
        for turn in 0..50 {
            let receives: Vec<_> = (0..4)
                .map(|_| comm.recv_frame(peer, destinations, &options).unwrap())
                .collect();
            let sends: Vec<_> = (0..4)
                .map(|index| {
                    let sent = frame(turn * 4 + index, 8, &[index * 40_000]);
                    comm.send_frame(peer, sent, &options).unwrap()
                })
                .collect();
            for (index, receive) in receives.iter().enumerate() {
                let got = receive.take().unwrap();
                check(&got, &frame(turn * 4 + index, 8, &[index * 40_000]));
            }
            for send in sends {
                send.wait().unwrap();
            }
        }
    })
    .unwrap();
}

fn a_hundred_interleaved_frames_in_opposite_post_orders_keep_their_order() {
    with_ranks(2, |comm| {
        let peer = 1 - comm.rank();
        let options = FrameOptions::new();
        let size = |index: usize| [0, 30, 500, 90_000, 600_000][index % 5];
        let sent =
            |rank: u32, index: usize| frame(index + 1000 * rank as usize, 20, &[size(index)]);
        let mut sends: Vec<Work<()>> = Vec::new();
        let mut receives = Vec::new();
        for index in 0..100 {
            let send = |sends: &mut Vec<_>| {
                let frame = sent(comm.rank(), index);
                sends.push(comm.send_frame(peer, frame, &options).unwrap());
            };
            if comm.rank() == 0 {
                send(&mut sends);
            }
            receives.push(comm.recv_frame(peer, destinations, &options).unwrap());
            if comm.rank() == 1 {
                send(&mut sends);
            }
        }
        // Rank 1 looks from the last one to the first.
        let mut order: Vec<_> = (0..100).collect();
        if comm.rank() == 1 {
            order.reverse();
        }
        for index in order {
            if index % 3 == 0 {
                sends[index].wait().unwrap();
            }
            receives[index].wait().unwrap();
            receives[index].wait().unwrap();
            check(&receives[index].take().unwrap(), &sent(peer, index));
            sends[index].wait().unwrap();
        }
    })
    .unwrap();
}

fn blocking_and_asynchronous_calls_share_one_order() {
    with_ranks(2, |comm| {
        let options = FrameOptions::new();
        for turn in 0..60 {
            let index = |place: usize| turn * 3 + place;
            if comm.rank() == 0 {
                let first = comm
                    .send_frame(1, frame(index(0), 4, &[100]), &options)
                    .unwrap();
                let second = frame(index(1), 4, &[100]);
                comm.send_frame_blocking(1, second.as_ref(), &options)
                    .unwrap();
                // Frames are received in order.
                assert!(first.is_done());
                let third = comm
                    .send_frame(1, frame(index(2), 4, &[100]), &options)
                    .unwrap();
                third.wait().unwrap();
            } else {
                let first = comm.recv_frame(0, destinations, &options).unwrap();
                let second = comm.recv_frame_blocking(0, destinations, &options).unwrap();
                check(&second, &frame(index(1), 4, &[100]));
                check(&first.take().unwrap(), &frame(index(0), 4, &[100]));
                let third = comm.recv_frame_blocking(0, destinations, &options).unwrap();
                check(&third, &frame(index(2), 4, &[100]));
            }
        }
    })
    .unwrap();
}

fn handles_that_are_dropped_go_their_way() {
    with_ranks(2, |comm| {
        let peer = 1 - comm.rank();
        let options = FrameOptions::new();
        let received = Arc::new(AtomicUsize::new(0));
        for index in 0..100 {
            let sent = frame(index, 4, &[1000 * index]);
            comm.send_frame(peer, sent, &options).unwrap().detach();
            let count = Arc::clone(&received);
            let receive = comm.recv_frame(peer, destinations, &options).unwrap();
            receive
                .then(move |got| {
                    check(got.as_ref().unwrap(), &frame(index, 4, &[1000 * index]));
                    count.fetch_add(1, Ordering::Relaxed);
                })
                .detach();
        }
        let last = frame(100, 0, &[]);
        comm.send_frame(peer, last, &options).unwrap().detach();
        receive(comm, peer);
        assert_eq!(received.load(Ordering::Relaxed), 100);
        comm.barrier().unwrap();
    })
    .unwrap();
}

fn a_send_is_done_when_the_frame_was_received_and_not_before() {
    with_ranks(2, |comm| {
        let options = FrameOptions::new();
        if comm.rank() == 0 {
            let send = comm.send_frame(1, frame(0, 4, &[64]), &options).unwrap();
            // The receiver waits for this message before it receives the frame.
            assert!(
                !send
                    .wait_timeout(Duration::from_millis(30))
                    .unwrap()
                    .is_done()
            );
            comm.send(&[1_u8], 1).unwrap();
            send.wait().unwrap();
        } else {
            comm.recv(&mut [0_u8], 0).unwrap();
            receive(comm, 0);
        }
    })
    .unwrap();
}

fn an_eager_send_is_done_before_the_receiver_comes() {
    with_ranks(2, |comm| {
        let eager = FrameOptions::new().eager(true);
        for turn in 0..5 {
            if comm.rank() == 0 {
                let sent = frame(turn, 4, &[64]);
                if turn % 2 == 0 {
                    comm.send_frame_blocking(1, sent.as_ref(), &eager).unwrap();
                } else {
                    comm.send_frame(1, sent, &eager).unwrap().wait().unwrap();
                }
                comm.send(&[1_u8], 1).unwrap();
            } else {
                comm.recv(&mut [0_u8], 0).unwrap();
                check(&receive(comm, 0), &frame(turn, 4, &[64]));
            }
        }
        // Many without any acknowledgement being read in between.
        for index in 0..200 {
            if comm.rank() == 0 {
                let sent = frame(index, 4, &[64]);
                comm.send_frame_blocking(1, sent.as_ref(), &eager).unwrap();
            } else {
                check(&receive(comm, 0), &frame(index, 4, &[64]));
            }
        }
        if comm.rank() == 0 {
            let last = frame(7, 4, &[64]);
            comm.send_frame_blocking(1, last.as_ref(), &FrameOptions::new())
                .unwrap();
        } else {
            receive(comm, 0);
        }
    })
    .unwrap();
}

fn frames_messages_and_collectives_do_not_wait_for_each_other() {
    with_ranks(2, |comm| {
        let peer = 1 - comm.rank();
        let options = FrameOptions::new();
        // Receives that nothing meets for now.
        let frame_receive = comm.recv_frame(peer, destinations, &options).unwrap();
        let message_receive = comm
            .recv_async(
                comm_api::TensorMut::from_vec(vec![0_u8], &[1]).unwrap(),
                peer,
            )
            .unwrap();
        comm.barrier().unwrap();
        comm.send(&[5_u8], peer).unwrap();
        assert_eq!(
            message_receive.take().unwrap().as_slice::<u8>().unwrap(),
            [5]
        );
        comm.barrier().unwrap();
        let sent = frame(1, 4, &[10]);
        comm.send_frame(peer, sent, &options).unwrap().detach();
        check(&frame_receive.take().unwrap(), &frame(1, 4, &[10]));
        comm.barrier().unwrap();
    })
    .unwrap();
}

fn a_frame_to_oneself_arrives() {
    with_ranks(1, |comm| {
        let options = FrameOptions::new();
        for sizes in [&[10][..], &[3_000_000]] {
            let got = comm.recv_frame(0, destinations, &options).unwrap();
            let sent = frame(3, 9, sizes);
            comm.send_frame_blocking(0, sent.as_ref(), &options)
                .unwrap();
            check(&got.take().unwrap(), &sent);
        }
    })
    .unwrap();
}

fn a_continuation_may_send_but_not_wait_for_what_comes_after_it() {
    with_ranks(2, |comm| {
        let options = FrameOptions::new();
        if comm.rank() == 0 {
            let own = comm.clone();
            let first = comm.send_frame(1, frame(0, 1, &[1]), &options).unwrap();
            let chained = first.then(move |sent| {
                sent.as_ref().unwrap();
                let second = own.send_frame(1, frame(1, 1, &[1]), &options).unwrap();
                let third = frame(2, 1, &[1]);
                let errors = [
                    second.wait().unwrap_err(),
                    own.send_frame_blocking(1, third.as_ref(), &options)
                        .unwrap_err(),
                ];
                (second, errors.map(|error| error.kind()))
            });
            comm.send(&[1_u8], 1).unwrap();
            let (second, kinds) = chained.take().unwrap();
            assert_eq!(kinds, [ErrorKind::InvalidArgument; 2]);
            second.wait().unwrap();
        } else {
            // So that the continuation is there before the frame is received.
            comm.recv(&mut [0_u8], 0).unwrap();
            check(&receive(comm, 0), &frame(0, 1, &[1]));
            check(&receive(comm, 0), &frame(1, 1, &[1]));
        }
    })
    .unwrap();
}

fn several_threads_submit_to_one_lane() {
    const THREADS: usize = 4;
    const FRAMES: usize = 50;
    with_ranks(2, |comm| {
        let options = FrameOptions::new();
        if comm.rank() == 0 {
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let comm = comm.clone();
                    scope.spawn(move || {
                        for index in 0..FRAMES {
                            let header = [thread as u8, index as u8];
                            let segments = [tensor(&pattern(thread, index * 3000))];
                            let sent = FrameRef {
                                tag: 1,
                                header: &header,
                                segments: &segments,
                            };
                            if index % 2 == 0 {
                                comm.send_frame_blocking(1, sent, &options).unwrap();
                            } else {
                                let sent = Frame {
                                    tag: 1,
                                    header: header.to_vec().into(),
                                    segments: segments.to_vec(),
                                };
                                comm.send_frame(1, sent, &options).unwrap().detach();
                            }
                        }
                    });
                }
            });
        } else {
            let counts: [AtomicUsize; THREADS] = Default::default();
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        for _ in 0..FRAMES {
                            let got = comm.recv_frame_blocking(0, destinations, &options).unwrap();
                            let [thread, index] = [0, 1].map(|at| usize::from(got.header[at]));
                            counts[thread].fetch_add(1, Ordering::Relaxed);
                            let bytes = got.segments[0].as_bytes().unwrap();
                            assert!(bytes == pattern(thread, index * 3000));
                        }
                    });
                }
            });
            for count in counts {
                assert_eq!(count.into_inner(), FRAMES);
            }
        }
    })
    .unwrap();
}

fn what_cannot_be_sent_is_refused_at_the_call() {
    with_ranks(2, |comm| {
        let options = FrameOptions::new();
        let kind = |frame: Frame| comm.send_frame(0, frame, &options).unwrap_err().kind();
        let transposed = comm_api::Tensor::from_vec(vec![0_u8; 6], &[2, 3])
            .and_then(|tensor| tensor.permute(&[1, 0]))
            .unwrap();
        assert_eq!(
            kind(Frame {
                segments: vec![transposed],
                ..Frame::default()
            }),
            ErrorKind::InvalidArgument
        );
        assert_eq!(
            kind(frame(0, (16 << 20) + 1, &[])),
            ErrorKind::InvalidArgument
        );
        let far = comm.send_frame(7, Frame::default(), &options).unwrap_err();
        assert_eq!(far.kind(), ErrorKind::InvalidArgument);
        // Nothing was sent: the lane is as new.
        let peer = 1 - comm.rank();
        comm.send_frame(peer, frame(1, 1, &[1]), &options)
            .unwrap()
            .detach();
        check(&receive(comm, peer), &frame(1, 1, &[1]));
        comm.barrier().unwrap();
    })
    .unwrap();
}

on_every_transport!(
    frames_of_every_size_arrive_in_order_and_whole,
    receives_that_are_posted_first_on_both_sides_get_the_frames,
    a_hundred_interleaved_frames_in_opposite_post_orders_keep_their_order,
    blocking_and_asynchronous_calls_share_one_order,
    handles_that_are_dropped_go_their_way,
    a_send_is_done_when_the_frame_was_received_and_not_before,
    an_eager_send_is_done_before_the_receiver_comes,
    frames_messages_and_collectives_do_not_wait_for_each_other,
    a_frame_to_oneself_arrives,
    a_continuation_may_send_but_not_wait_for_what_comes_after_it,
    several_threads_submit_to_one_lane,
    what_cannot_be_sent_is_refused_at_the_call,
);
