//! Frames over an edge, well-formed and hostile.

use comm_core::doorbell::{Doorbells, RingTarget};
use comm_core::fifo::{FifoLayout, FifoMemory};
use comm_core::{ConnInfo, DType, Tensor};
use proptest::prelude::*;

use super::*;
use crate::communicator::frames::FrameRef;
use crate::edge::ends::{Outgoing, SendEnd};
use crate::operation::frame::FrameSend;

const STEP_BYTES: usize = 128;

/// Both ends of an edge, as the lanes of a sender and of a receiver have them.
fn edge() -> (Ends, Ends) {
    let layout = FifoLayout::new(STEP_BYTES).unwrap();
    let bells = RingTarget::Local(Doorbells::local());
    let (sender, receiver) = FifoMemory::heap(layout).into_ends(bells.clone(), bells);
    let (mut sending, mut receiving) = (Ends::default(), Ends::default());
    let sender = ConnInfo::MemorySend(sender);
    sending.add_send(0, SendEnd::new(1, "test", sender).unwrap());
    let receiver = ConnInfo::MemoryRecv(receiver);
    receiving.add_recv(0, RecvEnd::new(1, 0, "test", receiver).unwrap());
    (sending, receiving)
}

fn tensors(contents: &[Vec<u8>]) -> Vec<Tensor> {
    let tensor = |bytes: &Vec<u8>| Tensor::from_slice(bytes, &[bytes.len()]).unwrap();
    contents.iter().map(tensor).collect()
}

/// At most a megabyte: a hostile frame may ask for any length.
fn open(head: &FrameHead<'_>) -> Result<Vec<TensorMut>> {
    if head.segment_bytes.iter().sum::<u64>() > 1 << 20 {
        return Err(Error::new(ErrorKind::ResourceExhausted, "too much"));
    }
    let zeros = |bytes: &u64| TensorMut::zeros(DType::U8, &[*bytes as usize]);
    head.segment_bytes.iter().map(zeros).collect()
}

/// Publishes a step with the identity of frame `sequence`.
fn publish(ends: &mut Ends, sequence: u64, bytes: &[u8]) -> bool {
    let identity = Identity::new(frame_signature(sequence));
    let end = &mut ends.send[0];
    match end.try_reserve(bytes.len()).unwrap() {
        None => false,
        Some(Outgoing::Small) => end.publish_small(bytes, &identity).is_ok(),
        Some(Outgoing::Slot(slot)) => {
            // SAFETY: no step of this test is longer than a slot.
            unsafe { kernels::copy(slot.data.as_ptr(), bytes.as_ptr(), bytes.len()) };
            end.publish(bytes.len(), &identity).is_ok()
        }
    }
}

proptest! {
    #[test]
    fn a_frame_comes_out_as_it_went_in(
        tag: u8,
        header in proptest::collection::vec(any::<u8>(), 0..300),
        sizes in proptest::collection::vec(0..700_usize, 0..40),
    ) {
        let contents: Vec<Vec<u8>> = sizes.iter().map(|len| vec![*len as u8; *len]).collect();
        let segments = tensors(&contents);
        let frame = FrameRef { tag, header: &header, segments: &segments };
        let (mut sending, mut receiving) = edge();
        let mut send = FrameSend::new(3, Some(frame), STEP_BYTES);
        let mut recv = FrameRecv::new(3, STEP_BYTES);
        let mut sent = false;
        for _ in 0..10_000 {
            if !sent {
                sent = send.advance(Some(frame), &mut sending, 200).unwrap() == Progress::Done;
            }
            if recv.advance(&mut receiving, 300, &mut open).unwrap() == Progress::Done {
                break;
            }
        }
        prop_assert!(sent);
        let Received::Whole(arrived) = recv.finish() else {
            return Err(TestCaseError::fail("the frame was cancelled"));
        };
        prop_assert_eq!(arrived.tag, tag);
        prop_assert_eq!(&arrived.header[..], &header[..]);
        let got: Vec<_> = arrived.segments.iter().map(|got| got.as_bytes().unwrap()).collect();
        prop_assert_eq!(got, contents);
    }

    #[test]
    fn whatever_a_peer_sends_ends_in_a_frame_an_error_or_a_wait_for_more(
        valid_prefix in 0..=PREFACE_BYTES,
        segments in 0..6_usize,
        header_bytes in 0..200_usize,
        steps in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..=STEP_BYTES), 1..8),
    ) {
        let mut steps = steps;
        let preface = Preface { tag: 1, is_cancelled: false, segments, header_bytes, sequence: 0 };
        let valid = valid_prefix.min(steps[0].len());
        steps[0][..valid].copy_from_slice(&preface.encode()[..valid]);
        let (mut sending, mut receiving) = edge();
        for step in &steps {
            prop_assert!(publish(&mut sending, 0, step));
        }
        let mut recv = FrameRecv::new(0, STEP_BYTES);
        let mut last = Ok(Progress::Moved);
        for _ in 0..100 {
            last = recv.advance(&mut receiving, 1 << 20, &mut open);
            if !matches!(last, Ok(Progress::Moved)) {
                break;
            }
        }
        match last {
            Ok(Progress::Done | Progress::Blocked) => {}
            Ok(Progress::Moved) => prop_assert!(false, "it does not end"),
            Err(error) => prop_assert!(
                matches!(
                    error.kind(),
                    ErrorKind::Protocol | ErrorKind::ResourceExhausted | ErrorKind::Mismatch
                ),
                "{}", error
            ),
        }
    }
}

#[test]
fn a_step_of_another_frame_is_a_mismatch() {
    let (mut sending, mut receiving) = edge();
    assert!(publish(&mut sending, 5, &[0; 100]));
    let mut recv = FrameRecv::new(4, STEP_BYTES);
    let error = recv
        .advance(&mut receiving, 1 << 20, &mut open)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    for part in ["frame #4", "frame #5"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn bytes_behind_the_end_of_a_frame_are_a_protocol_error() {
    let (mut sending, mut receiving) = edge();
    let preface = Preface {
        tag: 1,
        is_cancelled: false,
        segments: 0,
        header_bytes: 0,
        sequence: 0,
    };
    let mut step = [0; 64];
    step[..PREFACE_BYTES].copy_from_slice(&preface.encode());
    assert!(publish(&mut sending, 0, &step));
    let mut recv = FrameRecv::new(0, STEP_BYTES);
    let error = recv
        .advance(&mut receiving, 1 << 20, &mut open)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
}
