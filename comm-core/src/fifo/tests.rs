//! Clauses of the FIFO's contract, checked on the heap by one thread.

mod mapped;
mod offers;
mod pulls;
#[cfg(target_os = "linux")]
mod shared;
mod threads;

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::doorbell::{Doorbells, RingTarget};
use crate::sync::atomic::Ordering;
use crate::{Armed, Result, SlotWrite, StepHeader, StepRead};

fn pair(step_bytes: usize) -> (FifoSender, FifoReceiver) {
    let bells = RingTarget::Local(Doorbells::local());
    FifoMemory::heap(FifoLayout::new(step_bytes).unwrap()).into_ends(bells.clone(), bells)
}

/// A pair that looks as if `published` steps had been sent and consumed.
fn pair_after(published: u64, step_bytes: usize) -> (FifoSender, FifoReceiver) {
    let (mut sender, mut receiver) = pair(step_bytes);
    for step in published.saturating_sub(SLOTS as u64 - 1).max(1)..=published {
        sender
            .memory
            .line(step)
            .stamp
            .store(stamp(step, 0, 0), Ordering::Relaxed);
    }
    sender
        .memory
        .control()
        .head
        .0
        .store(published, Ordering::Relaxed);
    sender.next = published + 1;
    sender.credit = published;
    receiver.next = published + 1;
    (sender, receiver)
}

fn fill(slot: SlotWrite, data: &[u8]) {
    assert!(data.len() <= slot.capacity_bytes);
    // SAFETY: the slot is ours until it is published, and holds `capacity_bytes`.
    unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), slot.data.as_ptr(), data.len()) };
}

fn payload(read: StepRead) -> Vec<u8> {
    let mut data = vec![0; read.header.bytes];
    // SAFETY: the slot is ours until the step is consumed, and holds `bytes`.
    unsafe { std::ptr::copy_nonoverlapping(read.data.as_ptr(), data.as_mut_ptr(), data.len()) };
    data
}

fn header(bytes: usize, signature_hash: u32) -> StepHeader {
    StepHeader {
        bytes,
        signature_hash,
        signature: [u64::from(signature_hash); 3],
    }
}

/// Sends `data` in the slot; `false` without credit.
fn try_send_slot(sender: &mut FifoSender, data: &[u8], signature_hash: u32) -> Result<bool> {
    let Some(slot) = sender.try_slot()? else {
        return Ok(false);
    };
    fill(slot, data);
    sender.publish(header(data.len(), signature_hash))?;
    Ok(true)
}

/// Sends `data` in the line if it fits and `small` is asked for, else in the slot.
fn try_send(sender: &mut FifoSender, data: &[u8], small: bool, hash: u32) -> Result<bool> {
    if small && data.len() <= SMALL_BYTES {
        sender.try_send_small(data, hash)
    } else {
        try_send_slot(sender, data, hash)
    }
}

/// Takes a step; small ones have `small_bytes`.
fn try_receive(receiver: &mut FifoReceiver, small_bytes: usize) -> Result<Option<(u32, Vec<u8>)>> {
    let Some(arrived) = receiver.try_step()? else {
        return Ok(None);
    };
    let data = match arrived {
        Arrived::Small { .. } => {
            let mut data = vec![0; small_bytes];
            receiver.read_small(&mut data)?;
            data
        }
        Arrived::Slot(read) => {
            assert_eq!(
                read.header.signature,
                [u64::from(read.header.signature_hash); 3]
            );
            payload(read)
        }
        Arrived::Offer(header) => panic!("nobody offered {header:?}"),
    };
    receiver.consume();
    Ok(Some((arrived.signature_hash(), data)))
}

/// Contents that differ between steps and between places.
fn pattern(step: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64)
        .map(|index| (index.wrapping_mul(31) ^ step.wrapping_mul(7)) as u8)
        .collect()
}

#[test]
fn small_steps_of_every_length_arrive_in_order_and_whole() {
    let (mut sender, mut receiver) = pair(64);
    for step in 0..10 * SMALL_BYTES as u64 {
        let data = pattern(step, step as usize % (SMALL_BYTES + 1));
        assert!(sender.try_send_small(&data, step as u32).unwrap());
        assert_eq!(
            try_receive(&mut receiver, data.len()).unwrap(),
            Some((step as u32, data))
        );
    }
    assert_eq!((sender.published(), receiver.consumed()), (560, 560));
}

#[test]
fn steps_of_both_kinds_mix_and_wrap_around_the_slots_many_times() {
    let (mut sender, mut receiver) = pair(256);
    for round in 0..200 {
        let batch = 1 + round % SLOTS as u64;
        for step in round..round + batch {
            let data = pattern(step, (step as usize * 37) % 257);
            assert!(try_send(&mut sender, &data, step % 3 != 0, step as u32).unwrap());
        }
        for step in round..round + batch {
            let data = pattern(step, (step as usize * 37) % 257);
            assert_eq!(
                try_receive(&mut receiver, data.len()).unwrap(),
                Some((step as u32, data))
            );
        }
        assert!(receiver.try_step().unwrap().is_none());
    }
}

#[test]
fn empty_steps_advance_in_both_kinds() {
    let (mut sender, mut receiver) = pair(64);
    for step in 1..=3 * SLOTS as u64 {
        assert!(try_send(&mut sender, &[], step % 2 == 0, 5).unwrap());
        assert_eq!(try_receive(&mut receiver, 0).unwrap(), Some((5, vec![])));
        assert_eq!(receiver.consumed(), step);
    }
}

#[test]
fn a_full_fifo_gives_no_credit_until_a_step_is_consumed() {
    let (mut sender, mut receiver) = pair(64);
    for _ in 0..SLOTS {
        assert!(sender.try_send_small(&[1], 1).unwrap());
    }
    for _ in 0..3 {
        assert!(!sender.try_send_small(&[1], 1).unwrap());
        assert!(sender.try_slot().unwrap().is_none());
        // Looking alone gives no credit.
        assert!(receiver.try_step().unwrap().is_some());
    }
    receiver.consume();
    assert!(sender.try_send_small(&[1], 1).unwrap());
    assert!(!sender.try_send_small(&[1], 1).unwrap());
}

#[test]
fn slot_and_step_stay_the_same_until_published_and_consumed() {
    let (mut sender, mut receiver) = pair(64);
    let first = sender.try_slot().unwrap().unwrap();
    assert_eq!(sender.try_slot().unwrap().unwrap().data, first.data);
    sender.publish(header(3, 1)).unwrap();
    assert_ne!(sender.try_slot().unwrap().unwrap().data, first.data);
    sender.publish(header(4, 2)).unwrap();
    for _ in 0..2 {
        let Some(Arrived::Slot(read)) = receiver.try_step().unwrap() else {
            panic!("no step")
        };
        assert_eq!((read.header, read.data), (header(3, 1), first.data));
    }
}

#[test]
fn slots_are_apart_and_aligned_to_cache_lines() {
    let (mut sender, mut receiver) = pair(64);
    let mut starts = Vec::new();
    for _ in 0..SLOTS {
        let slot = sender.try_slot().unwrap().unwrap();
        assert_eq!(slot.data.align_offset(64), 0);
        starts.push(slot.data.as_ptr() as usize);
        sender.publish(header(64, 0)).unwrap();
        receiver.consume();
    }
    starts.sort_unstable();
    assert!(
        starts
            .windows(2)
            .all(|pair| pair[1] - pair[0] == 64 + SLOT_SKEW_BYTES)
    );
}

#[test]
fn what_does_not_fit_is_refused_and_the_edge_goes_on() {
    let (mut sender, mut receiver) = pair(64);
    let small = sender.try_send_small(&[0; SMALL_BYTES + 1], 0).unwrap_err();
    assert_eq!(small.kind(), ErrorKind::InvalidArgument);
    sender.try_slot().unwrap();
    let large = sender.publish(header(65, 0)).unwrap_err();
    assert_eq!(large.kind(), ErrorKind::InvalidArgument);
    assert!(receiver.try_step().unwrap().is_none());

    assert!(try_send_slot(&mut sender, &[9; 64], 3).unwrap());
    assert_eq!(
        try_receive(&mut receiver, 0).unwrap(),
        Some((3, vec![9; 64]))
    );
    sender.try_send_small(&[1], 4).unwrap();
    let read = receiver.read_small(&mut [0; SMALL_BYTES + 1]).unwrap_err();
    assert_eq!(read.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_slot_without_credit_cannot_be_published() {
    let (mut sender, _receiver) = pair(64);
    for _ in 0..SLOTS {
        sender.try_slot().unwrap();
        sender.publish(header(0, 0)).unwrap();
    }
    assert_eq!(
        sender.publish(header(0, 0)).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
}

#[test]
fn a_layout_is_a_multiple_of_a_line_up_to_a_gibibyte() {
    for bad in [0, 1, 63, 65, MAX_STEP_BYTES + 64, usize::MAX - 63] {
        assert_eq!(
            FifoLayout::new(bad).unwrap_err().kind(),
            ErrorKind::InvalidArgument,
            "{bad}"
        );
    }
    assert_eq!(
        FifoLayout::new(MAX_STEP_BYTES).unwrap().step_bytes(),
        MAX_STEP_BYTES
    );
    let layout = FifoLayout::new(4096).unwrap();
    assert_eq!(
        layout.total_bytes(),
        CONTROL_BYTES + SLOTS * (4096 + SLOT_SKEW_BYTES)
    );
}

#[test]
fn a_closed_sender_leaves_its_steps_and_then_peer_died() {
    for left in 0..=SLOTS as u64 {
        let (mut sender, mut receiver) = pair(64);
        for step in 0..left {
            assert!(try_send(&mut sender, &pattern(step, 10), step % 2 == 0, 1).unwrap());
        }
        drop(sender);
        for step in 0..left {
            assert_eq!(
                try_receive(&mut receiver, 10).unwrap(),
                Some((1, pattern(step, 10)))
            );
        }
        for _ in 0..2 {
            assert_eq!(receiver.try_step().unwrap_err().kind(), ErrorKind::PeerDied);
        }
    }
}

#[test]
fn a_closed_receiver_is_noticed_when_the_credit_is_used_up() {
    for consumed in 0..3 {
        let (mut sender, mut receiver) = pair(64);
        for _ in 0..consumed {
            sender.try_send_small(&[1], 1).unwrap();
            try_receive(&mut receiver, 1).unwrap();
        }
        drop(receiver);
        for _ in 0..SLOTS {
            assert!(sender.try_send_small(&[1], 1).unwrap());
        }
        for _ in 0..2 {
            let error = sender.try_send_small(&[1], 1).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PeerDied);
            assert_eq!(sender.try_slot().unwrap_err().kind(), ErrorKind::PeerDied);
        }
    }
}

#[test]
fn arming_tells_whether_there_is_something_to_do_already() {
    let (mut sender, mut receiver) = pair(64);
    let bell = Doorbells::local().claim().unwrap();
    assert_eq!(receiver.arm(&bell).unwrap(), Armed::WillRing);
    assert_eq!(sender.arm(&bell).unwrap(), Armed::Ready);
    for _ in 0..SLOTS {
        sender.try_send_small(&[], 0).unwrap();
    }
    assert_eq!(receiver.arm(&bell).unwrap(), Armed::Ready);
    assert_eq!(sender.arm(&bell).unwrap(), Armed::WillRing);
    drop(receiver);
    assert_eq!(sender.arm(&bell).unwrap_err().kind(), ErrorKind::PeerDied);
}

#[test]
fn an_armed_end_rings_once_and_a_disarmed_one_not() {
    let bells = Doorbells::local();
    let target = RingTarget::Local(std::sync::Arc::clone(&bells));
    let layout = FifoLayout::new(64).unwrap();
    let (mut sender, mut receiver) = FifoMemory::heap(layout).into_ends(target.clone(), target);
    let bell = bells.claim().unwrap();

    let before = bell.ticket();
    receiver.arm(&bell).unwrap();
    receiver.disarm();
    sender.try_send_small(&[], 0).unwrap();
    assert_eq!(bell.ticket(), before);

    receiver.consume();
    receiver.arm(&bell).unwrap();
    sender.try_send_small(&[], 0).unwrap();
    let rung = bell.ticket();
    assert_ne!(rung, before);
    sender.try_send_small(&[], 0).unwrap();
    assert_eq!(bell.ticket(), rung);

    drop(sender);
    assert_eq!(bell.ticket(), rung, "the receiver was not armed any more");
    receiver.consume();
    receiver.consume();
    assert_eq!(receiver.arm(&bell).unwrap_err().kind(), ErrorKind::PeerDied);
}

#[test]
fn step_numbers_survive_the_wrap_of_their_lower_half() {
    for start in [
        u32::MAX as u64 - 20,
        (1 << 40) - 20,
        (7 << 32) - 20,
        u32::MAX as u64 / 2 - 20,
    ] {
        let (mut sender, mut receiver) = pair_after(start, 64);
        assert!(receiver.try_step().unwrap().is_none());
        for step in start + 1..start + 41 {
            // Both ends are in turn ahead by a full round and level.
            let data = pattern(step, 16);
            assert!(try_send(&mut sender, &data, step % 2 == 0, 9).unwrap());
            if step % SLOTS as u64 != 0 {
                continue;
            }
            while let Some((hash, got)) = try_receive(&mut receiver, 16).unwrap() {
                assert_eq!((hash, got), (9, pattern(receiver.consumed(), 16)));
            }
            assert_eq!(receiver.consumed(), step);
        }
        drop(sender);
        while try_receive(&mut receiver, 16).is_ok() {}
        assert_eq!(receiver.consumed(), start + 40);
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Send { bytes: usize, small: bool },
    Receive,
    CloseSender,
    CloseReceiver,
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        20 => (0..129_usize, any::<bool>())
            .prop_map(|(bytes, small)| Operation::Send { bytes: bytes.min(128), small }),
        18 => Just(Operation::Receive),
        1 => Just(Operation::CloseSender),
        1 => Just(Operation::CloseReceiver),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_calls_behaves_like_a_bounded_queue(
        operations in prop::collection::vec(operation(), 0..200),
        start in prop_oneof![Just(0), (u32::MAX as u64 - 50)..(u32::MAX as u64 + 50)],
    ) {
        let (sender, receiver) = pair_after(start, 128);
        let (mut sender, mut receiver) = (Some(sender), Some(receiver));
        let mut queue = VecDeque::new();
        for (number, operation) in operations.into_iter().enumerate() {
            match operation {
                Operation::Send { bytes, small } => {
                    let Some(sender) = &mut sender else { continue };
                    let data = pattern(number as u64, bytes);
                    let full = queue.len() == SLOTS;
                    match try_send(sender, &data, small, number as u32) {
                        Ok(true) => {
                            prop_assert!(!full);
                            queue.push_back((number as u32, data));
                        }
                        Ok(false) => prop_assert!(full && receiver.is_some()),
                        Err(error) => {
                            prop_assert_eq!(error.kind(), ErrorKind::PeerDied);
                            prop_assert!(full && receiver.is_none());
                        }
                    }
                }
                Operation::Receive => {
                    let Some(receiver) = &mut receiver else { continue };
                    let small_bytes = queue.front().map_or(0, |(_, data): &(u32, Vec<u8>)| data.len());
                    match try_receive(receiver, small_bytes) {
                        Ok(got) => {
                            prop_assert!(got.is_some() || sender.is_some());
                            prop_assert_eq!(got, queue.pop_front());
                        }
                        Err(error) => {
                            prop_assert_eq!(error.kind(), ErrorKind::PeerDied);
                            prop_assert!(queue.is_empty() && sender.is_none());
                        }
                    }
                }
                Operation::CloseSender => sender = None,
                Operation::CloseReceiver => receiver = None,
            }
        }
    }
}
