//! Making groups: names, members, order and ends, without anything connected.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use comm_core::{ErrorKind, Tensor};
use comm_group::{CollectiveGroup, Worker, WorkerAddress, WorkerBuilder};
use comm_runtime::control::rendezvous::LocalRendezvous;

fn address(text: &str) -> WorkerAddress {
    text.parse().unwrap()
}

fn addresses(texts: &[&str]) -> Vec<WorkerAddress> {
    texts.iter().map(|text| address(text)).collect()
}

fn builder(text: &str) -> WorkerBuilder {
    Worker::builder(address(text)).rendezvous(Arc::new(LocalRendezvous::new()))
}

fn worker(text: &str) -> Worker {
    builder(text).build().unwrap()
}

fn create(worker: &Worker, members: &[&str]) -> comm_core::Result<CollectiveGroup> {
    worker
        .collective()
        .create_collective_group(&addresses(members), None)
}

#[test]
fn the_default_name_lists_the_members_in_numeric_order() {
    let worker = worker("w:2");
    let group = create(&worker, &["w:10", "w:2", "a:0:1"]).unwrap();
    assert_eq!(group.name(), "cg-a:0:1-w:2-w:10");
    assert_eq!(group.members(), addresses(&["a:0:1", "w:2", "w:10"]));
    assert_eq!(
        (group.rank(), group.rank_of(&address("w:10"))),
        (1, Some(2))
    );
    assert_eq!(group.rank_of(&address("w:3")), None);
}

#[test]
fn asking_again_in_any_order_returns_the_same_group() {
    let worker = worker("w:2");
    let group = create(&worker, &["w:10", "w:2"]).unwrap();
    assert!(create(&worker, &["w:2", "w:10"]).unwrap().is_same(&group));
    assert!(worker.group_with("w", 10).unwrap().is_same(&group));
    let named = worker
        .collective()
        .create_collective_group(&addresses(&["w:10", "w:2"]), Some("mine"))
        .unwrap();
    assert!(!named.is_same(&group));
    let names: Vec<_> = worker.collective().groups();
    let names: Vec<_> = names.iter().map(CollectiveGroup::name).collect();
    assert_eq!(names, ["cg-w:2-w:10", "mine"]);
}

#[test]
fn wrong_members_are_refused_by_name() {
    let worker = worker("w:0");
    for (members, text) in [
        (&["w:0"][..], "at least two"),
        (&[][..], "at least two"),
        (&["w:0", "w:1", "w:1"][..], "twice"),
        (&["w:1", "w:2"][..], "not a member"),
    ] {
        let error = create(&worker, members).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(text), "{error}");
    }
    let collective = worker.collective();
    let two = addresses(&["w:0", "w:1"]);
    assert!(collective.create_collective_group(&two, Some("")).is_err());
    let named = collective.create_collective_group(&two, Some("mine"));
    assert!(named.is_ok());
    let three = addresses(&["w:0", "w:1", "w:2"]);
    let error = collective
        .create_collective_group(&three, Some("mine"))
        .unwrap_err();
    assert!(error.to_string().contains("w:0, w:1, w:2"), "{error}");
    assert!(worker.group_with("w", 0).is_err(), "oneself is no peer");
    assert!(worker.group_with("a:b", 0).is_err());
}

#[test]
fn many_threads_that_ask_for_one_group_get_one() {
    let worker = worker("w:0");
    let groups: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| worker.group_with("w", 1).unwrap()))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(groups.iter().all(|group| group.is_same(&groups[0])));
}

#[test]
fn making_a_group_connects_nothing() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let worker = builder("w:0")
        .transports(move |builder| {
            counter.fetch_add(1, Ordering::SeqCst);
            Ok(builder)
        })
        .build()
        .unwrap();
    let group = worker.group_with("w", 1).unwrap();
    assert!(group.communicator().is_none());
    worker.close();
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

#[test]
fn a_worker_without_a_rendezvous_is_refused() {
    let error = Worker::builder(address("w:0")).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
    assert!(error.to_string().contains("COMM_RENDEZVOUS"), "{error}");
}

#[test]
fn what_is_wrong_with_a_call_is_found_before_the_group_comes_together() {
    let worker = worker("w:0");
    let group = worker.group_with("w", 1).unwrap();
    let turned = Tensor::from_vec(vec![0_u8; 4], &[2, 2]).unwrap();
    let turned = turned.permute(&[1, 0]).unwrap();
    for error in [
        group.send(&turned).unwrap_err(),
        group.send_async(&vec![turned.clone()]).unwrap_err(),
        group.send_tensor(&turned).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let text = error.to_string();
        assert!(
            text.contains("must be contiguous when using P2P communication"),
            "{text}"
        );
        assert!(text.contains("group=cg-w:0-w:1"), "{text}");
    }
    let three = create(&worker, &["w:0", "w:1", "w:2"]).unwrap();
    assert_eq!(
        three.send(&1).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    assert!(format!("{group:?}").contains("not joined yet"));
}

#[test]
fn a_group_that_never_comes_together_ends_everything_that_waits_for_it() {
    let worker = builder("w:0")
        .join_timeout(Duration::from_millis(200))
        .build()
        .unwrap();
    let group = worker.group_with("w", 1).unwrap();
    let waiting = [
        group.send_async(&1).unwrap(),
        group.recv_async::<u32>().unwrap().map(|got| got.map(drop)),
        group.join().unwrap(),
    ];
    for work in &waiting {
        let error = work.wait().unwrap_err();
        assert!(error.to_string().contains("w:0, w:1"), "{error}");
    }
    let later = group.send(&1).unwrap_err();
    assert_eq!(later.kind(), ErrorKind::Poisoned);
    assert!(later.to_string().contains("First cause"), "{later}");
}

#[test]
fn a_group_is_closed_while_it_waits_for_its_members() {
    let worker = worker("w:0");
    let group = worker.group_with("w", 1).unwrap();
    let waiting = group.recv_async::<u32>().unwrap();
    group.close();
    group.close();
    assert_eq!(waiting.wait().unwrap_err().kind(), ErrorKind::Aborted);
    assert_eq!(group.send(&1).unwrap_err().kind(), ErrorKind::Aborted);
    let again = worker.group_with("w", 1).unwrap();
    assert!(!again.is_same(&group), "a closed group is made anew");
    worker.close();
    assert_eq!(again.send(&1).unwrap_err().kind(), ErrorKind::Aborted);
    assert_eq!(
        worker.group_with("w", 1).unwrap_err().kind(),
        ErrorKind::Aborted
    );
}

#[test]
fn a_transport_hook_that_fails_or_panics_fails_the_group() {
    for panics in [false, true] {
        let worker = builder("w:0")
            .transports(move |builder| {
                assert!(!panics, "in the hook");
                let error = comm_core::Error::new(ErrorKind::Unavailable, "no such network");
                drop(builder);
                Err(error)
            })
            .build()
            .unwrap();
        let error = worker.send("w", 1, &1).unwrap_err();
        let kind = if panics {
            ErrorKind::Internal
        } else {
            ErrorKind::Unavailable
        };
        assert_eq!(error.kind(), kind, "{error}");
    }
}
