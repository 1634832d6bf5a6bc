//! An operation is taken care of however its user waits for it, and whatever else is going on.

mod group_support;
mod support;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use comm_api::{
    Builder, DType, ErrorKind, FrameHead, FrameOptions, ReduceOp, Tensor, TensorMut, Waited, Work,
};
use support::{init_all_with, on_every_rank, on_every_transport, with_ranks};

/// How long operations may take where they are to take too long.
fn short(builder: Builder) -> Builder {
    builder.operation_timeout(Some(Duration::from_millis(300)))
}

fn zeros(count: usize) -> TensorMut {
    TensorMut::zeros(DType::F32, &[count]).unwrap()
}

fn zeros_u8(count: usize) -> Tensor {
    Tensor::from_vec(vec![0_u8; count], &[count]).unwrap()
}

/// Looks again and again, without ever waiting, until the work fails.
fn polled<T: Send + 'static>(work: &Work<T>) -> comm_api::Error {
    loop {
        match work.wait_timeout(Duration::ZERO) {
            Ok(Waited::TimedOut) => {}
            Ok(Waited::Done) => panic!("nobody has sent anything"),
            Err(error) => return error,
        }
    }
}

fn a_deadline_passes_also_while_its_user_only_polls() {
    let body: [fn(&comm_api::Communicator) -> comm_api::Error; 3] = [
        |comm| polled(&comm.recv_async(zeros(100), 1).unwrap()),
        |comm| polled(&comm.all_reduce_async(zeros(100), ReduceOp::Sum).unwrap()),
        |comm| {
            let open = |_: &FrameHead<'_>| Ok(Vec::new());
            polled(&comm.recv_frame(1, open, &FrameOptions::new()).unwrap())
        },
    ];
    for wait in body {
        let comms = init_all_with(2, short).unwrap();
        let done = Arc::new(std::sync::Barrier::new(2));
        on_every_rank(comms, move |comm| {
            if comm.rank() == 0 {
                assert_eq!(wait(comm).kind(), ErrorKind::Timeout);
            }
            done.wait();
        });
    }
}

fn a_continuation_may_wait_for_another_lane_that_somebody_else_drives() {
    with_ranks(2, |comm| {
        let peer = 1 - comm.rank();
        if comm.rank() == 0 {
            let message = comm.recv_async(zeros(1), peer).unwrap();
            let first = comm.all_reduce_async(zeros(100), ReduceOp::Sum).unwrap();
            let second = comm.all_reduce_async(zeros(100), ReduceOp::Sum).unwrap();
            let answer = message.then(move |_| second.wait());
            thread::scope(|scope| {
                scope.spawn(|| first.wait().unwrap());
                while !answer.is_done() {
                    thread::sleep(Duration::from_millis(1));
                }
            });
            answer.take().unwrap().unwrap();
        } else {
            thread::sleep(Duration::from_millis(50));
            comm.send(&[1_f32], peer).unwrap();
            thread::sleep(Duration::from_millis(100));
            for _ in 0..2 {
                comm.all_reduce(&mut [1_f32; 100], ReduceOp::Sum).unwrap();
            }
        }
    })
    .unwrap();
}

fn what_a_blocked_continuation_keeps_a_worker_from_is_done_by_another_thread() {
    with_ranks(2, |comm| {
        let peer = 1 - comm.rank();
        let sum = comm.all_reduce_async(zeros(100), ReduceOp::Sum).unwrap();
        if comm.rank() == 0 {
            let message = comm.recv_async(zeros(1), peer).unwrap();
            let own = comm.clone();
            // Of the same worker as the collective, which nobody waits for.
            let answer = message.then(move |_| own.recv(&mut [0_u8; 1000], own.rank()));
            let sends = comm.clone();
            let answered = sum.then(move |_| sends.send_async(&zeros_u8(1000), sends.rank()));
            while !answer.is_done() {
                thread::sleep(Duration::from_millis(1));
            }
            answer.take().unwrap().unwrap();
            answered.take().unwrap().unwrap().wait().unwrap();
        } else {
            comm.send(&[1_f32], peer).unwrap();
            thread::sleep(Duration::from_millis(100));
            sum.wait().unwrap();
        }
    })
    .unwrap();
}

fn a_continuation_may_wait_for_what_comes_behind_it_while_a_group_comes_together() {
    group_support::pair(
        |group| {
            let cancelled = group.recv_async::<u64>().unwrap();
            // Its turn comes when the group does, and it ends in it.
            assert!(cancelled.cancel());
            let own = group.clone();
            let sent = cancelled.then(move |_| own.send(&5_u64));
            sent.take().unwrap().unwrap();
        },
        |group| {
            thread::sleep(Duration::from_millis(50));
            assert_eq!(group.recv::<u64>().unwrap().into_message(), 5);
        },
    );
}

fn drop_first_done<T: Send + 'static>(works: &mut VecDeque<Work<T>>) {
    if works.front().is_some_and(Work::is_done) {
        works.pop_front();
    }
}

/// Panics when it is woken.
struct Rash;

impl Wake for Rash {
    fn wake(self: Arc<Self>) {
        panic!("woken, on purpose");
    }
}

/// Panics when it is dropped on a worker's thread.
struct Fragile;

impl Drop for Fragile {
    fn drop(&mut self) {
        if thread::current().name() == Some("comm-worker") {
            panic!("dropped, on purpose");
        }
    }
}

fn a_panic_in_foreign_code_keeps_a_worker_from_nothing() {
    with_ranks(2, |comm| {
        let peer = 1 - comm.rank();
        if comm.rank() == 0 {
            let mut works: Vec<_> = (0..3)
                .map(|_| comm.recv_async(zeros(1), peer).unwrap())
                .collect();
            let waker = Waker::from(Arc::new(Rash));
            let first = Pin::new(&mut works[0]);
            assert!(first.poll(&mut Context::from_waker(&waker)).is_pending());
            let second = works.remove(1);
            drop(second.map(|result| result.map(|_| Fragile)));
            comm.barrier().unwrap();
            while works.iter().any(|work| !work.is_done()) {
                thread::sleep(Duration::from_millis(1));
            }
        } else {
            comm.barrier().unwrap();
            for _ in 0..3 {
                comm.send(&[1_f32], peer).unwrap();
            }
        }
        comm.barrier().unwrap();
    })
    .unwrap();
}

fn a_deadline_passes_while_other_operations_go_on() {
    const COUNT: usize = 1 << 18;
    let comms = init_all_with(2, short).unwrap();
    on_every_rank(comms, |comm| {
        let peer = 1 - comm.rank();
        // Some are always under way, and nobody waits for them.
        let mut under_way = VecDeque::new();
        if comm.rank() == 0 {
            let late = comm.all_reduce_async(zeros(100), ReduceOp::Sum).unwrap();
            while !late.is_done() {
                while under_way.len() < 8
                    && let Ok(work) = comm.recv_async(zeros(COUNT), peer)
                {
                    under_way.push_back(work);
                }
                drop_first_done(&mut under_way);
                thread::sleep(Duration::from_micros(100));
            }
            assert_eq!(late.take().unwrap_err().kind(), ErrorKind::Timeout);
        } else {
            let data = Tensor::from_vec(vec![1_f32; COUNT], &[COUNT]).unwrap();
            while comm.failure().is_none() {
                while under_way.len() < 8
                    && let Ok(work) = comm.send_async(&data, peer)
                {
                    under_way.push_back(work.map(|result| result.map(|()| zeros(0))));
                }
                drop_first_done(&mut under_way);
                thread::sleep(Duration::from_micros(100));
            }
        }
    });
}

on_every_transport!(
    a_deadline_passes_also_while_its_user_only_polls,
    a_continuation_may_wait_for_another_lane_that_somebody_else_drives,
    what_a_blocked_continuation_keeps_a_worker_from_is_done_by_another_thread,
    a_continuation_may_wait_for_what_comes_behind_it_while_a_group_comes_together,
    a_panic_in_foreign_code_keeps_a_worker_from_nothing,
    a_deadline_passes_while_other_operations_go_on,
);
