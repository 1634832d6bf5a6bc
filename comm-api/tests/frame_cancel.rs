//! Frames: cancelling, back-pressure, and when memory is given back.

mod frame_support;
mod support;

use std::sync::Arc;
use std::time::Duration;

use comm_api::{ErrorKind, FrameOptions};
use frame_support::{check, destinations, frame, receive};
use support::{init_all_with, on_every_rank, on_every_transport, with_ranks};

fn a_cancelled_receive_keeps_its_place_and_its_sender_is_told() {
    with_ranks(2, |comm| {
        let options = FrameOptions::new();
        for size in [10, 3_000_000] {
            if comm.rank() == 1 {
                let first = comm.recv_frame(0, destinations, &options).unwrap();
                let second = comm.recv_frame(0, destinations, &options).unwrap();
                let third = comm.recv_frame(0, destinations, &options).unwrap();
                assert!(second.cancel());
                assert!(!second.cancel());
                assert_eq!(second.wait().unwrap_err().kind(), ErrorKind::Cancelled);
                comm.barrier().unwrap();
                check(&first.take().unwrap(), &frame(0, 4, &[size]));
                check(&third.take().unwrap(), &frame(2, 4, &[size]));
                // Too late.
                assert!(!first.cancel());
            } else {
                comm.barrier().unwrap();
                let sends: Vec<_> = (0..3)
                    .map(|index| {
                        comm.send_frame(1, frame(index, 4, &[size]), &options)
                            .unwrap()
                    })
                    .collect();
                sends[0].wait().unwrap();
                let error = sends[1].wait().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::CancelledByPeer, "{error}");
                sends[2].wait().unwrap();
            }
            comm.barrier().unwrap();
        }
        comm.barrier().unwrap();
    })
    .unwrap();
}

fn a_cancelled_send_keeps_its_place_and_its_receiver_is_told() {
    with_ranks(2, |comm| {
        let options = FrameOptions::new();
        if comm.rank() == 0 {
            // Larger than what the edge holds: those behind it cannot begin.
            let first = comm
                .send_frame(1, frame(0, 4, &[30_000_000]), &options)
                .unwrap();
            let second = comm.send_frame(1, frame(1, 4, &[10]), &options).unwrap();
            let third = comm.send_frame(1, frame(2, 4, &[10]), &options).unwrap();
            assert!(second.cancel());
            assert_eq!(second.wait().unwrap_err().kind(), ErrorKind::Cancelled);
            comm.barrier().unwrap();
            first.wait().unwrap();
            third.wait().unwrap();
            assert!(!third.cancel());
        } else {
            comm.barrier().unwrap();
            check(&receive(comm, 0), &frame(0, 4, &[30_000_000]));
            let second = comm.recv_frame_blocking(0, destinations, &options);
            assert_eq!(second.unwrap_err().kind(), ErrorKind::CancelledByPeer);
            check(&receive(comm, 0), &frame(2, 4, &[10]));
        }
        comm.barrier().unwrap();
    })
    .unwrap();
}

fn a_cancelled_send_that_meets_a_cancelled_receive_is_nothing() {
    with_ranks(2, |comm| {
        let options = FrameOptions::new();
        if comm.rank() == 0 {
            let first = comm
                .send_frame(1, frame(0, 4, &[30_000_000]), &options)
                .unwrap();
            let second = comm.send_frame(1, frame(1, 4, &[10]), &options).unwrap();
            let third = comm.send_frame(1, frame(2, 4, &[10]), &options).unwrap();
            assert!(second.cancel());
            comm.barrier().unwrap();
            first.wait().unwrap();
            third.wait().unwrap();
        } else {
            let first = comm.recv_frame(0, destinations, &options).unwrap();
            let second = comm.recv_frame(0, destinations, &options).unwrap();
            let third = comm.recv_frame(0, destinations, &options).unwrap();
            assert!(second.cancel());
            comm.barrier().unwrap();
            check(&first.take().unwrap(), &frame(0, 4, &[30_000_000]));
            check(&third.take().unwrap(), &frame(2, 4, &[10]));
        }
    })
    .unwrap();
}

fn a_deadline_behind_a_cancelled_receive_counts() {
    with_ranks(2, |comm| {
        let short = FrameOptions::new().timeout(Duration::from_millis(200));
        if comm.rank() == 1 {
            let first = comm
                .recv_frame(0, destinations, &FrameOptions::new())
                .unwrap();
            assert!(first.cancel());
            let second = comm.recv_frame(0, destinations, &short).unwrap();
            assert_eq!(second.wait().unwrap_err().kind(), ErrorKind::Timeout);
        }
        comm.barrier().unwrap();
    })
    .unwrap();
}

fn the_window_holds_back_what_is_not_acknowledged() {
    let comms = init_all_with(2, |builder| builder.frame_window_bytes(100_000)).unwrap();
    on_every_rank(comms, |comm| {
        let eager = FrameOptions::new().eager(true);
        if comm.rank() == 0 {
            let first = comm.send_frame(1, frame(0, 1, &[60_000]), &eager).unwrap();
            let second = comm.send_frame(1, frame(1, 1, &[60_000]), &eager).unwrap();
            first.wait().unwrap();
            assert!(
                !second
                    .wait_timeout(Duration::from_millis(50))
                    .unwrap()
                    .is_done()
            );
            comm.send(&[1_u8], 1).unwrap();
            second.wait().unwrap();
            // A frame that is larger than the window goes alone.
            comm.send_frame(1, frame(2, 1, &[300_000]), &eager)
                .unwrap()
                .wait()
                .unwrap();
        } else {
            comm.recv(&mut [0_u8], 0).unwrap();
            for (index, size) in [60_000, 60_000, 300_000].into_iter().enumerate() {
                check(&receive(comm, 0), &frame(index, 1, &[size]));
            }
        }
    });
}

fn memory_is_given_back_when_the_send_is_done() {
    with_ranks(2, |comm| {
        let options = FrameOptions::new();
        for size in [10, 3_000_000] {
            if comm.rank() == 0 {
                let sent = frame(0, 1, &[size]);
                let storage = Arc::clone(sent.segments[0].storage());
                let send = comm.send_frame(1, sent, &options).unwrap();
                send.wait().unwrap();
                // The handle is still there.
                assert_eq!(Arc::strong_count(&storage), 1);
                drop(send);
            } else {
                receive(comm, 0);
            }
        }
    })
    .unwrap();
}

on_every_transport!(
    a_cancelled_receive_keeps_its_place_and_its_sender_is_told,
    a_cancelled_send_keeps_its_place_and_its_receiver_is_told,
    a_cancelled_send_that_meets_a_cancelled_receive_is_nothing,
    a_deadline_behind_a_cancelled_receive_counts,
    the_window_holds_back_what_is_not_acknowledged,
    memory_is_given_back_when_the_send_is_done,
);
