//! Workers that are threads of this process, over the transport of the test, under a watchdog.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use comm_api::{CollectiveGroup, Tensor, Worker, WorkerAddress, WorkerBuilder};
use comm_runtime::control::rendezvous::LocalRendezvous;

/// How long a worker may take before it counts as stuck.
const WATCHDOG: Duration = Duration::from_secs(300);

pub(crate) fn address(text: &str) -> WorkerAddress {
    text.parse().unwrap()
}

/// Workers at these addresses that meet in this process.
pub(crate) fn workers_with(
    addresses: &[&str],
    configure: impl Fn(WorkerBuilder) -> WorkerBuilder,
) -> Vec<Worker> {
    let rendezvous = Arc::new(LocalRendezvous::new());
    let transport = crate::support::transport();
    let made = addresses.iter().map(|text| {
        let builder = Worker::builder(address(text)).unwrap();
        let builder = builder.rendezvous(Arc::clone(&rendezvous) as _);
        let builder = match transport {
            Some(name) => builder.only_transports(vec![name.to_owned()]),
            None => builder,
        };
        configure(builder).build().unwrap()
    });
    made.collect()
}

pub(crate) fn workers(addresses: &[&str]) -> Vec<Worker> {
    workers_with(addresses, |builder| builder)
}

/// Runs the closure of each worker on a thread of its own; the results in order.
pub(crate) fn on_each<T: Send + 'static>(
    workers: Vec<Worker>,
    body: impl Fn(usize, &Worker) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let body = Arc::new(body);
    let (sender, receiver) = mpsc::channel();
    let count = workers.len();
    for (index, worker) in workers.into_iter().enumerate() {
        let (body, sender) = (Arc::clone(&body), sender.clone());
        thread::spawn(move || {
            let result = body(index, &worker);
            // The receiver is gone when the test has failed already.
            let _ = sender.send((index, result, worker));
        });
    }
    drop(sender);
    let mut results: Vec<_> = (0..count)
        .map(|_| {
            receiver
                .recv_timeout(WATCHDOG)
                .expect("a worker panicked or is stuck")
        })
        .collect();
    results.sort_by_key(|(index, _, _)| *index);
    // Nobody leaves before all are through.
    results.into_iter().map(|(_, result, _)| result).collect()
}

/// Two workers of one group, each with its own closure.
pub(crate) fn pair<A: Send + 'static, B: Send + 'static>(
    first: impl FnOnce(&CollectiveGroup) -> A + Send + 'static,
    second: impl FnOnce(&CollectiveGroup) -> B + Send + 'static,
) -> (A, B) {
    pair_of(workers(&["left:0", "right:0"]), first, second)
}

pub(crate) fn pair_of<A: Send + 'static, B: Send + 'static>(
    workers: Vec<Worker>,
    first: impl FnOnce(&CollectiveGroup) -> A + Send + 'static,
    second: impl FnOnce(&CollectiveGroup) -> B + Send + 'static,
) -> (A, B) {
    let [left, right]: [Worker; 2] = workers.try_into().unwrap();
    let (to_left, left_result) = mpsc::channel();
    let (to_right, right_result) = mpsc::channel();
    let (left_group, right_group) = (
        left.group_with(right.address().group(), right.address().ranks())
            .unwrap(),
        right
            .group_with(left.address().group(), left.address().ranks())
            .unwrap(),
    );
    let keep = (left_group.clone(), right_group.clone(), left, right);
    // Results cross the channel only if the closure did not panic.
    thread::spawn(move || to_left.send(first(&left_group)));
    thread::spawn(move || to_right.send(second(&right_group)));
    let results = (
        left_result
            .recv_timeout(WATCHDOG)
            .expect("the first worker panicked or is stuck"),
        right_result
            .recv_timeout(WATCHDOG)
            .expect("the second worker panicked or is stuck"),
    );
    drop(keep);
    results
}

/// A tensor of `len` elements that follow from `seed`.
pub(crate) fn tensor(seed: usize, len: usize) -> Tensor {
    let values = (0..len).map(|index| (index * 7 + seed * 13) as u32);
    Tensor::from_vec(values.collect(), &[len]).unwrap()
}

pub(crate) fn values(tensor: &Tensor) -> &[u32] {
    tensor.as_slice().unwrap()
}
