//! Two threads on one FIFO: order, contents and wake-ups under load.

use std::sync::{Arc, Barrier};
use std::thread;

use super::*;
use crate::doorbell::Doorbell;

/// Waits for one end: spins a little, so that both the awake and the sleeping way are taken.
fn until<T>(bell: &Doorbell, mut ask: impl FnMut(bool) -> Result<Option<T>>) -> Result<T> {
    loop {
        for _ in 0..20 {
            if let Some(value) = ask(false)? {
                return Ok(value);
            }
            std::hint::spin_loop();
        }
        let ticket = bell.ticket();
        if let Some(value) = ask(true)? {
            return Ok(value);
        }
        bell.wait(ticket, None);
    }
}

fn send(sender: &mut FifoSender, bell: &Doorbell, step: u64, bytes: usize) -> Result<()> {
    let data = pattern(step, bytes);
    until(bell, |arm| {
        if arm && sender.arm(bell)? == Armed::WillRing {
            return Ok(None);
        }
        Ok(try_send(sender, &data, step.is_multiple_of(2), step as u32)?.then_some(()))
    })
}

fn receive(receiver: &mut FifoReceiver, bell: &Doorbell, bytes: usize) -> Result<(u32, Vec<u8>)> {
    until(bell, |arm| {
        if arm && receiver.arm(bell)? == Armed::WillRing {
            return Ok(None);
        }
        try_receive(receiver, bytes)
    })
}

fn bytes_of(step: u64) -> usize {
    (step as usize * 13) % 129
}

#[test]
fn a_stream_of_steps_arrives_in_order_between_threads_that_sleep() {
    const STEPS: u64 = 60_000;
    let bells = Doorbells::local();
    let target = RingTarget::Local(Arc::clone(&bells));
    let layout = FifoLayout::new(128).unwrap();
    let (mut sender, mut receiver) = FifoMemory::heap(layout).into_ends(target.clone(), target);
    let start = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            let bell = bells.claim().unwrap();
            start.wait();
            for step in 0..STEPS {
                send(&mut sender, &bell, step, bytes_of(step)).unwrap();
            }
            drop(sender);
        });
        let bell = bells.claim().unwrap();
        start.wait();
        for step in 0..STEPS {
            let got = receive(&mut receiver, &bell, bytes_of(step)).unwrap();
            assert_eq!(got, (step as u32, pattern(step, bytes_of(step))));
        }
        let error = receive(&mut receiver, &bell, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PeerDied);
    });
}

#[test]
fn ping_pong_between_threads_that_sleep_loses_no_wake_up() {
    const ROUNDS: u64 = 20_000;
    let bells = Doorbells::local();
    let target = RingTarget::Local(Arc::clone(&bells));
    let layout = FifoLayout::new(128).unwrap();
    let (mut there, mut at_server) =
        FifoMemory::heap(layout).into_ends(target.clone(), target.clone());
    let (mut back, mut at_client) = FifoMemory::heap(layout).into_ends(target.clone(), target);
    let start = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            let bell = bells.claim().unwrap();
            start.wait();
            for step in 0..ROUNDS {
                let (_, data) = receive(&mut at_server, &bell, 8).unwrap();
                assert_eq!(data, pattern(step, 8));
                send(&mut back, &bell, step, 8).unwrap();
            }
        });
        let bell = bells.claim().unwrap();
        start.wait();
        for step in 0..ROUNDS {
            send(&mut there, &bell, step, 8).unwrap();
            assert_eq!(
                receive(&mut at_client, &bell, 8).unwrap().1,
                pattern(step, 8)
            );
        }
    });
}
