//! Groups of workers: completion, piggybacks, memory, members, cancelling and ends.

mod group_support;
mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use comm_api::{
    DType, ErrorKind, MessageKind, Piggyback, RecvOptions, SendOptions, Tensor, TensorMut, Waited,
};
use group_support::{address, on_each, pair, pair_of, tensor, values, workers, workers_with};
use support::on_every_transport;

fn a_send_is_done_when_it_was_received_and_an_eager_one_earlier() {
    let received = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&received);
    let (looked, go_on) = std::sync::mpsc::channel();
    pair(
        move |group| {
            group.join().unwrap().wait().unwrap();
            let eager = SendOptions::new().eager(true);
            // Small enough to be on its way without the receiver.
            group.send_with(&tensor(0, 10), &eager).unwrap();
            let matched = group.send_async(&1_u8).unwrap();
            assert_eq!(
                seen.load(Ordering::SeqCst),
                0,
                "eager: nobody has received yet"
            );
            let early = matched.wait_timeout(Duration::from_millis(50)).unwrap();
            assert_eq!(early, Waited::TimedOut);
            looked.send(()).unwrap();
            let go = group.recv::<()>();
            go.unwrap();
            matched.wait().unwrap();
            assert_eq!(seen.load(Ordering::SeqCst), 2);
        },
        move |group| {
            group.join().unwrap().wait().unwrap();
            go_on.recv().unwrap();
            received.store(2, Ordering::SeqCst);
            group.recv::<Tensor>().unwrap();
            let last = group.recv::<u8>().unwrap();
            assert_eq!(last.message, 1);
            group.send(&()).unwrap();
        },
    );
}

fn a_piggyback_rides_along_with_every_kind_and_none_is_none() {
    pair(
        |group| {
            for step in 0..4_u64 {
                let rides = (step % 2 == 0).then(|| Piggyback::new(&("step", step)).unwrap());
                let options = SendOptions::new().piggyback(rides);
                group.send_with(&tensor(1, 100), &options).unwrap();
                group.send_with("text", &options).unwrap();
            }
            let refused = SendOptions::new().piggyback(Some(Piggyback::new(&1).unwrap()));
            let error = group.send_tensor_with(&tensor(1, 1), &refused).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        },
        |group| {
            for step in 0..4_u64 {
                let rode = |piggyback: Option<Piggyback>| {
                    piggyback.map(|p| p.get::<(String, u64)>().unwrap().1)
                };
                let want = (step % 2 == 0).then_some(step);
                let got = group.recv::<Tensor>().unwrap();
                assert_eq!(got.kind, MessageKind::Tensor);
                assert_eq!(rode(got.piggyback), want);
                let got = group.recv::<String>().unwrap();
                assert_eq!(got.kind, MessageKind::Object);
                assert_eq!(rode(got.piggyback), want);
            }
        },
    );
}

fn messages_go_into_the_callers_buffers_or_where_an_allocator_says() {
    let message = || (tensor(1, 70_000), "between", tensor(2, 3));
    pair(
        move |group| {
            for _ in 0..3 {
                group.send(&message()).unwrap();
            }
        },
        move |group| {
            let want = message();
            let mut buffers = vec![
                TensorMut::zeros(DType::U32, &[70_000]).unwrap(),
                TensorMut::zeros(DType::U32, &[3]).unwrap(),
            ];
            let places: Vec<_> = buffers.iter().map(TensorMut::as_ptr).collect();
            for _ in 0..2 {
                let got = group
                    .recv_into::<(Tensor, String, Tensor)>(buffers)
                    .unwrap();
                let (first, _, second) = got.message;
                assert_eq!(places, [first.as_ptr(), second.as_ptr()]);
                assert_eq!(values(&first), values(&want.0));
                assert_eq!(values(&second), values(&want.2));
                // The buffers are the caller's again.
                buffers = [first, second].map(|t| t.try_into_mut().unwrap()).into();
            }
            let asked = Arc::new(AtomicUsize::new(0));
            let counter = Arc::clone(&asked);
            let options = RecvOptions::new().allocator(Arc::new(move |dtype, shape| {
                counter.fetch_add(1, Ordering::SeqCst);
                TensorMut::zeros(dtype, shape)
            }));
            let got = group
                .recv_with::<(Tensor, String, Tensor)>(options)
                .unwrap();
            assert_eq!(values(&got.message.0), values(&want.0));
            assert_eq!(asked.load(Ordering::SeqCst), 2);
        },
    );
}

fn the_pool_uses_memory_again_and_holds_no_more_than_its_limit() {
    let limit = 4 << 20;
    let workers = workers_with(&["left:0", "right:0"], |b| b.receive_pool_bytes(limit));
    pair_of(
        workers.clone(),
        |group| {
            for index in 0..20 {
                group.send(&tensor(index, 250_000)).unwrap();
            }
        },
        move |group| {
            let mut places = std::collections::HashSet::new();
            for index in 0..10 {
                let got = group.recv::<Tensor>().unwrap().message;
                assert_eq!(values(&got), values(&tensor(index, 250_000)));
                places.insert(got.as_ptr());
            }
            assert_eq!(
                places.len(),
                1,
                "one buffer does for messages that are dropped"
            );
            let kept: Vec<_> = (10..20)
                .map(|_| group.recv::<Tensor>().unwrap().message)
                .collect();
            for (index, got) in kept.iter().enumerate() {
                assert_eq!(values(got), values(&tensor(index + 10, 250_000)));
            }
            let held = workers[1].collective().receive_pool_bytes();
            assert!(held > 0 && held <= limit, "{held}");
            workers[1].close();
            assert_eq!(workers[1].collective().receive_pool_bytes(), 0);
            assert_eq!(values(&kept[0]), values(&tensor(10, 250_000)));
        },
    );
}

fn members_of_a_larger_group_name_their_peer() {
    let made = workers(&["w:0", "w:1", "w:2"]);
    on_each(made, |index, worker| {
        let members = ["w:2", "w:0", "w:1"].map(address);
        let group = worker
            .collective()
            .create_collective_group(&members, None)
            .unwrap();
        assert_eq!(group.rank() as usize, index);
        let others = (0..3).filter(|rank| *rank != group.rank());
        let received: Vec<_> = others
            .clone()
            .map(|rank| {
                let options = RecvOptions::new().from(rank);
                (rank, group.recv_async_with::<(u32, u32)>(options).unwrap())
            })
            .collect();
        for rank in others {
            let options = SendOptions::new().to(rank);
            group.send_with(&(group.rank(), rank), &options).unwrap();
        }
        for (rank, work) in received {
            assert_eq!(work.take().unwrap().message, (rank, group.rank()));
        }
        let error = group.send(&1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        for wrong in [group.rank(), 3] {
            assert!(group.send_with(&1, &SendOptions::new().to(wrong)).is_err());
        }
    });
}

fn a_worker_talks_to_any_other_by_group_and_rank() {
    let made = workers(&["actor:0", "rollout:0", "rollout:1"]);
    on_each(made, |index, worker| {
        if index == 0 {
            for rank in 0..2 {
                worker.send("rollout", rank, &(rank, "weights")).unwrap();
                worker
                    .send_tensor("rollout", rank, &tensor(rank as usize, 50))
                    .unwrap();
            }
            for rank in 0..2 {
                let got = worker.recv::<u32>("rollout", [rank]).unwrap();
                assert_eq!(got.message, rank);
            }
        } else {
            let rank = index as u32 - 1;
            let got = worker.recv::<(u32, String)>("actor", 0).unwrap().message;
            assert_eq!(got, (rank, "weights".to_owned()));
            let buffer = TensorMut::zeros(DType::U32, &[50]).unwrap();
            let got = worker.recv_tensor("actor", 0, buffer).unwrap().freeze();
            assert_eq!(values(&got), values(&tensor(rank as usize, 50)));
            worker.send("actor", 0, &rank).unwrap();
        }
    });
}

fn a_cancelled_receive_takes_its_message_and_a_cancelled_send_is_told() {
    pair(
        |group| {
            group.join().unwrap().wait().unwrap();
            group.recv::<()>().unwrap();
            let error = group.send(&"dropped").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CancelledByPeer, "{error}");
            group.send(&"second").unwrap();
            // Nothing can be sent before the first of these is received, so the last has not begun.
            let large = tensor(0, 4 << 20);
            let sent: Vec<_> = (0..20).map(|_| group.send_async(&large).unwrap()).collect();
            assert!(sent[19].cancel());
            assert_eq!(sent[19].wait().unwrap_err().kind(), ErrorKind::Cancelled);
            group.send_async(&()).unwrap().detach();
            group.send(&"end").unwrap();
        },
        |group| {
            group.join().unwrap().wait().unwrap();
            let cancelled = group.recv_async::<String>().unwrap();
            assert!(cancelled.cancel());
            assert_eq!(cancelled.wait().unwrap_err().kind(), ErrorKind::Cancelled);
            group.send(&()).unwrap();
            assert_eq!(group.recv::<String>().unwrap().message, "second");
            for _ in 0..19 {
                group.recv::<Tensor>().unwrap();
            }
            let error = group.recv::<Tensor>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CancelledByPeer, "{error}");
            group.recv::<()>().unwrap();
            assert_eq!(group.recv::<String>().unwrap().message, "end");
        },
    );
}

fn a_group_is_made_again_after_both_have_closed_it() {
    let made = workers(&["left:0", "right:0"]);
    let closed = Arc::new(Barrier::new(2));
    on_each(made, move |index, worker| {
        let peer = ["right", "left"][index];
        for round in 0..3 {
            if index == 0 {
                worker.send(peer, 0, &round).unwrap();
            } else {
                assert_eq!(worker.recv::<i32>(peer, 0).unwrap().message, round);
            }
            worker.group_with(peer, 0).unwrap().close();
            closed.wait();
        }
    });
}

fn closing_ends_what_is_under_way_on_both_sides() {
    let (left, right) = pair(
        |group| {
            group.join().unwrap().wait().unwrap();
            let waiting = group.recv_async::<u8>().unwrap();
            group.send(&()).unwrap();
            group.close();
            let later = group.send(&1).unwrap_err();
            assert_eq!(later.kind(), ErrorKind::Aborted);
            waiting.wait().unwrap_err()
        },
        |group| {
            let waiting = group.recv_async::<()>().unwrap();
            waiting.wait().unwrap();
            group.recv::<u8>().unwrap_err()
        },
    );
    assert_eq!(left.kind(), ErrorKind::Aborted);
    assert!(right.to_string().contains("cg-left:0-right:0"), "{right}");
}

fn a_dropped_worker_finishes_what_was_submitted() {
    let mut made = workers(&["left:0", "right:0"]);
    let right = made.pop().unwrap();
    let left = made.pop().unwrap();
    let sending = thread::spawn(move || {
        for index in 0..10 {
            left.send_async("right", 0, &tensor(index, 30_000))
                .unwrap()
                .detach();
        }
        drop(left);
    });
    let receiving = on_each(vec![right], |_, right| {
        for index in 0..10 {
            let got = right.recv::<Tensor>("left", 0).unwrap().message;
            assert_eq!(values(&got), values(&tensor(index, 30_000)));
        }
    });
    sending.join().unwrap();
    assert_eq!(receiving.len(), 1);
}

on_every_transport! {
    a_send_is_done_when_it_was_received_and_an_eager_one_earlier,
    a_piggyback_rides_along_with_every_kind_and_none_is_none,
    messages_go_into_the_callers_buffers_or_where_an_allocator_says,
    the_pool_uses_memory_again_and_holds_no_more_than_its_limit,
    members_of_a_larger_group_name_their_peer,
    a_worker_talks_to_any_other_by_group_and_rank,
    a_cancelled_receive_takes_its_message_and_a_cancelled_send_is_told,
    a_group_is_made_again_after_both_have_closed_it,
    closing_ends_what_is_under_way_on_both_sides,
    a_dropped_worker_finishes_what_was_submitted,
}
