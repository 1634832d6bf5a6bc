//! Frames: the end of one direction with its cause, while all else goes on.

mod frame_support;
mod support;

use std::thread;
use std::time::Duration;

use comm_api::{
    Communicator, Error, ErrorKind, FrameHead, FrameOptions, ReduceOp, Result, TensorMut,
};
use frame_support::{check, destinations, frame, receive};
use support::{on_every_rank, on_every_transport, single_threaded, with_ranks};

/// The rest of the communicator works: the other direction, messages, collectives.
fn all_else_works(comm: &Communicator, ended: Direction) {
    let options = FrameOptions::new();
    let peer = 1 - comm.rank();
    comm.barrier().unwrap();
    let sent = frame(5, 3, &[100, 300_000]);
    if comm.rank() == ended.to {
        comm.send_frame(peer, sent, &options)
            .unwrap()
            .wait()
            .unwrap();
    } else {
        check(&receive(comm, peer), &sent);
    }
    comm.send(&[comm.rank()], peer).unwrap();
    let mut got = [9_u32];
    comm.recv(&mut got, peer).unwrap();
    assert_eq!(got, [peer]);
    let mut sum = [1_u32];
    comm.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
    assert_eq!(sum, [2]);
    assert!(comm.failure().is_none());
}

/// One direction between the two ranks.
#[derive(Clone, Copy)]
struct Direction {
    from: u32,
    to: u32,
}

const DOWN: Direction = Direction { from: 0, to: 1 };

/// A later call on the direction is refused, and names the first cause.
fn is_poisoned(comm: &Communicator, direction: Direction, cause: &str) {
    let options = FrameOptions::new();
    let refused = |result: Result<()>| {
        let error = result.unwrap_err();
        assert!(error.to_string().contains(cause), "{error}");
        error.kind()
    };
    let mut kinds = Vec::new();
    for _ in 0..2 {
        kinds.push(if comm.rank() == direction.from {
            let sent = frame(0, 0, &[]);
            refused(comm.send_frame_blocking(direction.to, sent.as_ref(), &options))
        } else {
            let got = comm.recv_frame_blocking(direction.from, destinations, &options);
            refused(got.map(drop))
        });
    }
    assert_eq!(kinds[1], ErrorKind::Poisoned);
}

fn refuse(head: &FrameHead<'_>) -> Result<Vec<TensorMut>> {
    Err(Error::new(
        ErrorKind::Mismatch,
        format!("rank 1 wants f32, but frame {} is bf16", head.sequence),
    ))
}

fn a_refused_frame_ends_one_direction_on_both_ranks_and_nothing_else() {
    with_ranks(2, |comm| {
        let options = FrameOptions::new();
        let errors: Vec<Error> = if comm.rank() == 0 {
            comm.send_frame(1, frame(0, 1, &[1]), &options)
                .unwrap()
                .wait()
                .unwrap();
            // The last ones may come when the news is there already.
            (0..3)
                .filter_map(|index| {
                    let sent = frame(index, 1, &[2_000_000]);
                    Some(comm.send_frame(1, sent, &options).ok()?.wait().unwrap_err())
                })
                .collect()
        } else {
            receive(comm, 0);
            let first = comm.recv_frame(0, refuse, &options).unwrap();
            let second = comm.recv_frame(0, destinations, &options);
            let waited = first.wait().unwrap_err();
            [
                Some(waited),
                second.ok().map(|second| second.wait().unwrap_err()),
            ]
            .into_iter()
            .flatten()
            .collect()
        };
        assert!(!errors.is_empty());
        for error in &errors {
            assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
            for part in [
                "rank 1 wants f32, but frame 1 is bf16",
                "recv_frame from rank 0",
                "sequence=1",
            ] {
                assert!(
                    error.to_string().contains(part),
                    "{part} is missing in: {error}"
                );
            }
        }
        is_poisoned(comm, DOWN, "rank 1 wants f32");
        all_else_works(comm, DOWN);
    })
    .unwrap();
}

fn a_panic_while_a_frame_is_opened_ends_its_direction() {
    with_ranks(2, |comm| {
        let options = FrameOptions::new();
        let error = if comm.rank() == 0 {
            let sent = frame(0, 1, &[1]);
            comm.send_frame_blocking(1, sent.as_ref(), &options)
                .unwrap_err()
        } else {
            let open = |_: &FrameHead<'_>| panic!("the user's mistake");
            comm.recv_frame_blocking(0, open, &options).unwrap_err()
        };
        assert!(error.to_string().contains("the user's mistake"), "{error}");
        is_poisoned(comm, DOWN, "the user's mistake");
        all_else_works(comm, DOWN);
    })
    .unwrap();
}

fn destinations_that_do_not_fit_end_the_direction() {
    for wrong in [&[1_usize][..], &[1, 3], &[]] {
        with_ranks(2, move |comm| {
            let options = FrameOptions::new();
            let error = if comm.rank() == 0 {
                let sent = frame(0, 1, &[1, 2]);
                comm.send_frame_blocking(1, sent.as_ref(), &options)
                    .unwrap_err()
            } else {
                let open = move |_: &FrameHead<'_>| {
                    let zeros = |bytes: &usize| TensorMut::zeros(comm_api::DType::U8, &[*bytes]);
                    wrong.iter().map(zeros).collect()
                };
                comm.recv_frame_blocking(0, open, &options).unwrap_err()
            };
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            all_else_works(comm, DOWN);
        })
        .unwrap();
    }
}

fn what_was_received_before_the_failure_was_received() {
    with_ranks(2, |comm| {
        let options = FrameOptions::new();
        if comm.rank() == 0 {
            let first = comm.send_frame(1, frame(0, 1, &[1]), &options).unwrap();
            let second = comm.send_frame(1, frame(1, 1, &[1]), &options).unwrap();
            assert_eq!(second.wait().unwrap_err().kind(), ErrorKind::Mismatch);
            first.wait().unwrap();
        } else {
            let first = comm.recv_frame(0, destinations, &options).unwrap();
            first.wait().unwrap();
            // So that its acknowledgement overtakes nothing.
            thread::sleep(Duration::from_millis(20));
            let second = comm.recv_frame(0, refuse, &options).unwrap();
            assert!(second.wait().is_err());
            check(&first.take().unwrap(), &frame(0, 1, &[1]));
        }
    })
    .unwrap();
}

fn a_deadline_ends_the_direction_on_both_ranks() {
    for receiver_waits in [true, false] {
        with_ranks(2, move |comm| {
            let short = FrameOptions::new().timeout(Duration::from_millis(200));
            let options = FrameOptions::new();
            let (waiter, name) = if receiver_waits {
                (1, "recv_frame from rank 0")
            } else {
                (0, "send_frame to rank 1")
            };
            if comm.rank() == waiter {
                let error = if receiver_waits {
                    comm.recv_frame_blocking(0, destinations, &short).map(drop)
                } else {
                    comm.send_frame(1, frame(0, 1, &[1]), &short)
                        .unwrap()
                        .wait()
                }
                .unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
                assert!(error.to_string().contains(name), "{error}");
                comm.barrier().unwrap();
            } else {
                comm.barrier().unwrap();
                // Its operation comes after the end, or hears of it while it waits.
                let result = if receiver_waits {
                    let sent = frame(0, 1, &[1]);
                    comm.send_frame_blocking(1, sent.as_ref(), &options)
                } else {
                    let got = comm.recv_frame_blocking(0, destinations, &options);
                    // The frame itself may be there before the news.
                    got.and_then(|_| comm.recv_frame_blocking(0, destinations, &options))
                        .map(drop)
                };
                let error = result.unwrap_err();
                assert!(error.to_string().contains(name), "{error}");
            }
            all_else_works(comm, DOWN);
        })
        .unwrap();
    }
}

fn an_abort_ends_every_frame() {
    with_ranks(2, |comm| {
        let options = FrameOptions::new();
        let peer = 1 - comm.rank();
        let receive = comm.recv_frame(peer, destinations, &options).unwrap();
        let send = comm
            .send_frame(peer, frame(0, 1, &[30_000_000]), &options)
            .unwrap();
        let second = comm.recv_frame(peer, destinations, &options).unwrap();
        receive.wait().unwrap();
        send.wait().unwrap();
        if comm.rank() == 0 {
            // The other one has all of it as well.
            comm.recv(&mut [0_u8], 1).unwrap();
            comm.abort();
        } else {
            comm.send(&[0_u8], 0).unwrap();
        }
        assert_eq!(second.wait().unwrap_err().kind(), ErrorKind::Aborted);
    })
    .unwrap();
}

fn an_abort_elsewhere_ends_the_frames_of_all_ranks() {
    let comms = support::init_all(3).unwrap();
    let errors = on_every_rank(comms, |comm| {
        let options = FrameOptions::new();
        match comm.rank() {
            0 => Some(
                comm.recv_frame_blocking(2, destinations, &options)
                    .unwrap_err(),
            ),
            1 => {
                let sent = frame(0, 1, &[30_000_000]);
                Some(
                    comm.send_frame_blocking(2, sent.as_ref(), &options)
                        .unwrap_err(),
                )
            }
            _ => {
                // While they wait, if they are quick.
                thread::sleep(Duration::from_millis(100));
                comm.abort();
                None
            }
        }
    });
    for error in errors.iter().flatten() {
        assert_eq!(error.kind(), ErrorKind::Aborted, "{error}");
    }
}

fn a_peer_that_leaves_ends_the_frames_with_it() {
    let comms = support::init_all(2).unwrap();
    let errors = on_every_rank(comms, |comm| {
        let options = FrameOptions::new();
        if comm.rank() == 1 {
            return None;
        }
        let receive = comm.recv_frame(1, destinations, &options).unwrap();
        let sent = frame(0, 1, &[10]);
        let send = comm.send_frame_blocking(1, sent.as_ref(), &options);
        Some([send.unwrap_err(), receive.take().unwrap_err()])
    });
    for error in errors.into_iter().flatten().flatten() {
        assert_eq!(error.kind(), ErrorKind::PeerDied, "{error}");
    }
}

fn both_sending_is_an_error_that_names_both() {
    for blocking in [true, false] {
        let errors = single_threaded(move |comm| {
            let options = FrameOptions::new();
            let peer = 1 - comm.rank();
            let sent = frame(0, 1, &[10]);
            if blocking {
                comm.send_frame_blocking(peer, sent.as_ref(), &options)
                    .unwrap_err()
            } else {
                comm.send_frame(peer, sent, &options)
                    .unwrap()
                    .wait()
                    .unwrap_err()
            }
        });
        assert_eq!(errors.len(), 2);
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
            for part in [
                "both sending",
                "rank 0 is in frame #0",
                "rank 1 is in frame #0",
            ] {
                assert!(
                    error.to_string().contains(part),
                    "{part} is missing in: {error}"
                );
            }
        }
    }
}

fn both_receiving_is_an_error_that_names_both() {
    let errors = single_threaded(|comm| {
        let peer = 1 - comm.rank();
        let got = comm.recv_frame_blocking(peer, destinations, &FrameOptions::new());
        got.unwrap_err()
    });
    assert_eq!(errors.len(), 2);
    for error in errors {
        assert!(error.to_string().contains("both receiving"), "{error}");
    }
}

fn sends_that_nobody_waits_for_are_no_deadlock() {
    single_threaded(|comm| {
        let options = FrameOptions::new();
        let peer = 1 - comm.rank();
        let send = comm.send_frame(peer, frame(0, 1, &[10]), &options).unwrap();
        // Longer than a circle must stand to count as one.
        thread::sleep(Duration::from_millis(900));
        check(&receive(comm, peer), &frame(0, 1, &[10]));
        send.wait().unwrap();
    });
}

on_every_transport!(
    a_refused_frame_ends_one_direction_on_both_ranks_and_nothing_else,
    a_panic_while_a_frame_is_opened_ends_its_direction,
    destinations_that_do_not_fit_end_the_direction,
    what_was_received_before_the_failure_was_received,
    a_deadline_ends_the_direction_on_both_ranks,
    an_abort_ends_every_frame,
    an_abort_elsewhere_ends_the_frames_of_all_ranks,
    a_peer_that_leaves_ends_the_frames_with_it,
    both_sending_is_an_error_that_names_both,
    both_receiving_is_an_error_that_names_both,
    sends_that_nobody_waits_for_are_no_deadlock,
);
