//! Heads that make no sense, blocks that are damaged, and threads that decompress, without a network.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use comm_core::{ErrorKind, Tensor, TensorMut};
use comm_testkit::codec::Runs;
use proptest::prelude::*;

use super::*;
use crate::message::{Encoded, Received, announced, decode, encode};
use crate::pool::ReceivePool;

fn compression() -> Compression {
    let settings = CompressionSettings::builder().codec("runs").min_bytes(10);
    let own: Arc<dyn Codec> = Arc::new(Runs::refusing());
    Compression::new(Some(settings.build().unwrap()), [own]).unwrap()
}

fn run(byte: u8, len: usize) -> Tensor {
    Tensor::from_vec(vec![byte; len], &[len]).unwrap()
}

/// What a transport and a receive do with a message.
fn receive(compression: &Compression, sent: &Encoded) -> Result<Received<Vec<Tensor>>> {
    let pool = ReceivePool::new(1 << 20);
    let bytes: Vec<_> = sent.segments.iter().map(|s| s.len_bytes() as u64).collect();
    let announced = announced(&sent.header, &bytes)?;
    let memory = announced.layouts.iter().map(|layout| pool.provide(layout));
    let mut memory = memory.collect::<Result<Vec<_>>>()?;
    let blocks = announced.blocks;
    let packed = match blocks {
        Some(blocks) => Some(compression.set_aside(blocks, &mut memory, &pool)?),
        None => None,
    };
    for (to, from) in memory.iter_mut().zip(&sent.segments) {
        to.as_mut_bytes()?.copy_from_slice(from.as_bytes()?);
    }
    if let Some(packed) = packed {
        compression.unpack(packed, &mut memory, &pool)?;
    }
    let tensors = memory.into_iter().map(TensorMut::freeze);
    decode(sent.kind, &sent.header, tensors.collect())
}

fn sent(compression: &Compression, tensors: &[Tensor]) -> Encoded {
    encode(tensors, None, false, Some(compression)).unwrap()
}

#[test]
fn why_a_tensor_goes_as_it_is_is_counted() {
    let compression = compression();
    let noise = Tensor::from_vec((0..100).collect::<Vec<u8>>(), &[100]).unwrap();
    let tensors = [
        run(7, 100),
        noise,
        run(Runs::BUSY, 100),
        run(Runs::UNAVAILABLE, 100),
        run(7, 9),
    ];
    let message = sent(&compression, &tensors);
    let lengths: Vec<_> = message.segments.iter().map(Tensor::len_bytes).collect();
    assert_eq!(lengths, [1, 100, 100, 100, 9]);
    let stats = compression.stats();
    assert_eq!((stats.compressed_tensors, stats.not_smaller), (1, 1));
    assert_eq!((stats.no_context, stats.not_possible), (1, 1));
    assert_eq!(stats.pool_allocated_bytes - stats.pool_cached_bytes, 99);
    let back = receive(&compression, &message).unwrap().message;
    for (tensor, back) in tensors.iter().zip(&back) {
        assert_eq!(tensor.as_bytes().unwrap(), back.as_bytes().unwrap());
    }
    drop(message);
    let stats = compression.stats();
    assert_eq!(stats.pool_allocated_bytes, stats.pool_cached_bytes);
}

#[test]
fn a_message_in_which_nothing_became_smaller_looks_like_any_other() {
    let noise = Tensor::from_vec((0..100).collect::<Vec<u8>>(), &[100]).unwrap();
    let tensors = [noise, run(3, 5)];
    let message = sent(&compression(), &tensors);
    let plain = encode(&tensors[..], None, false, None).unwrap();
    assert_eq!(message.header, plain.header);
}

/// The header of a message of one compressed tensor, with a part of its end replaced.
fn with_end(end: &[u8]) -> Vec<u8> {
    let message = sent(&compression(), &[run(1, 100)]);
    // Wire id, length, checksum.
    let kept = message.header.len() - 10;
    [&message.header[..kept], end].concat()
}

#[test]
fn heads_that_make_no_sense_are_refused_before_memory_is_taken() {
    let sum = [0_u8; 8];
    for (end, bytes, text) in [
        ([&[0, 1], &sum[..]].concat(), 1, "by nothing"),
        ([&[200, 100], &sum[..]].concat(), 100, "not smaller"),
        ([&[200, 101], &sum[..]].concat(), 101, "not smaller"),
        (vec![200, 0], 100, "no tensor is"),
        ([&[200, 2], &sum[..]].concat(), 1, "another size"),
        ([&[200, 1], &sum[..7]].concat(), 1, "too early"),
        ([&[200, 1, 9], &sum[..]].concat(), 1, "behind its end"),
        (vec![200], 1, "too early"),
        (Vec::new(), 1, "too early"),
    ] {
        let error = announced(&with_end(&end), &[bytes]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
        assert!(error.to_string().contains(text), "{text}: {error}");
    }
    let fine = [&[200, 1], &sum[..]].concat();
    assert!(announced(&with_end(&fine), &[1]).is_ok());
}

#[test]
fn a_codec_that_is_not_there_is_an_error_that_says_how_to_get_it() {
    let message = sent(&compression(), &[run(1, 100)]);
    let error = receive(&Compression::receiving_only(), &message).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("wire id 200"), "{error}");
}

proptest! {
    #[test]
    fn damage_never_goes_unnoticed(place in any::<prop::sample::Index>(), damage in 1_u8..) {
        let compression = compression();
        let mut message = sent(&compression, &[run(1, 100), run(2, 50)]);
        let mut header = message.header.to_vec();
        let index = place.index(header.len());
        header[index] ^= damage;
        message.header = header.into();
        if let Ok(back) = receive(&compression, &message) {
            // Other shapes and types of as many bytes, and other places in the list.
            for tensor in &back.message {
                let bytes = tensor.as_bytes().unwrap();
                prop_assert!(bytes == [1; 100] || bytes == [2; 50], "{:?}", tensor);
            }
        }
    }

    #[test]
    fn damaged_blocks_never_go_unnoticed(damage in 1_u8..) {
        let compression = compression();
        let mut message = sent(&compression, &[run(1, 100)]);
        message.segments[0] = run(1 ^ damage, 1);
        let error = receive(&compression, &message).unwrap_err();
        prop_assert_eq!(error.kind(), ErrorKind::Protocol);
    }
}

#[test]
fn jobs_are_done_by_few_threads_also_after_one_that_panics() {
    let decoders = Decoders::default();
    let (done, finished) = mpsc::channel();
    let count = Arc::new(AtomicUsize::new(0));
    for number in 0..50 {
        let (done, count) = (done.clone(), Arc::clone(&count));
        decoders.run(Box::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
            let name = std::thread::current().name().map(str::to_owned);
            done.send(name).unwrap();
            assert_ne!(number, 3, "one of the jobs panics");
        }));
    }
    drop(done);
    let names: Vec<_> = finished.iter().collect();
    assert_eq!((names.len(), count.load(Ordering::SeqCst)), (50, 50));
    assert!(
        names
            .iter()
            .all(|name| name.as_deref() == Some("comm-decode"))
    );
    assert!(format!("{decoders:?}").contains("jobs: 0"));
}
