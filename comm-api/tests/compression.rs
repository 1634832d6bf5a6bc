//! Compression of messages: what comes back, what goes as it is, and what is left behind.

mod compression_support;
mod group_support;
mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};

use comm_api::{
    CollectiveGroup, CompressionSettings, CompressionStats, DType, ErrorKind, RecvOptions,
    SendOptions, Tensor, TensorDict, TensorMut, Worker,
};
use comm_testkit::codec::Runs;
use compression_support::{builtin, noise, runs, settle, workers_of, zeros};
use group_support::{pair_of, workers_with};
use serde::{Deserialize, Serialize};
use support::on_every_transport;

#[derive(Serialize, Deserialize)]
struct Trajectory {
    steps: u64,
    tokens: Tensor,
    small: Tensor,
    parts: Vec<Tensor>,
    again: Tensor,
    text: String,
}

/// Two workers, both with these settings and the codec "runs".
fn workers(settings: &CompressionSettings) -> Vec<Worker> {
    workers_of([Some(settings.clone()), Some(settings.clone())])
}

/// Sends on the left what `send` says and receives on the right; the statistics of both, when
/// everything is over.
fn exchange(
    workers: Vec<Worker>,
    left: impl FnOnce(&CollectiveGroup) + Send + 'static,
    right: impl FnOnce(&CollectiveGroup) + Send + 'static,
) -> [CompressionStats; 2] {
    let keep: Vec<Worker> = workers.clone();
    pair_of(workers, left, right);
    settle(&keep)
}

fn every_kind_of_message_comes_back_through_every_codec() {
    for settings in builtin().into_iter().chain([runs().build().unwrap()]) {
        let name = settings.codec().name().to_owned();
        let stats = exchange(
            workers(&settings),
            |group| {
                group.send(&zeros(200_000)).unwrap();
                group
                    .send(&vec![zeros(20_000), noise(1, 50_000), zeros(10)])
                    .unwrap();
                let dict = BTreeMap::from([("a", zeros(100_000)), ("b", noise(2, 20_000))]);
                group.send(&dict).unwrap();
                let tokens = zeros(300_000);
                let trajectory = Trajectory {
                    steps: 7,
                    again: tokens.clone(),
                    tokens,
                    small: zeros(100),
                    parts: vec![zeros(40_000), noise(3, 40_000)],
                    // Large enough to be a segment.
                    text: "x".repeat(100_000),
                };
                group.send_async(&trajectory).unwrap().wait().unwrap();
                group
                    .send("an object, however long".repeat(5000).as_str())
                    .unwrap();
            },
            |group| {
                let tensor: Tensor = group.recv().unwrap().message;
                assert_eq!(bytes(&tensor), bytes(&zeros(200_000)));
                let list: Vec<Tensor> = group.recv().unwrap().message;
                assert_eq!(bytes(&list[1]), bytes(&noise(1, 50_000)));
                assert_eq!((list[0].len_bytes(), list[2].len_bytes()), (20_000, 10));
                let dict: TensorDict = group.recv().unwrap().message;
                assert_eq!(bytes(&dict["a"]), bytes(&zeros(100_000)));
                assert_eq!(bytes(&dict["b"]), bytes(&noise(2, 20_000)));
                let work = group.recv_async::<Trajectory>().unwrap();
                let back = work.take().unwrap().message;
                assert_eq!((back.steps, back.text.len()), (7, 100_000));
                assert_eq!(bytes(&back.tokens), bytes(&zeros(300_000)));
                assert_eq!(bytes(&back.again), bytes(&zeros(300_000)));
                assert_eq!(bytes(&back.parts[1]), bytes(&noise(3, 40_000)));
                let text: String = group.recv().unwrap().message;
                assert!(text.starts_with("an object"));
            },
        );
        let [sent, received] = stats;
        assert_eq!(sent.compressed_tensors, 5, "{name}: {sent:?}");
        assert_eq!(sent.compressed_from_bytes, 660_000);
        assert_eq!(sent.not_smaller, 3, "{name}: noise stays as it is");
        assert_eq!(received.decompressed_tensors, 5);
        assert_eq!(received.decompressed_from_bytes, sent.compressed_to_bytes);
        assert_eq!(received.decompressed_to_bytes, 660_000);
    }
}

fn bytes(tensor: &Tensor) -> &[u8] {
    tensor.as_bytes().unwrap()
}

fn what_is_small_excluded_direct_or_exempt_goes_as_it_is() {
    let settings = runs().min_bytes(1000).excluded_dtypes([DType::U8]);
    let [sent, received] = exchange(
        workers(&settings.build().unwrap()),
        |group| {
            group
                .send(&Tensor::zeros(DType::U8, &[5000]).unwrap())
                .unwrap();
            group
                .send(&Tensor::zeros(DType::I32, &[249]).unwrap())
                .unwrap();
            let tensor = Tensor::zeros(DType::I32, &[250]).unwrap();
            group.send_tensor(&tensor).unwrap();
            let exempt = SendOptions::new().uncompressed(true);
            group.send_with(&tensor, &exempt).unwrap();
            group.send(&tensor).unwrap();
        },
        |group| {
            group.recv::<Tensor>().unwrap();
            group.recv::<Tensor>().unwrap();
            let buffer = TensorMut::zeros(DType::I32, &[250]).unwrap();
            group.recv_tensor(buffer).unwrap();
            group.recv::<Tensor>().unwrap();
            group.recv::<Tensor>().unwrap();
        },
    );
    assert_eq!((sent.compressed_tensors, sent.not_smaller), (1, 0));
    assert_eq!(sent.compressed_from_bytes, 1000);
    assert_eq!(received.decompressed_tensors, 1);
}

fn without_room_in_the_pool_everything_goes_as_it_is() {
    let [sent, received] = exchange(
        workers(&runs().pool_bytes(1).build().unwrap()),
        |group| {
            for _ in 0..3 {
                group.send(&vec![zeros(100_000), zeros(50_000)]).unwrap();
            }
        },
        |group| {
            for _ in 0..3 {
                let list: Vec<Tensor> = group.recv().unwrap().message;
                assert_eq!(bytes(&list[0]), bytes(&zeros(100_000)));
            }
        },
    );
    assert_eq!((sent.no_buffer, sent.compressed_tensors), (6, 0));
    assert_eq!(sent.pool_allocated_bytes, 0);
    assert_eq!(received.decompressed_tensors, 0);
}

fn a_receiver_needs_the_codec_and_no_settings() {
    let compressing = runs().build().unwrap();
    let [one, other] = exchange(
        workers_of([Some(compressing), None]),
        |group| {
            group.send(&zeros(100_000)).unwrap();
            let back: Tensor = group.recv().unwrap().message;
            assert_eq!(bytes(&back), bytes(&zeros(70_000)));
        },
        |group| {
            let tensor: Tensor = group.recv().unwrap().message;
            assert_eq!(bytes(&tensor), bytes(&zeros(100_000)));
            group.send(&zeros(70_000)).unwrap();
        },
    );
    assert_eq!((one.compressed_tensors, one.decompressed_tensors), (1, 0));
    assert_eq!(
        (other.compressed_tensors, other.decompressed_tensors),
        (0, 1)
    );
}

fn the_ends_may_use_different_codecs() {
    for settings in builtin() {
        let other = runs().build().unwrap();
        let [one, other] = exchange(
            workers_of([Some(settings), Some(other)]),
            |group| {
                group.send(&zeros(100_000)).unwrap();
                group.recv::<Tensor>().unwrap();
            },
            |group| {
                group.recv::<Tensor>().unwrap();
                group.send(&zeros(100_000)).unwrap();
            },
        );
        assert_eq!((one.compressed_tensors, one.decompressed_tensors), (1, 1));
        assert_eq!(
            (other.compressed_tensors, other.decompressed_tensors),
            (1, 1)
        );
    }
}

fn without_the_codec_this_direction_ends_on_both_sides_with_the_reason() {
    let place = std::cell::Cell::new(0);
    let workers = workers_with(&["left:0", "right:0"], |builder| {
        if place.replace(place.get() + 1) > 0 {
            return builder;
        }
        let builder = builder.codec(Arc::new(Runs::new()));
        builder.compression(Some(runs().build().unwrap()))
    });
    exchange(
        workers,
        |group| {
            let error = group.send(&zeros(100_000)).unwrap_err();
            assert!(error.to_string().contains("wire id 200"), "{error}");
            let later = group.send(&zeros(10)).unwrap_err();
            assert!(later.to_string().contains("wire id 200"), "{later}");
            let other_way: u32 = group.recv().unwrap().message;
            assert_eq!(other_way, 7);
        },
        |group| {
            let error = group.recv::<Tensor>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().contains("wire id 200"), "{error}");
            assert!(group.recv::<Tensor>().is_err());
            group.send(&7_u32).unwrap();
        },
    );
}

fn a_damaged_block_is_the_error_of_its_receive_alone() {
    let place = std::cell::Cell::new(0);
    let workers = workers_with(&["left:0", "right:0"], |builder| {
        let is_broken = place.replace(place.get() + 1) > 0;
        let codec = if is_broken {
            Runs::broken()
        } else {
            Runs::new()
        };
        let builder = builder.codec(Arc::new(codec));
        builder.compression(Some(runs().build().unwrap()))
    });
    exchange(
        workers,
        |group| {
            group.send(&zeros(100_000)).unwrap();
            group.send(&zeros(100_000)).unwrap();
            group.send(&noise(1, 100_000)).unwrap();
        },
        |group| {
            let error = group.recv::<Tensor>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol);
            assert!(error.to_string().contains("checksum"), "{error}");
            let work = group.recv_async::<Tensor>().unwrap();
            let error = work.wait().unwrap_err();
            assert!(error.to_string().contains("group=cg-left"), "{error}");
            let later: Tensor = group.recv().unwrap().message;
            assert_eq!(bytes(&later), bytes(&noise(1, 100_000)));
        },
    );
}

fn compressed_tensors_go_into_the_buffers_of_the_receiver() {
    let [_, received] = exchange(
        workers(&runs().build().unwrap()),
        |group| {
            group.send(&zeros(100_000)).unwrap();
            group.send(&zeros(100_000)).unwrap();
            let error = group.send(&zeros(100_000)).unwrap_err();
            assert!(error.to_string().contains("[5]"), "{error}");
        },
        |group| {
            let buffer = TensorMut::from_vec(vec![9_u8; 100_000], &[100_000]).unwrap();
            let place = buffer.as_ptr();
            let tensor: Tensor = group.recv_into(vec![buffer]).unwrap().message;
            assert_eq!(
                (tensor.as_ptr(), bytes(&tensor)),
                (place, bytes(&zeros(100_000)))
            );
            assert!(
                tensor.try_into_mut().is_ok(),
                "the buffer is the receiver's again"
            );
            let allocate = RecvOptions::new().allocator(Arc::new(TensorMut::zeros));
            let tensor: Tensor = group.recv_with(allocate).unwrap().message;
            assert_eq!(bytes(&tensor), bytes(&zeros(100_000)));
            let small = TensorMut::zeros(DType::U8, &[5]).unwrap();
            let error = group.recv_into::<Tensor>(vec![small]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Mismatch);
        },
    );
    assert_eq!(received.decompressed_tensors, 2);
}

fn many_messages_in_flight_keep_their_order_and_give_all_buffers_back() {
    const MESSAGES: usize = 60;
    let settings = builtin().pop().unwrap_or_else(|| runs().build().unwrap());
    let len = |index: usize| 20_000 + 100 * index;
    let [sent, received] = exchange(
        workers(&settings),
        move |group| {
            let sends = (0..MESSAGES).map(|index| {
                let list = vec![zeros(len(index)), noise(index as u64, 17_000)];
                group.send_async(&(index, list)).unwrap()
            });
            for send in sends.collect::<Vec<_>>() {
                send.wait().unwrap();
            }
        },
        move |group| {
            let receives = (0..MESSAGES).map(|_| group.recv_async().unwrap());
            for (index, receive) in receives.collect::<Vec<_>>().into_iter().enumerate() {
                let (number, list): (usize, Vec<Tensor>) = receive.take().unwrap().message;
                assert_eq!(number, index);
                assert_eq!(bytes(&list[0]), bytes(&zeros(len(index))));
                assert_eq!(bytes(&list[1]), bytes(&noise(index as u64, 17_000)));
            }
        },
    );
    assert_eq!(received.decompressed_tensors, sent.compressed_tensors);
    // With few contexts some may have gone as they are.
    assert_eq!(sent.compressed_tensors + sent.no_context, MESSAGES as u64);
}

fn cancelled_and_dropped_sends_give_their_buffers_back() {
    let [sent, received] = exchange(
        workers(&runs().build().unwrap()),
        |group| {
            group.join().unwrap().wait().unwrap();
            let sends: Vec<_> = (0..20)
                .map(|_| group.send_async(&zeros(50_000)).unwrap())
                .collect();
            for (index, send) in sends.into_iter().enumerate() {
                if index % 2 == 0 {
                    // Too late for those that are on their way; both ends give the buffer back.
                    send.cancel();
                }
                drop(send);
            }
            group.send(&1_u8).unwrap();
        },
        |group| {
            for _ in 0..20 {
                if let Err(error) = group.recv::<Tensor>() {
                    assert_eq!(error.kind(), ErrorKind::CancelledByPeer, "{error}");
                }
            }
            assert_eq!(group.recv::<u8>().unwrap().message, 1);
        },
    );
    assert_eq!(sent.compressed_tensors, 20);
    assert!(received.decompressed_tensors >= 10);
}

fn a_group_that_fails_gives_its_buffers_back() {
    // Once the direction has failed nothing more can be submitted.
    let submitted = Arc::new(Barrier::new(2));
    let all = Arc::clone(&submitted);
    let [sent, _] = exchange(
        workers(&runs().build().unwrap()),
        move |group| {
            group.join().unwrap().wait().unwrap();
            let sends: Vec<_> = (0..8)
                .map(|_| group.send_async(&zeros(50_000)).unwrap())
                .collect();
            submitted.wait();
            let outcomes: Vec<_> = sends.iter().map(|send| send.wait()).collect();
            assert!(outcomes.iter().any(|outcome| outcome.is_err()));
        },
        move |group| {
            group.join().unwrap().wait().unwrap();
            group.recv::<Tensor>().unwrap();
            all.wait();
            let wrong = TensorMut::zeros(DType::U8, &[5]).unwrap();
            group.recv_tensor(wrong).unwrap_err();
        },
    );
    assert_eq!(sent.compressed_tensors, 8);
}

#[test]
fn codecs_that_are_not_there_or_taken_twice_are_found_when_the_worker_is_built() {
    let builder = || {
        let builder = Worker::builder(group_support::address("left:0")).unwrap();
        builder.rendezvous(Arc::new(comm_api::LocalRendezvous::new()))
    };
    let settings = CompressionSettings::builder().codec("mine").build();
    let error = builder().compression(Some(settings.unwrap())).build();
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("'mine'"), "{error}");
    let twice = builder()
        .codec(Arc::new(Runs::new()))
        .codec(Arc::new(Runs::new()));
    let error = twice.build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
    let zstd = CompressionSettings::builder()
        .codec("zstd")
        .build()
        .unwrap();
    let built = builder().compression(Some(zstd)).build();
    assert_eq!(built.is_ok(), cfg!(feature = "zstd"));
    if let Err(error) = built {
        assert!(error.to_string().contains("feature `zstd`"), "{error}");
    }
}

on_every_transport![
    every_kind_of_message_comes_back_through_every_codec,
    what_is_small_excluded_direct_or_exempt_goes_as_it_is,
    without_room_in_the_pool_everything_goes_as_it_is,
    a_receiver_needs_the_codec_and_no_settings,
    the_ends_may_use_different_codecs,
    without_the_codec_this_direction_ends_on_both_sides_with_the_reason,
    a_damaged_block_is_the_error_of_its_receive_alone,
    compressed_tensors_go_into_the_buffers_of_the_receiver,
    many_messages_in_flight_keep_their_order_and_give_all_buffers_back,
    cancelled_and_dropped_sends_give_their_buffers_back,
    a_group_that_fails_gives_its_buffers_back,
];
