//! Models of the FIFO and its doorbells: loom runs the production code under every interleaving
//! and every reordering that the memory model allows, up to a number of preemptions.
//!
//! `RUSTFLAGS="--cfg comm_loom" cargo test -p comm-core --release --lib loom`, two preemptions
//! unless `LOOM_MAX_PREEMPTIONS` says otherwise.
//!
//! A payload in a slot is a `loom::cell::UnsafeCell` here, so an access that the other end does
//! not order before its own fails the model. A waiter that nobody wakes is a deadlock, which loom
//! reports.

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use super::*;
use crate::doorbell::{Doorbell, Doorbells, RingTarget};
use crate::sync::Arc;
use crate::{Armed, Result, StepHeader};

pub(super) fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.check(body);
}

fn pair(bells: &Arc<Doorbells>) -> (FifoSender, FifoReceiver) {
    let bells = RingTarget::Local(Arc::clone(bells));
    FifoMemory::heap(FifoLayout::new(64).unwrap()).into_ends(bells.clone(), bells)
}

/// A pair whose sender may offer memory.
pub(super) fn pair_with_offers(bells: &Arc<Doorbells>) -> (FifoSender, FifoReceiver) {
    let bells = RingTarget::Local(Arc::clone(bells));
    FifoMemory::heap_with_offers(FifoLayout::new(64).unwrap()).into_ends(bells.clone(), bells)
}

/// Steps of the two kinds, told apart by their parity.
fn try_send(sender: &mut FifoSender, step: u64) -> Result<bool> {
    if step % 2 == 1 {
        return sender.try_send_small(&[step; 2].map(u64::to_ne_bytes).concat(), step as u32);
    }
    if sender.try_slot()?.is_none() {
        return Ok(false);
    }
    let cell = &sender.memory.control().payloads[step as usize % SLOTS];
    // SAFETY: loom checks that nobody else accesses the payload at the same time.
    cell.with_mut(|payload| unsafe { *payload = step });
    let header = StepHeader {
        bytes: 8,
        signature_hash: step as u32,
        signature: [step; 3],
    };
    sender.publish(header)?;
    Ok(true)
}

fn try_receive(receiver: &mut FifoReceiver) -> Result<Option<u64>> {
    let step = receiver.consumed() + 1;
    let Some(arrived) = receiver.try_step()? else {
        return Ok(None);
    };
    assert_eq!(arrived.signature_hash(), step as u32);
    match arrived {
        Arrived::Small { .. } => {
            let mut data = [0; 16];
            receiver.read_small(&mut data)?;
            assert_eq!(data[..], [step; 2].map(u64::to_ne_bytes).concat());
        }
        Arrived::Slot(read) => {
            assert_eq!((read.header.bytes, read.header.signature), (8, [step; 3]));
            let cell = &receiver.memory.control().payloads[step as usize % SLOTS];
            // SAFETY: loom checks that nobody writes the payload at the same time.
            assert_eq!(cell.with(|payload| unsafe { *payload }), step);
        }
        Arrived::Offer(header) => panic!("nobody offered {header:?}"),
    }
    receiver.consume();
    Ok(Some(step))
}

fn send_asleep(sender: &mut FifoSender, bell: &Doorbell, step: u64) -> Result<()> {
    loop {
        let ticket = bell.ticket();
        if try_send(sender, step)? {
            return Ok(());
        }
        if sender.arm(bell)? == Armed::WillRing {
            bell.wait(ticket, None);
        }
    }
}

fn receive_asleep(receiver: &mut FifoReceiver, bell: &Doorbell) -> Result<u64> {
    loop {
        let ticket = bell.ticket();
        if let Some(step) = try_receive(receiver)? {
            return Ok(step);
        }
        if receiver.arm(bell)? == Armed::WillRing {
            bell.wait(ticket, None);
        }
    }
}

#[test]
fn loom_steps_of_both_kinds_cross_a_full_an_empty_and_a_wrapped_fifo() {
    model(|| {
        let (mut sender, mut receiver) = pair(&Doorbells::local());
        let steps = 2 * SLOTS as u64;
        let sending = thread::spawn(move || {
            for step in 1..=steps {
                while !try_send(&mut sender, step).unwrap() {
                    thread::yield_now();
                }
            }
            sender
        });
        for step in 1..=steps {
            loop {
                match try_receive(&mut receiver).unwrap() {
                    Some(got) => break assert_eq!(got, step),
                    None => thread::yield_now(),
                }
            }
        }
        sending.join().unwrap();
    });
}

#[test]
fn loom_a_sleeping_receiver_is_woken_by_each_step() {
    model(|| {
        let bells = Doorbells::local();
        let (mut sender, mut receiver) = pair(&bells);
        let sending = thread::spawn(move || {
            assert!(try_send(&mut sender, 1).unwrap());
            assert!(try_send(&mut sender, 2).unwrap());
            sender
        });
        let bell = bells.claim().unwrap();
        assert_eq!(receive_asleep(&mut receiver, &bell).unwrap(), 1);
        assert_eq!(receive_asleep(&mut receiver, &bell).unwrap(), 2);
        sending.join().unwrap();
    });
}

#[test]
fn loom_a_sleeping_sender_is_woken_by_credit() {
    model(|| {
        let bells = Doorbells::local();
        let (mut sender, mut receiver) = pair(&bells);
        for step in 1..=SLOTS as u64 {
            assert!(try_send(&mut sender, step).unwrap());
        }
        let receiving = thread::spawn(move || {
            assert_eq!(try_receive(&mut receiver).unwrap(), Some(1));
            assert_eq!(try_receive(&mut receiver).unwrap(), Some(2));
            receiver
        });
        let bell = bells.claim().unwrap();
        send_asleep(&mut sender, &bell, SLOTS as u64 + 1).unwrap();
        send_asleep(&mut sender, &bell, SLOTS as u64 + 2).unwrap();
        receiving.join().unwrap();
    });
}

#[test]
fn loom_both_ends_sleep_in_turns() {
    model(|| {
        let bells = Doorbells::local();
        let (mut sender, mut receiver) = pair(&bells);
        let bell = bells.claim().unwrap();
        let steps = SLOTS as u64 + 1;
        let sending = thread::spawn(move || {
            for step in 1..=steps {
                send_asleep(&mut sender, &bell, step).unwrap();
            }
            sender
        });
        let bell = bells.claim().unwrap();
        for step in 1..=steps {
            assert_eq!(receive_asleep(&mut receiver, &bell).unwrap(), step);
        }
        sending.join().unwrap();
    });
}

#[test]
fn loom_one_doorbell_serves_several_edges() {
    model(|| {
        let bells = Doorbells::local();
        let (mut first_sender, mut first) = pair(&bells);
        let (mut second_sender, mut second) = pair(&bells);
        let first_sending = thread::spawn(move || {
            assert!(try_send(&mut first_sender, 1).unwrap());
            first_sender
        });
        let second_sending = thread::spawn(move || {
            assert!(try_send(&mut second_sender, 1).unwrap());
            second_sender
        });
        let bell = bells.claim().unwrap();
        let mut missing = 2;
        loop {
            let ticket = bell.ticket();
            for receiver in [&mut first, &mut second] {
                if receiver.consumed() == 0 && try_receive(receiver).unwrap().is_some() {
                    missing -= 1;
                }
            }
            if missing == 0 {
                break;
            }
            let mut ready = false;
            for receiver in [&mut first, &mut second] {
                ready |= receiver.consumed() == 0 && receiver.arm(&bell).unwrap() == Armed::Ready;
            }
            if !ready {
                bell.wait(ticket, None);
            }
        }
        first_sending.join().unwrap();
        second_sending.join().unwrap();
    });
}

#[test]
fn loom_abort_wakes_a_sleeper_that_no_step_reaches() {
    model(|| {
        let bells = Doorbells::local();
        let (mut sender, mut receiver) = pair(&bells);
        let abort = Arc::new(AtomicBool::new(false));
        let bell = Arc::new(bells.claim().unwrap());
        let aborting = {
            let (abort, bell) = (Arc::clone(&abort), Arc::clone(&bell));
            thread::spawn(move || {
                // Relaxed: the ring orders it.
                abort.store(true, Ordering::Relaxed);
                bell.ring();
            })
        };
        // One step comes in at the same time, the second one never does.
        let sending = thread::spawn(move || {
            assert!(try_send(&mut sender, 1).unwrap());
            sender
        });
        loop {
            let ticket = bell.ticket();
            // Relaxed: the ticket and the end of `wait` are Acquire loads of the rings.
            if abort.load(Ordering::Relaxed) {
                break;
            }
            if try_receive(&mut receiver).unwrap().is_some() {
                continue;
            }
            if receiver.arm(&bell).unwrap() == Armed::WillRing {
                bell.wait(ticket, None);
            }
        }
        aborting.join().unwrap();
        sending.join().unwrap();
    });
}

#[test]
fn loom_closing_the_sender_wakes_the_receiver_after_the_last_step() {
    model(|| {
        let bells = Doorbells::local();
        let (mut sender, mut receiver) = pair(&bells);
        let sending = thread::spawn(move || {
            assert!(try_send(&mut sender, 1).unwrap());
        });
        let bell = bells.claim().unwrap();
        assert_eq!(receive_asleep(&mut receiver, &bell).unwrap(), 1);
        let error = receive_asleep(&mut receiver, &bell).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PeerDied);
        sending.join().unwrap();
    });
}

#[test]
fn loom_closing_the_receiver_wakes_a_sender_without_credit() {
    model(|| {
        let bells = Doorbells::local();
        let (mut sender, mut receiver) = pair(&bells);
        for step in 1..=SLOTS as u64 {
            assert!(try_send(&mut sender, step).unwrap());
        }
        let receiving = thread::spawn(move || {
            assert_eq!(try_receive(&mut receiver).unwrap(), Some(1));
        });
        let bell = bells.claim().unwrap();
        let step = SLOTS as u64 + 1;
        // What it gave back before it went is used, whenever it is noticed that it is gone.
        send_asleep(&mut sender, &bell, step).unwrap();
        let error = send_asleep(&mut sender, &bell, step + 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PeerDied);
        receiving.join().unwrap();
    });
}

#[test]
fn loom_a_waiter_that_took_its_number_back_can_sleep_again() {
    // Two steps: the ring for the first one tells the waiter nothing about the second one.
    model(|| {
        let bells = Doorbells::local();
        let (mut sender, mut receiver) = pair(&bells);
        let sending = thread::spawn(move || {
            assert!(try_send(&mut sender, 1).unwrap());
            assert!(try_send(&mut sender, 2).unwrap());
            sender
        });
        let bell = bells.claim().unwrap();
        receiver.arm(&bell).unwrap();
        receiver.disarm();
        assert_eq!(receive_asleep(&mut receiver, &bell).unwrap(), 1);
        assert_eq!(receive_asleep(&mut receiver, &bell).unwrap(), 2);
        sending.join().unwrap();
    });
}
