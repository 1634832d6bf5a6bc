//! Clauses of the FIFO's contract, checked on the heap.

use super::*;
use crate::doorbell::{Doorbells, RingTarget};

fn pair(step_bytes: usize) -> (FifoSender, FifoReceiver) {
    let memory = FifoMemory::heap(FifoLayout::new(step_bytes).unwrap());
    let bells = Doorbells::local();
    (
        FifoSender::new(Arc::clone(&memory), RingTarget::Local(Arc::clone(&bells))),
        FifoReceiver::new(memory, RingTarget::Local(bells)),
    )
}

#[test]
fn small_steps_arrive_in_order_and_whole() {
    let (mut sender, mut receiver) = pair(64);
    for round in 0..100_u8 {
        let data: Vec<u8> = (0..round % 57).map(|index| index ^ round).collect();
        assert!(sender.try_send_small(&data, u32::from(round)).unwrap());
        let arrived = receiver.try_step().unwrap().unwrap();
        assert_eq!(arrived.signature_hash(), u32::from(round));
        let mut got = vec![0; data.len()];
        receiver.read_small(&mut got).unwrap();
        assert_eq!(got, data);
        receiver.consume();
    }
}

#[test]
fn a_full_fifo_gives_no_credit_until_a_step_is_consumed() {
    let (mut sender, mut receiver) = pair(64);
    for _ in 0..SLOTS {
        assert!(sender.try_send_small(&[1], 1).unwrap());
    }
    assert!(!sender.try_send_small(&[1], 1).unwrap());
    assert!(sender.try_slot().unwrap().is_none());
    assert!(receiver.try_step().unwrap().is_some());
    receiver.consume();
    assert!(sender.try_send_small(&[1], 1).unwrap());
    assert!(!sender.try_send_small(&[1], 1).unwrap());
}
