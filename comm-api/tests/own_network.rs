//! A network of the program's own, registered through the builder.
#![cfg(all(feature = "net", target_os = "linux"))]

mod support;

use comm_api::{LocalRendezvous, ReduceOp, Worker, WorkerAddress};
use comm_testkit::net::{MockConfig, MockFabric};
use std::sync::Arc;
use std::time::Duration;

/// Ranks over a mock network under this name.
fn over_fabric(ranks: u32, only: &[&str]) -> Vec<comm_api::Communicator> {
    over(MockConfig::default(), ranks, only)
}

fn over(config: MockConfig, ranks: u32, only: &[&str]) -> Vec<comm_api::Communicator> {
    let fabric = MockFabric::new(config).unwrap();
    let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
    support::init_all_with(ranks, |builder| {
        let fabric = fabric.clone();
        builder
            .net_backend("fabric", move |_| Ok(Arc::new(fabric.card()?)))
            .only_transports(only.clone())
    })
    .unwrap()
}

#[test]
fn collectives_and_messages_run_over_a_network_of_ones_own() {
    support::on_every_rank(over_fabric(3, &["fabric"]), |comm| {
        for count in [1, 1000, 300_000] {
            let mut values = vec![comm.rank() + 1; count];
            comm.all_reduce(&mut values, ReduceOp::Sum).unwrap();
            assert!(values.iter().all(|sum| *sum == 6));
        }
        let large = vec![7_u8; 3_000_000];
        match comm.rank() {
            0 => comm.send(&large, 1).unwrap(),
            1 => {
                let mut received = vec![0; large.len()];
                comm.recv(&mut received, 0).unwrap();
                assert!(received == large);
            }
            _ => {}
        }
        let edges = comm.explain().edges;
        assert!(!edges.is_empty() && edges.iter().all(|edge| edge.transport == "fabric"));
        comm.barrier().unwrap();
    });
}

#[test]
fn workers_send_each_other_messages_over_a_network_of_ones_own() {
    let fabric = MockFabric::new(MockConfig::default()).unwrap();
    let meeting = Arc::new(LocalRendezvous::new());
    let worker = |name: &str| {
        let fabric = fabric.clone();
        Worker::builder(WorkerAddress::new(name, 0).unwrap())
            .unwrap()
            .rendezvous(Arc::clone(&meeting) as _)
            .net_backend("fabric", move |_| Ok(Arc::new(fabric.card()?)))
            .only_transports(["fabric"])
            .build()
            .unwrap()
    };
    let (trainer, rollout) = (worker("trainer"), worker("rollout"));
    std::thread::scope(|scope| {
        scope.spawn(|| trainer.send("rollout", 0, "weights").unwrap());
        let message: String = rollout.recv("trainer", 0).unwrap().into_message();
        assert_eq!(message, "weights");
    });
    let group = rollout.group_with("trainer", 0).unwrap();
    let edges = group.communicator().unwrap().explain().edges;
    assert!(!edges.is_empty() && edges.iter().all(|edge| edge.transport == "fabric"));
}

#[test]
fn it_is_tried_behind_the_transports_of_one_host_and_before_the_built_in_network() {
    let names: Vec<String> = comm_api::compiled_transports()
        .iter()
        .map(|name| (*name).to_owned())
        .collect();
    for comm in over_fabric(2, &[]) {
        let explained = comm.explain().transports;
        let order: Vec<_> = explained.iter().map(|(name, _)| name.as_str()).collect();
        let mut expected: Vec<_> = names.iter().map(String::as_str).collect();
        let networks = ["verbs", "net"];
        let before = expected.iter().position(|name| networks.contains(name));
        expected.insert(before.unwrap_or(expected.len()), "fabric");
        assert_eq!(order, expected);
    }
}

#[test]
fn what_a_rank_sent_before_it_left_arrives_behind_its_goodbye() {
    for seed in 1..=4 {
        let mut config = MockConfig::default();
        config.seed = seed;
        // Far more than the control plane takes to tell that the sender has left.
        config.max_delay = Duration::from_millis(400);
        support::on_every_rank(over(config, 2, &["fabric"]), |comm| {
            let mut sums = [comm.rank() + 1; 4];
            comm.all_reduce(&mut sums, ReduceOp::Sum).unwrap();
            assert_eq!(sums, [3; 4]);
            if comm.rank() == 0 {
                comm.send(&[5_u32, 6], 1).unwrap();
            } else {
                let mut received = [0_u32; 2];
                comm.recv(&mut received, 0).unwrap();
                assert_eq!(received, [5, 6]);
            }
        });
    }
}
