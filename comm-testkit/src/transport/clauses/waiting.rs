//! Threads that sleep at an edge, and what wakes them.

use std::thread;

use comm_core::ErrorKind;

use super::{A_MOMENT, pattern, signature};
use crate::transport::{Attempt, Connected, Rig, SendEnd, TransportFixture, Waiter};

/// A receive that was called before the send gets the step.
pub fn a_receiver_may_wait_before_the_sender_sends<F: TransportFixture>() {
    let rig = Rig::new::<F>().unwrap();
    let Connected {
        mut send,
        mut recv,
        send_waiter,
        recv_waiter,
    } = rig.connect().unwrap();
    thread::scope(|scope| {
        let receiving = scope.spawn(|| recv.recv(&recv_waiter).unwrap());
        thread::sleep(A_MOMENT);
        send.send(&pattern(1, 100), &signature(1, 100), &send_waiter)
            .unwrap();
        drive_until(&mut send, || receiving.is_finished());
        assert_eq!(receiving.join().unwrap().payload, pattern(1, 100));
    });
}

/// A sender that sleeps for want of a slot goes on when the receiver consumes.
pub fn a_sender_that_waits_for_credit_is_woken<F: TransportFixture>() {
    let rig = Rig::new::<F>().unwrap();
    let Connected {
        mut send,
        mut recv,
        send_waiter,
        recv_waiter,
    } = rig.connect().unwrap();
    let steps = 3 * (send.slots() + recv.slots()) as u64;
    thread::scope(|scope| {
        scope.spawn(|| {
            for step in 0..steps {
                send.send(&pattern(step, 64), &signature(step, 64), &send_waiter)
                    .unwrap();
            }
            while send.progress().unwrap() {}
        });
        thread::sleep(A_MOMENT);
        for step in 0..steps {
            assert_eq!(recv.recv(&recv_waiter).unwrap().payload, pattern(step, 64));
        }
    });
}

/// Two threads that answer each other, each asleep while it is not its turn, never miss a step.
pub fn ping_pong_between_sleeping_threads_loses_no_wake_up<F: TransportFixture>() {
    const ROUNDS: u64 = 1_000;
    let rig = Rig::new::<F>().unwrap();
    let mut there = rig.connect().unwrap();
    let mut back = rig.connect_edge(&rig.edge_back()).unwrap();
    thread::scope(|scope| {
        let (there_recv, there_waiter) = (&mut there.recv, &there.recv_waiter);
        let (back_send, back_waiter) = (&mut back.send, &back.send_waiter);
        scope.spawn(move || {
            for round in 0..ROUNDS {
                let received = there_recv.recv(there_waiter).unwrap();
                assert_eq!(received.payload, pattern(round, 8));
                back_send
                    .send(&received.payload, &signature(round, 8), back_waiter)
                    .unwrap();
            }
            while back_send.progress().unwrap() {}
        });
        for round in 0..ROUNDS {
            there
                .send
                .send(&pattern(round, 8), &signature(round, 8), &there.send_waiter)
                .unwrap();
            there.send.progress().unwrap();
            let received = back.recv.recv(&back.recv_waiter).unwrap();
            assert_eq!(received.payload, pattern(round, 8));
        }
    });
}

/// A thread that sleeps at several edges with one doorbell is woken by each of them.
pub fn one_doorbell_serves_several_edges<F: TransportFixture>() {
    const EDGES: u32 = 3;
    let rig = Rig::new::<F>().unwrap();
    let (mut sends, mut recvs) = (Vec::new(), Vec::new());
    for channel in 0..EDGES {
        let edge = rig.connect_edge(&rig.edge().on_channel(channel)).unwrap();
        sends.push((edge.send, edge.send_waiter));
        recvs.push(edge.recv);
    }
    let waiter = Waiter::new(&rig.ranks[1].doorbells).unwrap();
    thread::scope(|scope| {
        for (number, (send, send_waiter)) in (0_u64..).zip(&mut sends) {
            scope.spawn(move || {
                for step in 0..100 {
                    let payload = pattern(100 * number + step, 16);
                    send.send(&payload, &signature(step, 16), send_waiter)
                        .unwrap();
                }
                while send.progress().unwrap() {}
            });
        }
        let mut next = [0_u64; EDGES as usize];
        while next != [100; EDGES as usize] {
            let (at, received) = waiter
                .until(|bell| {
                    let mut attempt = Attempt::Sleep;
                    for (at, recv) in recvs
                        .iter_mut()
                        .enumerate()
                        .filter(|(at, _)| next[*at] < 100)
                    {
                        if let Some(received) = recv.try_recv()? {
                            return Ok(Attempt::Done((at, received)));
                        }
                        if recv.progress()?
                            || Attempt::<()>::from(recv.arm(bell)?) == Attempt::Again
                        {
                            attempt = Attempt::Again;
                        }
                    }
                    Ok(attempt)
                })
                .unwrap();
            assert_eq!(received.payload, pattern(100 * at as u64 + next[at], 16));
            next[at] += 1;
        }
    });
}

/// A receiver asleep at an edge is called back by a thread that has nothing to do with the edge,
/// and can go on afterwards.
pub fn abort_from_another_thread_wakes_a_sleeping_receiver<F: TransportFixture>() {
    let rig = Rig::new::<F>().unwrap();
    let Connected {
        mut send,
        mut recv,
        send_waiter,
        recv_waiter,
    } = rig.connect().unwrap();
    thread::scope(|scope| {
        let receiving = scope.spawn(|| recv.recv(&recv_waiter).unwrap_err());
        thread::sleep(A_MOMENT);
        recv_waiter.abort();
        assert_eq!(receiving.join().unwrap().kind(), ErrorKind::Aborted);
    });
    let recv_waiter = Waiter::new(&rig.ranks[1].doorbells).unwrap();
    send.send(&[7], &signature(1, 1), &send_waiter).unwrap();
    send.progress().unwrap();
    assert_eq!(recv.recv(&recv_waiter).unwrap().payload, [7]);
}

/// A sender asleep for want of a slot is called back as well.
pub fn abort_from_another_thread_wakes_a_sleeping_sender<F: TransportFixture>() {
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
        send_waiter.abort();
        assert_eq!(sending.join().unwrap().kind(), ErrorKind::Aborted);
    });
    drop(recv);
}

/// Drives a sending end until something else has happened.
fn drive_until(send: &mut SendEnd, done: impl Fn() -> bool) {
    while !done() {
        send.progress().unwrap();
        thread::yield_now();
    }
}
