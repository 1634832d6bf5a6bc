//! What goes wrong is said on every rank, with the names of those concerned; nothing hangs.

mod support;

use std::thread;
use std::time::Duration;

use comm_api::{Error, ErrorKind, ReduceOp, Result, Tensor, TensorMut};
use support::{on_every_rank, on_every_transport, single_threaded, with_ranks};

/// Every rank failed, and every text names all of `names`.
fn all_name(errors: &[Error], kinds: &[ErrorKind], names: &[&str]) {
    for error in errors {
        let text = error.to_string();
        assert!(kinds.contains(&error.kind()), "{text}");
        for name in names {
            assert!(text.contains(name), "'{name}' is missing in: {text}");
        }
    }
}

fn different_collectives_are_reported_with_both_sides() {
    let errors = with_ranks(2, |comm| {
        if comm.rank() == 0 {
            comm.all_reduce(&mut [1_f32; 10], ReduceOp::Sum)
                .unwrap_err()
        } else {
            comm.broadcast(&mut [1_f32; 10], 0).unwrap_err()
        }
    })
    .unwrap();
    all_name(
        &errors,
        &[ErrorKind::Mismatch],
        &["all_reduce", "broadcast", "rank 0", "rank 1"],
    );
}

fn collectives_whose_edges_never_meet_are_reported_too() {
    // The root of a large broadcast to its neighbour only sends; a ring all-reduce of three ranks
    // waits for another edge.
    let errors = with_ranks(3, |comm| {
        if comm.rank() == 2 {
            comm.broadcast(&mut vec![0_u8; 1 << 20], 0).unwrap_err()
        } else {
            let result = comm.all_reduce(&mut vec![0_u8; 1 << 20], ReduceOp::Max);
            result.and_then(|()| comm.barrier()).unwrap_err()
        }
    })
    .unwrap();
    all_name(
        &errors,
        &[ErrorKind::Mismatch, ErrorKind::Poisoned],
        &["all_reduce", "broadcast"],
    );
}

fn different_counts_of_a_small_and_of_a_large_collective_are_reported() {
    for base in [3, 100_000] {
        let errors = with_ranks(2, move |comm| {
            let count = base + comm.rank() as usize;
            comm.all_reduce(&mut vec![1_i64; count], ReduceOp::Sum)
                .unwrap_err()
        })
        .unwrap();
        let (first, second) = (base.to_string(), (base + 1).to_string());
        all_name(
            &errors,
            &[ErrorKind::Mismatch],
            &[&first, &second, "rank 0", "rank 1"],
        );
    }
}

fn a_circle_in_which_several_threads_take_part_is_left_to_the_user() {
    // The other thread of rank 0 could still send what rank 1 waits for, so the circle is only warned
    // of.
    let errors = with_ranks(2, |comm| {
        if comm.rank() == 0 {
            thread::scope(|scope| scope.spawn(|| comm.send(&[1_f64], 1)).join().unwrap()).unwrap();
            comm.all_reduce(&mut [1_f32], ReduceOp::Sum)
                .and_then(|()| comm.barrier())
                .unwrap_err()
        } else {
            comm.recv(&mut [0_f64], 0).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(Duration::from_millis(1500));
                    comm.abort();
                });
                comm.recv(&mut [0_f32], 0).unwrap_err()
            })
        }
    })
    .unwrap();
    all_name(&errors, &[ErrorKind::Aborted], &["rank 1 called abort()"]);
}

/// Longer than a circle must stand to count as one.
const COMPUTING: Duration = Duration::from_millis(900);

fn operations_that_nobody_waits_for_yet_are_no_circle() {
    const COUNT: usize = 3 << 20;
    single_threaded(|comm| {
        let peer = 1 - comm.rank();
        let own = vec![comm.rank() as u8 + 1; COUNT];
        // Both send and compute, and receive afterwards.
        let sent = Tensor::from_vec(own.clone(), &[COUNT]).unwrap();
        let send = comm.send_async(&sent, peer).unwrap();
        thread::sleep(COMPUTING);
        let mut got = vec![0; COUNT];
        comm.recv(&mut got, peer).unwrap();
        assert!(got.iter().all(|value| *value == peer as u8 + 1));
        send.wait().unwrap();
        // Both receive and compute, and send afterwards.
        let into = TensorMut::from_vec(vec![0_u8; COUNT], &[COUNT]).unwrap();
        let receive = comm.recv_async(into, peer).unwrap();
        thread::sleep(COMPUTING);
        comm.send(&own, peer).unwrap();
        let got = receive.take().unwrap();
        let got: &[u8] = got.as_slice().unwrap();
        assert!(got.iter().all(|value| *value == peer as u8 + 1));
        // One begins a collective and computes, before it sends what the other one waits for.
        if comm.rank() == 0 {
            let into = TensorMut::from_vec(vec![1_u32; 10], &[10]).unwrap();
            let reduce = comm.all_reduce_async(into, ReduceOp::Sum).unwrap();
            thread::sleep(COMPUTING);
            comm.send(&[7_u8], 1).unwrap();
            assert_eq!(reduce.take().unwrap().as_slice::<u32>().unwrap(), [2; 10]);
        } else {
            let mut got = [0_u8];
            comm.recv(&mut got, 0).unwrap();
            let mut sum = [1_u32; 10];
            comm.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
            assert_eq!((got, sum), ([7], [2; 10]));
        }
    });
}

fn a_circle_of_handles_that_are_waited_for_is_reported() {
    single_threaded(|comm| {
        let peer = 1 - comm.rank();
        let into = TensorMut::from_vec(vec![0_u8; 10], &[10]).unwrap();
        let error = comm.recv_async(into, peer).unwrap().wait().unwrap_err();
        assert!(error.to_string().contains("in a circle"), "{error}");
    });
}

fn different_roots_are_reported_by_the_operation_that_meets_the_leftover_step() {
    let errors = with_ranks(2, |comm| {
        // Connected edges: whoever waits for one in its broadcast tells the other one that it does.
        for root in 0..2 {
            comm.broadcast(&mut [1_f32; 10], root).unwrap();
        }
        comm.barrier().unwrap();
        let result = comm.broadcast(&mut [1_f32; 10], comm.rank());
        result.and_then(|()| comm.barrier()).unwrap_err()
    })
    .unwrap();
    let kinds = [ErrorKind::Mismatch, ErrorKind::Poisoned];
    all_name(
        &errors,
        &kinds,
        &["broadcast", "barrier", "rank 0", "rank 1"],
    );
}

fn a_deadline_names_the_rank_that_did_not_come() {
    let comms = support::init_all_with(3, |builder| {
        builder.operation_timeout(Some(Duration::from_millis(300)))
    })
    .unwrap();
    let errors = on_every_rank(comms, |comm| {
        if comm.rank() == 1 {
            // Comes too late, however slow the others are.
            while comm.failure().is_none() {
                thread::sleep(Duration::from_millis(10));
            }
        }
        comm.barrier().unwrap_err()
    });
    // The rank that comes too late learns the cause as well.
    all_name(&errors, &[ErrorKind::Timeout], &["barrier"]);
}

fn abort_from_another_thread_ends_a_blocked_call_on_every_rank() {
    let errors = with_ranks(2, |comm| {
        if comm.rank() == 0 {
            thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(Duration::from_millis(100));
                    comm.abort();
                    comm.abort();
                });
                comm.recv(&mut [0_u8; 100], 1).unwrap_err()
            })
        } else {
            comm.recv(&mut [0_u8; 100], 0).unwrap_err()
        }
    })
    .unwrap();
    all_name(&errors, &[ErrorKind::Aborted], &["rank 0 called abort()"]);
}

fn after_a_failure_every_call_repeats_the_first_cause() {
    with_ranks(2, |comm| {
        if comm.rank() == 0 {
            comm.abort();
        }
        let error = comm.recv(&mut [0_u8], 1 - comm.rank()).unwrap_err();
        assert!(error.to_string().contains("abort()"), "{error}");
        let later: [Result<()>; 4] = [
            comm.barrier(),
            comm.send(&[1_u8], 1 - comm.rank()),
            comm.all_reduce(&mut [1_u8], ReduceOp::Sum),
            comm.send_async(&Tensor::from_vec(vec![1_u8], &[1]).unwrap(), 0)
                .and_then(|work| work.take()),
        ];
        for result in later {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Poisoned);
            assert!(
                error.to_string().contains("rank 0 called abort()"),
                "{error}"
            );
        }
        assert_eq!(comm.failure().unwrap().kind(), ErrorKind::Aborted);
    })
    .unwrap();
}

fn a_rank_that_leaves_ends_those_that_wait_for_it() {
    let comms = support::init_all(2).unwrap();
    let mut comms = comms.into_iter();
    let (first, second) = (comms.next().unwrap(), comms.next().unwrap());
    let waiting = thread::spawn(move || first.recv(&mut [0_u8; 4], 1).unwrap_err());
    thread::sleep(Duration::from_millis(100));
    drop(second);
    let error = waiting.join().unwrap();
    assert_eq!(error.kind(), ErrorKind::PeerDied, "{error}");
    assert!(error.to_string().contains("rank 1"), "{error}");
}

fn a_panicking_rank_counts_as_dead() {
    let mut comms = support::init_all(2).unwrap().into_iter();
    let (first, second) = (comms.next().unwrap(), comms.next().unwrap());
    let waiting = thread::spawn(move || first.barrier().unwrap_err());
    let panicking = thread::spawn(move || {
        let _second = second;
        panic!("expected in this test");
    });
    assert!(panicking.join().is_err());
    let error = waiting.join().unwrap();
    assert_eq!(error.kind(), ErrorKind::PeerDied, "{error}");
    assert!(error.to_string().contains("rank 1 panicked"), "{error}");
}

fn settings_that_must_agree_and_do_not_are_an_error_on_every_rank() {
    let step = std::sync::atomic::AtomicUsize::new(0);
    let result = support::init_all_with(3, |builder| {
        let turn = step.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        builder.step_bytes(if turn == 1 { 8192 } else { 4096 })
    });
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
    let text = error.to_string();
    assert!(
        text.contains("COMM_STEP_BYTES") && text.contains("8192"),
        "{text}"
    );
}

fn a_transport_that_is_not_compiled_in_is_refused_with_the_list_of_those_that_are() {
    let result = support::init_all_with(2, |builder| {
        builder.only_transports(vec!["telegraph".to_owned()])
    });
    let text = result.unwrap_err().to_string();
    assert!(text.contains("telegraph"), "{text}");
    for name in comm_api::compiled_transports() {
        assert!(text.contains(name), "{text}");
    }
}

#[cfg(target_os = "linux")]
fn a_rank_blocked_in_recv_costs_no_cpu() {
    fn cpu_time() -> Duration {
        let time = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        Duration::from_nanos(time.split(' ').next().unwrap().parse().unwrap())
    }
    // What a hypervisor takes away counts as used, so one good time of several is enough.
    let used = with_ranks(2, |comm| {
        let mut least = Duration::MAX;
        for _ in 0..3 {
            if comm.rank() == 1 {
                thread::sleep(Duration::from_secs(1));
                comm.send(&[1_u8], 0).unwrap();
                least = Duration::ZERO;
            } else {
                let before = cpu_time();
                comm.recv(&mut [0_u8], 1).unwrap();
                least = least.min(cpu_time() - before);
            }
        }
        least
    })
    .unwrap();
    let used = used.into_iter().max();
    assert!(
        used < Some(Duration::from_millis(100)),
        "blocked for 1 s and used {used:?}"
    );
}

on_every_transport! {
    different_collectives_are_reported_with_both_sides,
    collectives_whose_edges_never_meet_are_reported_too,
    different_counts_of_a_small_and_of_a_large_collective_are_reported,
    different_roots_are_reported_by_the_operation_that_meets_the_leftover_step,
    a_circle_in_which_several_threads_take_part_is_left_to_the_user,
    operations_that_nobody_waits_for_yet_are_no_circle,
    a_circle_of_handles_that_are_waited_for_is_reported,
    a_deadline_names_the_rank_that_did_not_come,
    abort_from_another_thread_ends_a_blocked_call_on_every_rank,
    after_a_failure_every_call_repeats_the_first_cause,
    a_rank_that_leaves_ends_those_that_wait_for_it,
    a_panicking_rank_counts_as_dead,
    settings_that_must_agree_and_do_not_are_an_error_on_every_rank,
    a_transport_that_is_not_compiled_in_is_refused_with_the_list_of_those_that_are,
    a_rank_blocked_in_recv_costs_no_cpu,
}
