//! What crosses an edge, and how much of it at once.

use std::thread;

use comm_core::fifo::SMALL_BYTES;
use comm_core::{ErrorKind, StepHeader};

use super::{pattern, signature};
use crate::transport::{Connected, Rig, TransportFixture};

/// Sends `step` as far as it goes now; `false` without credit.
fn try_step(edge: &mut Connected, step: u64, bytes: usize) -> bool {
    let sent = edge
        .send
        .try_send(&pattern(step, bytes), &signature(step, bytes))
        .unwrap();
    edge.send.progress().unwrap();
    sent
}

fn send_step(edge: &mut Connected, step: u64, bytes: usize) {
    edge.send_step(&pattern(step, bytes), &signature(step, bytes))
        .unwrap();
}

fn expect_step(edge: &mut Connected, step: u64, bytes: usize) {
    let received = edge.recv_step().unwrap();
    assert_eq!(received.payload.len(), bytes, "length of step {step}");
    assert!(
        received.payload == pattern(step, bytes),
        "contents of step {step}"
    );
    assert_eq!(received.signature_hash, signature(step, bytes).hash());
}

/// Steps arrive once each and in the order in which they were sent, also with a thread on each end.
pub fn steps_arrive_in_order<F: TransportFixture>() {
    const STEPS: u64 = 2_000;
    let rig = Rig::new::<F>().unwrap();
    let Connected {
        mut send,
        mut recv,
        send_waiter,
        recv_waiter,
    } = rig.connect().unwrap();
    let bytes = |step: u64| (step * 97) as usize % (rig.step_bytes + 1);
    thread::scope(|scope| {
        scope.spawn(|| {
            for step in 0..STEPS {
                let signature = signature(step, bytes(step));
                send.send(&pattern(step, bytes(step)), &signature, &send_waiter)
                    .unwrap();
            }
            while send.progress().unwrap() {}
        });
        for step in 0..STEPS {
            let received = recv.recv(&recv_waiter).unwrap();
            assert!(
                received.payload == pattern(step, bytes(step)),
                "step {step}"
            );
        }
        assert_eq!(recv.try_recv().unwrap(), None);
    });
}

/// Empty steps arrive like others.
pub fn empty_steps_arrive<F: TransportFixture>() {
    let mut edge = Rig::new::<F>().unwrap().connect().unwrap();
    for step in 0..40 {
        let bytes = if step % 3 == 0 { 16 } else { 0 };
        send_step(&mut edge, step, bytes);
        expect_step(&mut edge, step, bytes);
    }
}

/// Slots are reused in order, whatever the number of steps in flight.
pub fn steps_wrap_around_the_slots<F: TransportFixture>() {
    let rig = Rig::new::<F>().unwrap();
    let mut edge = rig.connect().unwrap();
    let (mut sent, mut received) = (0, 0);
    for round in 0..40 {
        let ahead = 1 + round % edge.send.slots() as u64;
        while sent < received + ahead {
            send_step(&mut edge, sent, sent as usize % 100);
            sent += 1;
        }
        while received < sent {
            expect_step(&mut edge, received, received as usize % 100);
            received += 1;
        }
    }
    assert_eq!(edge.recv.try_recv().unwrap(), None);
}

/// Steps that take the short way and steps in slots arrive in one order.
pub fn small_steps_mix_with_slots<F: TransportFixture>() {
    let mut edge = Rig::new::<F>().unwrap().connect().unwrap();
    for step in 0..60 {
        if step % 3 == 0 {
            send_step(&mut edge, step, 64);
            expect_step(&mut edge, step, 64);
            continue;
        }
        let bytes = step as usize % (SMALL_BYTES + 1);
        let signature = signature(step, bytes);
        let payload = pattern(step, bytes);
        edge.drive(|send, _| Ok(send.try_send_small(&payload, &signature)?.then_some(())))
            .unwrap();
        let received = edge.recv_step().unwrap();
        assert_eq!(received.payload[..bytes], payload);
        assert_eq!(received.signature_hash, signature.hash());
    }
}

/// A slot is the same until it is published, a step until it is consumed.
pub fn slot_and_step_stay_until_published_and_consumed<F: TransportFixture>() {
    let mut edge = Rig::new::<F>().unwrap().connect().unwrap();
    let slot = edge.send.try_slot().unwrap().unwrap();
    assert!(slot.capacity_bytes >= 64);
    assert_eq!(edge.send.try_slot().unwrap().unwrap().data, slot.data);
    send_step(&mut edge, 1, 10);
    send_step(&mut edge, 2, 20);
    edge.drive(|_, recv| recv.try_peek()).unwrap();
    for _ in 0..3 {
        let peeked = edge.recv.try_peek().unwrap().unwrap();
        assert_eq!(peeked.payload, pattern(1, 10));
    }
    expect_step(&mut edge, 1, 10);
    expect_step(&mut edge, 2, 20);
}

/// Where an edge hands out several slots and steps at a time, they keep their order and contents.
pub fn slots_and_steps_are_handed_out_ahead<F: TransportFixture>() {
    let mut edge = Rig::new::<F>().unwrap().connect().unwrap();
    for round in 0..10_u64 {
        // The last of many is not handed out before those in front of it.
        assert_eq!(edge.send.try_fill_ahead(3, b"early").unwrap(), None);
        let mut filled = 0;
        edge.drive(|send, _| send.try_fill_ahead(0, &pattern(round, 50)))
            .unwrap();
        while filled < 4 {
            let payload = pattern(round + filled, 50);
            if edge
                .send
                .try_fill_ahead(filled as usize, &payload)
                .unwrap()
                .is_none()
            {
                break;
            }
            filled += 1;
        }
        for _ in 0..filled {
            let header = StepHeader {
                bytes: 50,
                signature_hash: 1,
                signature: [0; 3],
            };
            edge.send.publish(header).unwrap();
        }
        assert_eq!(edge.recv.try_peek_ahead(2).unwrap(), None);
        if filled > 1 {
            for ahead in 0..filled {
                let step = edge
                    .drive(|_, recv| recv.try_peek_ahead(ahead as usize))
                    .unwrap();
                assert!(
                    step.payload == pattern(round + ahead, 50),
                    "step {ahead} ahead"
                );
            }
        }
        for number in 0..filled {
            let step = edge.drive(|_, recv| recv.try_peek()).unwrap();
            assert!(step.payload == pattern(round + number, 50), "step {number}");
            edge.recv.consume().unwrap();
        }
    }
    assert_eq!(edge.recv.try_recv().unwrap(), None);
}

/// The sender's whole signature arrives with a step, and its hash with every step.
pub fn the_signature_travels_with_the_step<F: TransportFixture>() {
    let mut edge = Rig::new::<F>().unwrap().connect().unwrap();
    for step in [0, 1, u64::from(u32::MAX), u64::MAX] {
        let signature = signature(step, 8);
        send_step(&mut edge, step, 8);
        let received = edge.recv_step().unwrap();
        assert_eq!(received.signature_hash, signature.hash());
        assert_eq!(received.signature, Some(signature.pack()));
    }
}

/// A length beyond the slot's capacity is an error of the sender; nothing is sent and the edge
/// goes on.
pub fn an_oversize_step_is_an_error_and_nothing_is_sent<F: TransportFixture>() {
    let mut edge = Rig::new::<F>().unwrap().connect().unwrap();
    let capacity_bytes = edge.send.try_slot().unwrap().unwrap().capacity_bytes;
    for bytes in [capacity_bytes + 1, usize::MAX] {
        let header = StepHeader {
            bytes,
            signature_hash: 1,
            signature: [0; 3],
        };
        let error = edge.send.publish(header).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    edge.send.progress().unwrap();
    edge.recv.progress().unwrap();
    assert_eq!(edge.recv.try_recv().unwrap(), None);
    send_step(&mut edge, 1, capacity_bytes);
    expect_step(&mut edge, 1, capacity_bytes);
}

/// A sender that nobody receives from comes to an end, after as many steps as the two ends have
/// slots for and the network buffers, and goes on when its steps are taken.
pub fn back_pressure_bounds_memory<F: TransportFixture>() {
    let rig = Rig::new::<F>().unwrap();
    let mut edge = rig.connect().unwrap();
    let slots = edge.send.slots() + edge.recv.slots();
    let bound = (slots + F::network_buffer_bytes() / rig.step_bytes) as u64;
    let mut sent = 0;
    // A message may need several rounds to make room at the other end.
    let mut quiet_rounds = 0;
    while quiet_rounds < 1_000 {
        let moved = edge.send.progress().unwrap() | edge.recv.progress().unwrap();
        if try_step(&mut edge, sent, rig.step_bytes) {
            sent += 1;
            assert!(sent <= bound, "more than {bound} steps were accepted");
            quiet_rounds = 0;
        } else {
            quiet_rounds = if moved { 0 } else { quiet_rounds + 1 };
            thread::yield_now();
        }
    }
    assert!(
        sent >= edge.send.slots() as u64,
        "only {sent} steps were accepted"
    );
    for step in 0..sent {
        expect_step(&mut edge, step, rig.step_bytes);
    }
    send_step(&mut edge, sent, 5);
    expect_step(&mut edge, sent, 5);
}

/// An edge whose receiver does nothing holds up no other one, of the same direction or the other.
pub fn edges_do_not_disturb_each_other<F: TransportFixture>() {
    let rig = Rig::new::<F>().unwrap();
    let mut full = rig.connect().unwrap();
    let mut filled = 0;
    while try_step(&mut full, filled, rig.step_bytes) {
        filled += 1;
    }
    for edge in [rig.edge().on_channel(1), rig.edge_back()] {
        let mut other = rig.connect_edge(&edge).unwrap();
        for step in 0..50 {
            send_step(&mut other, step, 40);
            expect_step(&mut other, step, 40);
        }
    }
    for step in 0..filled {
        expect_step(&mut full, step, rig.step_bytes);
    }
}
