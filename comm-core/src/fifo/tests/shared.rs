//! The FIFO in a memory file that is mapped more than once, and one that somebody scribbles over.

use std::ptr::NonNull;
use std::sync::Arc;

use super::*;
use crate::memory::SealedMemory;

fn map_again(memory: &SealedMemory) -> SealedMemory {
    let fd = memory.fd().try_clone_to_owned().unwrap();
    SealedMemory::map(fd, memory.len_bytes()).unwrap()
}

fn fifo(memory: SealedMemory, layout: FifoLayout) -> FifoMemory {
    let (base, len_bytes) = (memory.as_ptr(), memory.len_bytes());
    // SAFETY: the file is fresh, stays mapped as long as its owner, and each test makes one sender
    // and one receiver of it.
    unsafe { FifoMemory::from_raw(base, len_bytes, layout, Arc::new(memory)) }.unwrap()
}

fn mapped_pair(layout: FifoLayout) -> (SealedMemory, FifoSender, FifoReceiver) {
    let first = SealedMemory::create("test", layout.total_bytes()).unwrap();
    let (second, third) = (map_again(&first), map_again(&first));
    let bells = RingTarget::Local(Doorbells::local());
    let sender = fifo(second, layout).into_sender(bells.clone());
    (first, sender, fifo(third, layout).into_receiver(bells))
}

#[test]
fn a_fifo_works_at_two_addresses() {
    let (_memory, mut sender, mut receiver) = mapped_pair(FifoLayout::new(128).unwrap());
    assert_ne!(sender.memory.slot(0), receiver.memory.slot(0));
    for step in 0..100 {
        let data = pattern(step, step as usize + 28);
        assert!(try_send(&mut sender, &data, step % 2 == 0, 1).unwrap());
        assert_eq!(
            try_receive(&mut receiver, data.len()).unwrap(),
            Some((1, data))
        );
    }
    drop(sender);
    assert_eq!(receiver.try_step().unwrap_err().kind(), ErrorKind::PeerDied);
}

#[test]
fn memory_that_is_too_small_or_not_aligned_is_refused() {
    let layout = FifoLayout::new(64).unwrap();
    let memory = SealedMemory::create("test", layout.total_bytes() + 4096).unwrap();
    let memory = Arc::new(memory);
    for (offset, len_bytes) in [(0, layout.total_bytes() - 1), (64, layout.total_bytes())] {
        // SAFETY: `offset` is in the mapping.
        let base = unsafe { memory.as_ptr().add(offset) };
        // SAFETY: the range is in the mapping, zero, and no end is made of it.
        let refused = unsafe {
            FifoMemory::from_raw(base, len_bytes, layout, Arc::<SealedMemory>::clone(&memory))
        };
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}

/// A value that a hostile or broken process may write.
fn word() -> impl Strategy<Value = u64> {
    let small = 0..40_u64;
    prop_oneof![
        any::<u64>(),
        small.clone(),
        Just(u64::MAX),
        // A stamp that looks right, with the slot flag and without.
        (small, any::<u32>(), any::<bool>()).prop_map(|(step, hash, slot)| stamp(
            step,
            hash,
            if slot { SLOT_FLAG } else { 0 }
        )),
    ]
}

#[derive(Clone, Debug)]
enum Act {
    Scribble { word: usize, value: u64 },
    Send { bytes: usize, small: bool },
    Receive,
    Arm,
}

/// Words of the part that holds control words and lines.
const CONTROL_WORDS: usize = size_of::<super::super::memory::FifoControl>() / 8;

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => (0..CONTROL_WORDS, word()).prop_map(|(word, value)| Act::Scribble { word, value }),
        1 => (CONTROL_BYTES / 8..CONTROL_BYTES / 8 + SLOTS * 48, any::<u64>())
            .prop_map(|(word, value)| Act::Scribble { word, value }),
        6 => (0..=64_usize, any::<bool>()).prop_map(|(bytes, small)| Act::Send { bytes, small }),
        6 => Just(Act::Receive),
        1 => Just(Act::Arm),
    ]
}

/// Whether the edge may go on: yes for a value, no for one of the two errors that are allowed.
fn tolerated<T>(result: Result<T>) -> std::result::Result<Option<T>, TestCaseError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) => {
            let kind = error.kind();
            prop_assert!(
                matches!(kind, ErrorKind::Protocol | ErrorKind::PeerDied),
                "{}",
                error
            );
            Ok(None)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn foreign_writes_lead_to_values_or_errors_and_stay_in_bounds(
        acts in prop::collection::vec(act(), 1..120),
    ) {
        let layout = FifoLayout::new(64).unwrap();
        let (memory, mut sender, mut receiver) = mapped_pair(layout);
        let in_bounds = |end: &FifoMemory, data: NonNull<u8>, bytes: usize| {
            let offset = data.as_ptr() as usize - std::ptr::from_ref(end.control()) as usize;
            offset >= CONTROL_BYTES && offset + bytes <= layout.total_bytes()
        };
        let bell = Doorbells::local().claim().unwrap();
        for act in acts {
            match act {
                Act::Scribble { word, value } => {
                    // SAFETY: the strategy draws words of this mapping only.
                    let place = unsafe { memory.as_ptr().cast::<u64>().add(word) };
                    // SAFETY: aligned and in bounds; this thread does nothing else meanwhile.
                    unsafe { place.write_volatile(value) };
                }
                Act::Send { bytes, small: true } => {
                    let data = pattern(1, bytes.min(SMALL_BYTES));
                    tolerated(sender.try_send_small(&data, 1))?;
                }
                Act::Send { bytes, small: false } => {
                    if let Some(Some(slot)) = tolerated(sender.try_slot())? {
                        prop_assert!(in_bounds(&sender.memory, slot.data, slot.capacity_bytes));
                        fill(slot, &pattern(1, bytes));
                        tolerated(sender.publish(header(bytes, 1)))?;
                    }
                }
                Act::Receive => match tolerated(receiver.try_step())?.flatten() {
                    None => {}
                    Some(Arrived::Small { .. }) => {
                        receiver.read_small(&mut [0; SMALL_BYTES]).unwrap();
                        receiver.consume();
                    }
                    Some(Arrived::Slot(read)) => {
                        prop_assert!(read.header.bytes <= layout.step_bytes());
                        prop_assert!(in_bounds(&receiver.memory, read.data, read.header.bytes));
                        payload(read);
                        receiver.consume();
                    }
                    Some(Arrived::Offer(header)) => {
                        prop_assert!(false, "addresses of a peer were believed: {:?}", header);
                    }
                },
                Act::Arm => {
                    tolerated(sender.arm(&bell))?;
                    tolerated(receiver.arm(&bell))?;
                }
            }
        }
    }
}
