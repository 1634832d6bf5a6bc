//! What goes wrong in a group is told on both sides, ends one direction, and leaves the rest alone.

mod group_support;
mod support;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use comm_api::{
    CollectiveGroup, DType, Error, ErrorKind, RecvOptions, SendOptions, Tensor, TensorMut,
    UniqueId, Worker,
};
use comm_runtime::control::ProcessOptions;
use comm_runtime::control::rendezvous::LocalRendezvous;
use group_support::{address, on_each, pair, tensor, values, workers};
use support::on_every_transport;

/// Every text names group, workers, ranks and what else is given.
fn all_name(errors: &[&Error], names: &[&str]) {
    for error in errors {
        let text = error.to_string();
        let everywhere = [
            "group=cg-left:0-right:0",
            "=left:0",
            "=right:0",
            "rank=1",
            "operation=recv_frame from rank 0",
            "sequence=0",
        ];
        for name in everywhere.iter().chain(names) {
            assert!(text.contains(name), "'{name}' is missing in: {text}");
        }
    }
}

/// The other direction still works: the second worker sends.
fn other_direction(group: &CollectiveGroup) {
    if group.rank() == 1 {
        group.send(&tensor(3, 20_000)).unwrap();
    } else {
        let got = group.recv::<Tensor>().unwrap().message;
        assert_eq!(values(&got), values(&tensor(3, 20_000)));
    }
}

fn a_message_that_meets_recv_tensor_is_an_error_of_both_and_of_one_direction() {
    for small in [true, false] {
        let len = if small { 2 } else { 500_000 };
        let (left, right) = pair(
            move |group| {
                let error = group.send(&tensor(0, len)).unwrap_err();
                let again = group.send(&1).unwrap_err();
                assert_eq!(again.kind(), ErrorKind::Poisoned, "{again}");
                assert!(again.to_string().contains("recv_tensor"), "{again}");
                other_direction(group);
                error
            },
            move |group| {
                let pending = TensorMut::zeros(DType::U32, &[len]).unwrap();
                let first = group.recv_tensor_async(pending).unwrap();
                let second = group.recv_async::<Tensor>().unwrap();
                let error = first.wait().unwrap_err();
                let pending = second.wait().unwrap_err();
                assert!(pending.to_string().contains("recv_tensor"), "{pending}");
                other_direction(group);
                error
            },
        );
        assert_eq!(right.kind(), ErrorKind::Mismatch);
        all_name(&[&left, &right], &["send", "recv_tensor"]);
    }
}

fn a_tensor_that_meets_recv_is_an_error_of_both() {
    let (left, right) = pair(
        |group| {
            let error = group.send_tensor(&tensor(0, 100)).unwrap_err();
            other_direction(group);
            error
        },
        |group| {
            let error = group.recv::<Tensor>().unwrap_err();
            other_direction(group);
            error
        },
    );
    assert_eq!(right.kind(), ErrorKind::Mismatch);
    all_name(&[&left, &right], &["send_tensor", "recv"]);
}

fn another_shape_or_type_is_an_error_of_both_that_names_them() {
    let buffers = [
        TensorMut::zeros(DType::U32, &[50, 2]).unwrap(),
        TensorMut::zeros(DType::F32, &[100]).unwrap(),
    ];
    for buffer in buffers {
        let wanted = format!("{} {:?}", buffer.dtype(), buffer.shape());
        let (left, right) = pair(
            |group| group.send_tensor(&tensor(0, 100)).unwrap_err(),
            |group| group.recv_tensor(buffer).unwrap_err(),
        );
        all_name(&[&left, &right], &["u32 [100]", &wanted]);
    }
    let (left, right) = pair(
        |group| {
            group
                .send(&vec![tensor(0, 100), tensor(1, 10)])
                .unwrap_err()
        },
        |group| {
            let one = vec![TensorMut::zeros(DType::U32, &[100]).unwrap()];
            group.recv_into::<Vec<Tensor>>(one).unwrap_err()
        },
    );
    all_name(&[&left, &right], &["tensors=2", "buffers=1"]);
}

fn a_message_of_another_type_is_an_error_of_that_receive_alone() {
    pair(
        |group| {
            group.send(&tensor(0, 10)).unwrap();
            group.send(&"not a list").unwrap();
            group.send(&3).unwrap();
        },
        |group| {
            let error = group.recv::<String>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Mismatch);
            assert!(error.to_string().contains("kind tensor"), "{error}");
            assert!(error.to_string().contains("peer_worker=left:0"), "{error}");
            assert!(group.recv::<Vec<Tensor>>().is_err());
            assert_eq!(group.recv::<i32>().unwrap().message, 3);
        },
    );
}

fn a_tensor_with_gaps_is_refused_and_the_group_goes_on() {
    let turned = || {
        tensor(0, 12)
            .reshape(&[3, 4])
            .unwrap()
            .permute(&[1, 0])
            .unwrap()
    };
    pair(
        move |group| {
            let error = group.send(&(1, vec![Some(turned())])).unwrap_err();
            let text = error.to_string();
            assert!(
                text.contains("must be contiguous when using P2P communication"),
                "{text}"
            );
            group
                .send_with(&turned(), &SendOptions::new().pack(true))
                .unwrap();
            group.send(&turned().pack().unwrap()).unwrap();
        },
        move |group| {
            for _ in 0..2 {
                let got = group.recv::<Tensor>().unwrap().message;
                assert_eq!(values(&got), values(&turned().pack().unwrap()));
            }
            let mut gaps = TensorMut::zeros(DType::U32, &[4, 4]).unwrap();
            gaps.narrow(1, 0, 2).unwrap();
            let error = group.recv_tensor(gaps).unwrap_err();
            assert!(error.to_string().contains("must be contiguous"), "{error}");
        },
    );
}

fn a_time_out_ends_one_direction_on_both_sides() {
    let (left, right) = pair(
        |group| {
            group.join().unwrap().wait().unwrap();
            other_direction(group);
            let soon = RecvOptions::new().timeout(Duration::from_millis(100));
            let error = group.recv_with::<u8>(soon).unwrap_err();
            group.send(&"told").unwrap();
            error
        },
        |group| {
            group.join().unwrap().wait().unwrap();
            other_direction(group);
            assert_eq!(group.recv::<String>().unwrap().message, "told");
            group.send(&1_u8).unwrap_err()
        },
    );
    assert_eq!(left.kind(), ErrorKind::Timeout, "{left}");
    assert!(right.to_string().contains("cg-left:0-right:0"), "{right}");
}

fn an_allocator_that_fails_or_panics_is_an_error_of_both() {
    for panics in [false, true] {
        let (left, right) = pair(
            |group| group.send(&tensor(0, 100)).unwrap_err(),
            move |group| {
                let options = RecvOptions::new().allocator(Arc::new(move |_, _| {
                    assert!(!panics, "no room left");
                    Err(Error::new(ErrorKind::ResourceExhausted, "no room left"))
                }));
                group.recv_with::<Tensor>(options).unwrap_err()
            },
        );
        all_name(&[&left, &right], &["no room left"]);
    }
}

fn both_sending_first_is_reported() {
    let large = || tensor(0, 4 << 20);
    let body = move |group: &CollectiveGroup| {
        let result = group.send(&large());
        let Err(error) = result else {
            panic!("both sides waited for each other's receive, and it worked");
        };
        error
    };
    let (left, right) = pair(body, body);
    for error in [left, right] {
        let text = error.to_string();
        assert!(text.contains("both sending"), "{text}");
    }
}

fn a_worker_that_dies_is_an_error_of_those_that_wait() {
    let error = pair(
        |group| {
            group.join().unwrap().wait().unwrap();
            group.send(&()).unwrap();
            // What a panic of the worker's thread does.
            group.communicator().unwrap().abort();
        },
        |group| {
            group.recv::<()>().unwrap();
            group.recv::<u8>().unwrap_err()
        },
    )
    .1;
    assert!(error.to_string().contains("cg-left:0-right:0"), "{error}");
}

on_every_transport! {
    a_message_that_meets_recv_tensor_is_an_error_of_both_and_of_one_direction,
    a_tensor_that_meets_recv_is_an_error_of_both,
    another_shape_or_type_is_an_error_of_both_that_names_them,
    a_message_of_another_type_is_an_error_of_that_receive_alone,
    a_tensor_with_gaps_is_refused_and_the_group_goes_on,
    a_time_out_ends_one_direction_on_both_sides,
    an_allocator_that_fails_or_panics_is_an_error_of_both,
    both_sending_first_is_reported,
    a_worker_that_dies_is_an_error_of_those_that_wait,
}

#[test]
fn different_members_of_one_name_are_an_error_that_names_both_lists() {
    for right_members in [
        &["left:0", "right:0", "third:0"][..],
        &["right:0", "third:0"],
    ] {
        let made = workers(&["left:0", "right:0"]);
        let right_members: Vec<_> = right_members.iter().map(|text| address(text)).collect();
        let errors = on_each(made, move |index, worker| {
            let members = [
                ["left:0", "right:0"].map(address).to_vec(),
                right_members.clone(),
            ];
            let collective = worker.collective();
            let group = collective.create_collective_group(&members[index], Some("same"));
            group.unwrap().join().unwrap().wait().unwrap_err()
        });
        let told = errors.iter().filter(|error| {
            let text = error.to_string();
            text.contains("left:0, right:0") && text.contains("third:0")
        });
        assert!(told.count() > 0, "{errors:?}");
    }
}

#[test]
fn groups_fail_independently_of_each_other() {
    let made = workers(&["w:0", "w:1", "w:2"]);
    on_each(made, |index, worker| match index {
        0 => {
            worker.send("w", 1, &1).unwrap();
            worker.group_with("w", 1).unwrap().close();
            worker.send("w", 2, &"goes on").unwrap();
            assert_eq!(worker.recv::<u8>("w", 2).unwrap().message, 7);
        }
        1 => {
            worker.recv::<i32>("w", 0).unwrap();
            assert!(worker.recv::<i32>("w", 0).is_err());
            worker.send("w", 2, &"too").unwrap();
        }
        _ => {
            assert_eq!(worker.recv::<String>("w", 0).unwrap().message, "goes on");
            assert_eq!(worker.recv::<String>("w", 1).unwrap().message, "too");
            worker.send("w", 0, &7_u8).unwrap();
        }
    });
}

#[test]
fn a_late_worker_is_waited_for_in_the_order_of_the_calls() {
    let rendezvous = Arc::new(LocalRendezvous::new());
    let make = |text: &str| {
        let builder = Worker::builder(address(text)).unwrap();
        builder
            .rendezvous(Arc::clone(&rendezvous) as _)
            .build()
            .unwrap()
    };
    let early = make("early:0");
    let group = early.group_with("late", 0).unwrap();
    let sent: Vec<_> = (0..10)
        .map(|index| group.send_async(&index).unwrap())
        .collect();
    let answer = group.recv_async::<String>().unwrap();
    assert!(sent[3].cancel());
    thread::sleep(Duration::from_millis(100));
    let late = make("late:0");
    let got = on_each(vec![late], |_, late| {
        let got: Vec<_> = (0..10)
            .map(|_| late.recv::<i32>("early", 0).map(|got| got.message).ok())
            .collect();
        late.send("early", 0, "done").unwrap();
        got
    });
    assert_eq!(answer.take().unwrap().message, "done");
    let want: Vec<_> = (0..10).map(Some).collect();
    for (index, (got, want)) in got[0].iter().zip(want).enumerate() {
        assert!(*got == want || (index == 3 && got.is_none()), "{got:?}");
    }
}

#[test]
fn a_unique_id_lets_workers_of_any_programs_meet() {
    let id = UniqueId::create(&ProcessOptions::new()).unwrap();
    let made = ["a:0", "b:0"].map(|text| {
        let builder = Worker::builder(address(text)).unwrap();
        builder
            .rendezvous_at(comm_api::RendezvousAddress::UniqueId(id.clone()))
            .build()
            .unwrap()
    });
    on_each(made.into(), |index, worker| {
        if index == 0 {
            worker.send("b", 0, &5).unwrap();
        } else {
            assert_eq!(worker.recv::<i32>("a", 0).unwrap().message, 5);
        }
    });
}
