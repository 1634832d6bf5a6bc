//! A rank that leaves: what it has submitted before goes its way.

mod support;

use std::thread;
use std::time::Duration;

use comm_api::{
    Communicator, DType, ErrorKind, Frame, FrameHead, FrameOptions, ReduceOp, Tensor, TensorMut,
};
use support::{on_every_rank, on_every_transport};

/// More than an edge holds.
const LARGE: usize = 3 << 20;

/// Longer than a blocked operation takes to tell its peers that it is.
const LATE: Duration = Duration::from_millis(300);

fn numbers(len: usize) -> Vec<u32> {
    (0..len as u32).collect()
}

/// Lets rank 0 do something and leave at once, and rank 1 something later.
fn in_turn(first: fn(&Communicator), later: fn(&Communicator)) {
    let mut comms = support::init_all(2).unwrap();
    let second = comms.pop().unwrap();
    let leaving = comms.pop().unwrap();
    let leaves = thread::spawn(move || {
        first(&leaving);
        drop(leaving);
    });
    on_every_rank(vec![second], move |comm| {
        thread::sleep(LATE);
        later(comm);
    });
    leaves.join().unwrap();
}

fn a_message_that_was_submitted_is_received_after_its_sender_has_left() {
    in_turn(
        |comm| {
            let tensor = Tensor::from_vec(numbers(LARGE), &[LARGE]).unwrap();
            drop(comm.send_async(&tensor, 1).unwrap());
        },
        |comm| {
            let mut received = vec![0_u32; LARGE];
            comm.recv(&mut received, 0).unwrap();
            assert!(received == numbers(LARGE));
        },
    );
}

fn a_frame_that_was_submitted_is_received_after_its_sender_has_left() {
    in_turn(
        |comm| {
            let frame = Frame {
                segments: vec![Tensor::from_vec(numbers(LARGE), &[LARGE]).unwrap()],
                ..Frame::default()
            };
            let options = FrameOptions::new().eager(true);
            drop(comm.send_frame(1, frame, &options).unwrap());
        },
        |comm| {
            let open = |head: &FrameHead<'_>| {
                Ok(vec![TensorMut::zeros(
                    DType::U32,
                    &[head.segment_bytes[0] as usize / 4],
                )?])
            };
            let arrived = comm.recv_frame_blocking(0, open, &FrameOptions::new());
            let received = arrived.unwrap().segments.remove(0);
            assert!(received.as_slice::<u32>().unwrap() == numbers(LARGE));
        },
    );
}

fn a_rank_that_left_before_anything_connected_it_is_named() {
    let mut comms = support::init_all(3).unwrap();
    drop(comms.remove(1));
    let errors = on_every_rank(comms, |comm| {
        let error = comm.all_reduce(&mut [1_u32; 8], ReduceOp::Sum).unwrap_err();
        (comm.failed_rank(), error)
    });
    for (failed, error) in errors {
        assert_eq!(error.kind(), ErrorKind::PeerDied, "{error}");
        assert!(
            error.to_string().contains("left the communicator"),
            "{error}"
        );
        assert_eq!(failed, Some(1), "{error}");
    }
}

on_every_transport! {
    a_rank_that_left_before_anything_connected_it_is_named,
    a_message_that_was_submitted_is_received_after_its_sender_has_left,
    a_frame_that_was_submitted_is_received_after_its_sender_has_left,
}
