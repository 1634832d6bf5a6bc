//! What one end learns of the end of the other one.

use std::thread;
use std::time::{Duration, Instant};

use comm_core::{Error, ErrorKind};

use super::{A_MOMENT, pattern, signature};
use crate::transport::{Connected, Rig, TransportFixture};

/// How long a closing end may take to get its steps out.
const CLOSING_LIMIT: Duration = Duration::from_secs(120);

fn assert_gone(error: &Error) {
    let gone = matches!(error.kind(), ErrorKind::PeerDied | ErrorKind::PeerFailed);
    assert!(gone, "a closed peer was reported as {error}");
}

/// Steps that left a sender before it closed arrive; then the receiver learns that it is gone,
/// again and again.
pub fn steps_sent_before_the_sender_closed_arrive<F: TransportFixture>() {
    let rig = Rig::new::<F>().unwrap();
    for left in [0, 1, 2] {
        let Connected {
            mut send,
            mut recv,
            recv_waiter,
            ..
        } = rig.connect().unwrap();
        for step in 0..left {
            assert!(
                send.try_send(&pattern(step, 33), &signature(step, 33))
                    .unwrap()
            );
        }
        thread::scope(|scope| {
            scope.spawn(|| {
                while send.progress().unwrap() {}
                assert!(
                    send.finish(Instant::now() + CLOSING_LIMIT),
                    "the steps did not leave"
                );
            });
            for step in 0..left {
                assert_eq!(recv.recv(&recv_waiter).unwrap().payload, pattern(step, 33));
            }
            for _ in 0..2 {
                assert_gone(&recv.recv(&recv_waiter).unwrap_err());
            }
        });
    }
}

/// A receiver that sleeps while its sender goes away wakes up and learns it.
pub fn a_closed_sender_wakes_a_sleeping_receiver<F: TransportFixture>() {
    let rig = Rig::new::<F>().unwrap();
    let Connected {
        send,
        mut recv,
        recv_waiter,
        ..
    } = rig.connect().unwrap();
    thread::scope(|scope| {
        let receiving = scope.spawn(|| recv.recv(&recv_waiter).unwrap_err());
        thread::sleep(A_MOMENT);
        drop(send);
        assert_gone(&receiving.join().unwrap());
    });
}

/// A sender that sleeps for want of a slot while its receiver goes away wakes up and learns it.
pub fn a_closed_receiver_wakes_a_sleeping_sender<F: TransportFixture>() {
    let rig = Rig::new::<F>().unwrap();
    let Connected {
        mut send,
        recv,
        send_waiter,
        ..
    } = rig.connect().unwrap();
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            loop {
                if let Err(error) = send.send(&[0; 64], &signature(1, 64), &send_waiter) {
                    break error;
                }
            }
        });
        thread::sleep(A_MOMENT);
        drop(recv);
        assert_gone(&sending.join().unwrap());
    });
}

/// When an edge closes, the one in the other direction between the same ranks goes on.
pub fn a_closed_edge_leaves_the_other_direction_alone<F: TransportFixture>() {
    let rig = Rig::new::<F>().unwrap();
    let there = rig.connect().unwrap();
    let mut back = rig.connect_edge(&rig.edge_back()).unwrap();
    drop(there);
    for step in 0..20 {
        back.send_step(&pattern(step, 50), &signature(step, 50))
            .unwrap();
        assert_eq!(back.recv_step().unwrap().payload, pattern(step, 50));
    }
}
