//! The k-th send meets the k-th receive, whatever the order of the calls, kinds and sizes.

mod group_support;
mod support;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use comm_api::{
    CollWork, CollectiveGroup, DType, FuncWork, Received, Tensor, TensorMut, Waited, Work,
};
use group_support::{pair, tensor, values};
use serde::{Deserialize, Serialize};
use support::on_every_transport;

fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

fn both_post_their_receives_first() {
    let body = |seed: usize| {
        move |group: &CollectiveGroup| {
            let received: Vec<_> = (0..20)
                .map(|_| group.recv_async::<Tensor>().unwrap())
                .collect();
            for index in 0..20 {
                group.send(&tensor(seed + index, 1000 * index)).unwrap();
            }
            received
                .into_iter()
                .map(|work| values(&work.take().unwrap().message).to_vec())
                .collect::<Vec<_>>()
        }
    };
    let (left, right) = pair(body(0), body(500));
    for index in 0..20 {
        assert_eq!(left[index], values(&tensor(500 + index, 1000 * index)));
        assert_eq!(right[index], values(&tensor(index, 1000 * index)));
    }
}

fn both_post_their_sends_first() {
    let body = |seed: usize| {
        move |group: &CollectiveGroup| {
            let sent: Vec<_> = (0..20)
                .map(|index| {
                    group
                        .send_async(&tensor(seed + index, 3000 * index))
                        .unwrap()
                })
                .collect();
            for index in 0..20 {
                let got = group.recv::<Tensor>().unwrap().message;
                assert_eq!(
                    values(&got),
                    values(&tensor(1 - seed + index, 3000 * index))
                );
            }
            sent.iter().for_each(|work| work.wait().unwrap());
        }
    };
    pair(body(0), body(1));
}

/// What is done at place `index` of the order; sizes from nothing to many steps.
fn len(index: usize) -> usize {
    [0, 1, 14, 15, 300, 5000, 40_000][index % 7]
}

fn post_send(group: &CollectiveGroup, index: usize) -> Work<()> {
    let tensor = tensor(index, len(index));
    match index % 4 {
        0 => group.send_async(&tensor).unwrap(),
        1 => group.send_tensor_async(&tensor).unwrap(),
        2 => group
            .send_async(&(index, format!("number {index}")))
            .unwrap(),
        _ => group
            .send_async(&BTreeMap::from([("index", (index, tensor))]))
            .unwrap(),
    }
}

fn post_recv(group: &CollectiveGroup, index: usize) -> Work<()> {
    let want = tensor(index, len(index));
    let same = move |got: &Tensor| {
        assert_eq!(values(got), values(&want), "message {index}");
        Ok(())
    };
    match index % 4 {
        0 => group
            .recv_async::<Tensor>()
            .unwrap()
            .map(move |got| same(&got?.message)),
        1 => {
            let buffer = TensorMut::zeros(DType::U32, &[len(index)]).unwrap();
            let work = group.recv_tensor_async(buffer).unwrap();
            work.map(move |got| same(&got?.freeze()))
        }
        2 => group
            .recv_async::<(usize, String)>()
            .unwrap()
            .map(move |got| {
                assert_eq!(got?.message, (index, format!("number {index}")));
                Ok(())
            }),
        _ => group
            .recv_async::<BTreeMap<String, (usize, Tensor)>>()
            .unwrap()
            .map(move |got| same(&got?.message["index"].1)),
    }
}

fn a_hundred_of_everything_in_opposite_post_orders() {
    const COUNT: usize = 100;
    let (_, _) = pair(
        |group| {
            // All sends, then all receives.
            let mut works: Vec<_> = (0..COUNT).map(|index| post_send(group, index)).collect();
            works.extend((0..COUNT).map(|index| post_recv(group, index)));
            let all: CollWork = works.iter().map(Work::as_async_work).collect();
            all.wait().unwrap();
            works.iter().for_each(|work| work.wait().unwrap());
        },
        |group| {
            // All receives, then all sends; waited for from the last to the first.
            let mut works: Vec<_> = (0..COUNT).map(|index| post_recv(group, index)).collect();
            works.extend((0..COUNT).map(|index| post_send(group, index)));
            for (index, work) in works.into_iter().enumerate().rev() {
                if index % 2 == 0 {
                    work.wait().unwrap();
                } else {
                    block_on(work).unwrap();
                }
            }
        },
    );
}

fn interleaved_posts_and_blocking_calls_keep_one_order() {
    pair(
        |group| {
            for index in 0..100 {
                let sent = post_send(group, index);
                let received = post_recv(group, index);
                if index % 10 == 9 {
                    // Drains what was posted before.
                    received.wait().unwrap();
                    sent.wait().unwrap();
                }
            }
            group.send("end").unwrap();
        },
        |group| {
            let mut received = Vec::new();
            for index in 0..100 {
                received.push(post_recv(group, index));
                post_send(group, index).detach();
            }
            assert_eq!(group.recv::<String>().unwrap().message, "end");
            received.iter().for_each(|work| work.wait().unwrap());
        },
    );
}

fn handles_that_are_dropped_still_make_progress() {
    pair(
        |group| {
            for index in 0..50 {
                drop(group.send_async(&tensor(index, len(index))).unwrap());
            }
            for index in 0..50 {
                drop(group.recv_async::<usize>().unwrap().map(move |got| {
                    assert_eq!(got?.message, index);
                    Ok(())
                }));
            }
            assert_eq!(group.recv::<String>().unwrap().message, "end");
        },
        |group| {
            for index in 0..50_usize {
                let got = group.recv::<Tensor>().unwrap().message;
                assert_eq!(values(&got), values(&tensor(index, len(index))));
                group.send(&index).unwrap();
            }
            group.send("end").unwrap();
        },
    );
}

fn waits_repeat_and_mix_with_futures_and_continuations() {
    pair(
        |group| {
            let work = group.recv_async::<u32>().unwrap();
            let doubled = FuncWork::after(&work, |got: &Result<Received<u32>, _>| {
                Ok(got.as_ref().map_err(Clone::clone)?.message * 2)
            });
            let answered = {
                let group = group.clone();
                FuncWork::chain(&doubled, move |doubled| {
                    group.send_async(doubled.as_ref().map_err(Clone::clone)?)
                })
            };
            work.wait().unwrap();
            assert_eq!(work.wait_timeout(Duration::ZERO).unwrap(), Waited::Done);
            block_on(work.wait_async()).unwrap();
            work.wait().unwrap();
            assert_eq!(block_on(work).unwrap().message, 21);
            block_on(answered.wait_async()).unwrap();
            answered.wait().unwrap();
        },
        |group| {
            let sent = group.send_async(&21_u32).unwrap();
            assert_eq!(group.recv::<u32>().unwrap().message, 42);
            sent.wait().unwrap();
            sent.wait().unwrap();
        },
    );
}

fn several_threads_may_submit_to_one_direction() {
    const THREADS: usize = 4;
    const EACH: usize = 50;
    pair(
        |group| {
            thread::scope(|scope| {
                for thread in 0..THREADS {
                    scope.spawn(move || {
                        for index in 0..EACH {
                            let message = (thread, index, tensor(index, len(index)));
                            if index % 3 == 0 {
                                group.send(&message).unwrap();
                            } else {
                                group.send_async(&message).unwrap().detach();
                            }
                        }
                    });
                }
            });
            group.recv::<()>().unwrap();
        },
        |group| {
            let mut next = [0; THREADS];
            for _ in 0..THREADS * EACH {
                let (thread, index, got) = group.recv::<(usize, usize, Tensor)>().unwrap().message;
                assert_eq!(
                    index, next[thread],
                    "messages of one thread keep their order"
                );
                next[thread] += 1;
                assert_eq!(values(&got), values(&tensor(index, len(index))));
            }
            group.send(&()).unwrap();
        },
    );
}

fn every_kind_arrives_as_what_it_was() {
    #[derive(Clone, Debug, Serialize, Deserialize)]
    struct Trajectory {
        episode: u64,
        observations: Vec<BTreeMap<String, Tensor>>,
        policy: Option<(String, Tensor)>,
    }
    let made = || {
        let shared = tensor(9, 20_000);
        Trajectory {
            episode: 17,
            observations: (0..5)
                .map(|step| {
                    BTreeMap::from([
                        ("image".to_owned(), tensor(step, 3 * 64 * 64)),
                        ("shared".to_owned(), shared.clone()),
                    ])
                })
                .collect(),
            policy: Some(("actor".to_owned(), shared)),
        }
    };
    pair(
        move |group| {
            group.send(&made()).unwrap();
            group.send(&vec![tensor(1, 10), tensor(2, 0)]).unwrap();
            group.send(&(0..100_000_u64).collect::<Vec<_>>()).unwrap();
        },
        move |group| {
            let got = group.recv::<Trajectory>().unwrap().message;
            let want = made();
            assert_eq!(got.episode, want.episode);
            for (got, want) in got.observations.iter().zip(&want.observations) {
                assert_eq!(values(&got["image"]), values(&want["image"]));
            }
            let shared = got.policy.unwrap().1;
            assert!(Arc::ptr_eq(
                shared.storage(),
                got.observations[4]["shared"].storage()
            ));
            let (one, two) = group.recv::<(Tensor, Tensor)>().unwrap().message;
            assert_eq!(
                (values(&one), two.shape()),
                (values(&tensor(1, 10)), &[0][..])
            );
            let numbers = group.recv::<Vec<u64>>().unwrap().message;
            assert_eq!(numbers, (0..100_000).collect::<Vec<_>>());
        },
    );
}

fn all_element_types_move() {
    let made = |dtype: DType| {
        let mut tensor = TensorMut::zeros(dtype, &[3, 5]).unwrap();
        for (index, byte) in tensor.as_mut_bytes().unwrap().iter_mut().enumerate() {
            *byte = (index * 37) as u8 & if dtype == DType::Bool { 1 } else { 0xff };
        }
        tensor.freeze()
    };
    pair(
        move |group| {
            for dtype in DType::ALL {
                group.send(&made(dtype)).unwrap();
                group.send_tensor(&made(dtype)).unwrap();
            }
        },
        move |group| {
            for dtype in DType::ALL {
                let want = made(dtype);
                let got = group.recv::<Tensor>().unwrap().message;
                assert_eq!((got.dtype(), got.shape()), (dtype, &[3, 5][..]));
                assert_eq!(got.as_bytes().unwrap(), want.as_bytes().unwrap());
                let buffer = TensorMut::zeros(dtype, &[3, 5]).unwrap();
                let got = group.recv_tensor(buffer).unwrap();
                assert_eq!(got.as_bytes().unwrap(), want.as_bytes().unwrap());
            }
        },
    );
}

on_every_transport! {
    both_post_their_receives_first,
    both_post_their_sends_first,
    a_hundred_of_everything_in_opposite_post_orders,
    interleaved_posts_and_blocking_calls_keep_one_order,
    handles_that_are_dropped_still_make_progress,
    waits_repeat_and_mix_with_futures_and_continuations,
    several_threads_may_submit_to_one_direction,
    every_kind_arrives_as_what_it_was,
    all_element_types_move,
}
