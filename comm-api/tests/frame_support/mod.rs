//! Frames with contents that can be told apart.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use comm_api::{
    Arrived, Communicator, DType, Frame, FrameHead, FrameOptions, Rank, Result, Tensor, TensorMut,
};

pub(crate) fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|index| (index * 31 + seed * 17 + index / 251) as u8)
        .collect()
}

pub(crate) fn tensor(bytes: &[u8]) -> Tensor {
    Tensor::from_slice(bytes, &[bytes.len()]).unwrap()
}

/// A frame whose contents follow from `seed`.
pub(crate) fn frame(seed: usize, header_bytes: usize, segment_bytes: &[usize]) -> Frame {
    let segments = segment_bytes.iter().enumerate();
    Frame {
        tag: seed as u8,
        header: pattern(seed, header_bytes).into(),
        segments: segments
            .map(|(index, len)| tensor(&pattern(seed + index, *len)))
            .collect(),
    }
}

/// Fresh memory for each segment.
pub(crate) fn destinations(head: &FrameHead<'_>) -> Result<Vec<TensorMut>> {
    let zeros = |bytes: &u64| TensorMut::zeros(DType::U8, &[*bytes as usize]);
    head.segment_bytes.iter().map(zeros).collect()
}

pub(crate) fn receive(comm: &Communicator, peer: Rank) -> Arrived {
    comm.recv_frame(peer, destinations, &FrameOptions::new())
        .unwrap()
        .take()
        .unwrap()
}

pub(crate) fn check(got: &Arrived, sent: &Frame) {
    assert_eq!(got.tag, sent.tag);
    assert!(
        got.header == sent.header,
        "header of {} bytes",
        sent.header.len()
    );
    assert_eq!(got.segments.len(), sent.segments.len());
    for (got, sent) in got.segments.iter().zip(&sent.segments) {
        let (got, sent) = (got.as_bytes().unwrap(), sent.as_bytes().unwrap());
        assert!(got == sent, "segment of {} bytes", sent.len());
    }
}
