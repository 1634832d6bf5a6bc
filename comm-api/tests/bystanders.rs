//! What may act for a rank beside the thread that waits, so that no circle is certain: functions that
//! hang on operations, tasks of other threads, and operations that are under way.

mod support;

use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use comm_api::{
    Algorithm, Builder, CollWork, Communicator, FuncWork, Received, RecvOptions, ReduceOp, Result,
    SendOptions, Tensor, TensorMut, Work,
};
use support::{builders, on_every_transport, single_threaded, single_threaded_with};

/// Longer than a circle must stand to count as one.
const COMPUTING: Duration = Duration::from_millis(1000);

fn bytes(count: usize, value: u8) -> TensorMut {
    TensorMut::from_vec(vec![value; count], &[count]).unwrap()
}

/// Answers rank 1 when a message of `asker` has come, after some computing.
fn answer(comm: &Communicator, asker: u32) -> FuncWork<()> {
    let asked = comm.recv_async(bytes(1, 0), asker).unwrap();
    let comm = comm.clone();
    FuncWork::chain(&asked, move |asked: &Result<TensorMut>| {
        let _ = asked.as_ref().map_err(Clone::clone)?;
        thread::sleep(COMPUTING);
        comm.send_async(&bytes(1, 7).freeze(), 1)
    })
}

fn receive_answer(comm: &Communicator) {
    let mut got = [0_u8];
    comm.recv(&mut got, 0).unwrap();
    assert_eq!(got, [7]);
}

fn a_function_that_computes_before_it_answers_is_no_circle() {
    single_threaded(|comm| {
        if comm.rank() == 0 {
            let answered = answer(comm, 1);
            comm.barrier().unwrap();
            answered.wait().unwrap();
        } else {
            comm.send(&[1_u8], 0).unwrap();
            receive_answer(comm);
            comm.barrier().unwrap();
        }
    });
}

fn a_function_that_waits_for_a_third_rank_is_no_circle() {
    single_threaded_with(builders(3), |comm| match comm.rank() {
        0 => {
            let answered = answer(comm, 2);
            comm.recv(&mut [0_u8], 1).unwrap();
            answered.wait().unwrap();
        }
        1 => {
            receive_answer(comm);
            comm.send(&[1_u8], 0).unwrap();
        }
        _ => {
            thread::sleep(COMPUTING);
            comm.send(&[1_u8], 0).unwrap();
        }
    });
}

fn a_function_behind_several_works_is_no_circle() {
    single_threaded(|comm| {
        if comm.rank() == 0 {
            let first = comm.recv_async(bytes(1, 0), 1).unwrap();
            let both = CollWork::new([first.as_async_work()]);
            let answering = comm.clone();
            let answered = both.then(move |_| {
                thread::sleep(COMPUTING);
                answering.send(&[7_u8], 1)
            });
            comm.barrier().unwrap();
            answered.take().unwrap().unwrap();
        } else {
            comm.send(&[1_u8], 0).unwrap();
            receive_answer(comm);
            comm.barrier().unwrap();
        }
    });
}

fn a_function_that_hangs_on_a_message_of_a_group_is_no_circle() {
    // Large enough to be unpacked on a thread of its own.
    const COUNT: usize = 3 << 20;
    single_threaded(|comm| {
        let group = comm.as_group("bystanders").unwrap();
        if comm.rank() == 0 {
            let asked = group.recv_async_with::<Tensor>(RecvOptions::new().from(1));
            let answering = group.clone();
            let answered =
                FuncWork::chain(&asked.unwrap(), move |asked: &Result<Received<Tensor>>| {
                    let tensor = asked.as_ref().map_err(Clone::clone)?.message.clone();
                    thread::sleep(COMPUTING);
                    answering.send_async_with(&tensor, &SendOptions::new().to(1))
                });
            comm.barrier().unwrap();
            answered.wait().unwrap();
        } else {
            let tensor = bytes(COUNT, 3).freeze();
            let sent = group.send_async_with(&tensor, &SendOptions::new().to(0));
            let got = group.recv_with::<Tensor>(RecvOptions::new().from(0));
            let got = got.unwrap().into_message();
            assert!(got.as_slice::<u8>().unwrap().iter().all(|byte| *byte == 3));
            sent.unwrap().wait().unwrap();
            comm.barrier().unwrap();
        }
    });
}

fn a_task_of_another_thread_is_no_circle() {
    single_threaded(|comm| {
        if comm.rank() == 0 {
            let (polled, is_polled) = mpsc::channel();
            let mut asked = comm.recv_async(bytes(1, 0), 1).unwrap();
            thread::scope(|scope| {
                scope.spawn(move || {
                    let mut context = Context::from_waker(Waker::noop());
                    while pin!(&mut asked).poll(&mut context).is_pending() {
                        let _ = polled.send(());
                        thread::sleep(Duration::from_millis(10));
                    }
                    thread::sleep(COMPUTING);
                    comm.send(&[7_u8], 1).unwrap();
                });
                is_polled.recv().unwrap();
                comm.barrier().unwrap();
            });
        } else {
            thread::sleep(COMPUTING / 10);
            comm.send(&[1_u8], 0).unwrap();
            receive_answer(comm);
            comm.barrier().unwrap();
        }
    });
}

fn a_message_that_was_begun_and_is_late_is_no_circle() {
    const COUNT: usize = 3 << 20;
    single_threaded_with(builders(3), |comm| match comm.rank() {
        0 => {
            // What comes after it in the same thread of the library has to wait.
            let slow = comm.send_async(&bytes(1, 1).freeze(), 2).unwrap();
            let slow: Work<()> = slow.map(|sent| {
                thread::sleep(COMPUTING);
                sent
            });
            let large = comm.send_async(&bytes(COUNT, 2).freeze(), 1).unwrap();
            comm.recv(&mut [0_u8], 1).unwrap();
            large.wait().unwrap();
            slow.wait().unwrap();
        }
        1 => {
            let mut got = vec![0_u8; COUNT];
            comm.recv(&mut got, 0).unwrap();
            comm.send(&[1_u8], 0).unwrap();
        }
        _ => comm.recv(&mut [0_u8], 0).unwrap(),
    });
}

fn a_circle_that_leads_through_a_collective_nobody_waits_for_is_reported() {
    // In a ring rank 1 waits for rank 0 only, and that for rank 2.
    let ring = |builder: Builder| builder.algorithms([Algorithm::Ring]);
    let builders = builders(3).into_iter().map(ring).collect();
    single_threaded_with(builders, |comm| {
        let error = match comm.rank() {
            0 => {
                let begun = comm
                    .all_reduce_async(bytes(3000, 1), ReduceOp::Sum)
                    .unwrap();
                while comm.failure().is_none() {
                    thread::sleep(Duration::from_millis(10));
                }
                begun.wait().unwrap_err()
            }
            1 => comm
                .all_reduce(&mut [1_u8; 3000], ReduceOp::Sum)
                .unwrap_err(),
            _ => comm.recv(&mut [0_u8], 1).unwrap_err(),
        };
        assert!(error.to_string().contains("in a circle"), "{error}");
    });
}

fn a_function_that_hangs_on_what_is_in_the_circle_changes_nothing() {
    single_threaded(|comm| {
        let received = comm.recv_async(bytes(1, 0), 1 - comm.rank()).unwrap();
        received.then(|_| ()).detach();
        let error = received.wait().unwrap_err();
        assert!(error.to_string().contains("in a circle"), "{error}");
    });
}

on_every_transport! {
    a_function_that_computes_before_it_answers_is_no_circle,
    a_function_that_waits_for_a_third_rank_is_no_circle,
    a_function_behind_several_works_is_no_circle,
    a_function_that_hangs_on_a_message_of_a_group_is_no_circle,
    a_task_of_another_thread_is_no_circle,
    a_message_that_was_begun_and_is_late_is_no_circle,
    a_circle_that_leads_through_a_collective_nobody_waits_for_is_reported,
    a_function_that_hangs_on_what_is_in_the_circle_changes_nothing,
}
