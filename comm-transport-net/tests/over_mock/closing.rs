//! Dropping and quiescing: what was published arrives, memory is given back or quarantined.

use std::thread;
use std::time::{Duration, Instant};

use comm_core::{Armed, ErrorKind};
use comm_transport_net::NetOptions;

use crate::support::{
    WATCHDOG, World, doorbell, eventually, header, recv, roomy, seeded, try_send,
};

#[test]
fn what_was_published_before_the_drop_arrives() {
    let world = World::new(seeded(1), &NetOptions::default());
    let (mut sender, mut receiver) = world.connect();
    for number in 0..8 {
        try_send(&mut *sender, number, &[3; 70]).unwrap().unwrap();
    }
    drop(sender);
    let doorbell = doorbell();
    for number in 0..8 {
        assert_eq!(
            recv(&mut *receiver, &doorbell).unwrap(),
            (header(70, number), vec![3; 70])
        );
    }
    assert_eq!(
        recv(&mut *receiver, &doorbell).unwrap_err().kind(),
        ErrorKind::PeerDied
    );
    eventually("the release of the slots", || {
        world.transports[0].mem_stats().slot_bytes == 0
    });
}

#[test]
fn memory_of_dropped_ends_is_given_back_once_the_network_is_at_rest() {
    let world = World::new(seeded(2), &NetOptions::default());
    for _ in 0..3 {
        drop(world.connect());
    }
    for transport in &world.transports {
        eventually("the release of the slots", || {
            let stats = transport.mem_stats();
            stats.slot_bytes == 0 && stats.lingering_connections == 0
        });
        assert_eq!(transport.mem_stats().quarantined_connections, 0);
    }
}

#[test]
fn memory_that_the_network_does_not_let_go_of_is_quarantined() {
    let mut config = roomy(3);
    config.quiesce_delay = None;
    let options = NetOptions::default().linger(Duration::from_millis(20));
    let world = World::new(config, &options);
    // A receiver whose places are all posted, and a sender that has published more than its peer
    // has places for.
    let (idle, posted) = world.connect();
    drop(idle);
    let slots = world.transports[1].mem_stats().slot_bytes;
    drop(posted);
    let (mut sender, full) = world.connect();
    let mut published = 0;
    eventually("back-pressure", || {
        published += u64::from(
            try_send(&mut *sender, published, &[1; 100])
                .unwrap()
                .is_some(),
        );
        published == 16
    });
    drop(sender);
    drop(full);
    for transport in &world.transports {
        eventually("quarantine", || {
            transport.mem_stats().quarantined_connections == 1
        });
        let stats = transport.mem_stats();
        assert_eq!((stats.quarantined_bytes, stats.slot_bytes), (slots, 0));
        assert_eq!(stats.lingering_connections, 0);
    }
    // The transport goes on.
    drop(world.connect());
}

#[test]
fn a_drop_without_linger_quarantines_at_once() {
    let mut config = roomy(4);
    config.quiesce_delay = Some(Duration::from_secs(3600));
    let world = World::new(config, &NetOptions::default().linger(Duration::ZERO));
    let (_sender, receiver) = world.connect();
    drop(receiver);
    assert_eq!(world.transports[1].mem_stats().quarantined_connections, 1);
    assert_eq!(world.cards[1].busy_connections(), 1);
}

#[test]
fn quiescing_a_sender_waits_until_its_steps_are_gone() {
    let world = World::new(roomy(5), &NetOptions::default());
    let (mut sender, mut receiver) = world.connect();
    // The receiver's eight slots and eight more.
    let mut published = 0;
    eventually("back-pressure", || {
        published += u64::from(
            try_send(&mut *sender, published, &[1; 10])
                .unwrap()
                .is_some(),
        );
        published == 16
    });
    assert!(
        !sender.quiesce(Instant::now() + Duration::from_millis(20)),
        "eight have no place"
    );
    thread::scope(|scope| {
        scope.spawn(|| {
            let doorbell = doorbell();
            for number in 0..published {
                assert_eq!(
                    recv(&mut *receiver, &doorbell).unwrap().0,
                    header(10, number)
                );
            }
        });
        assert!(sender.quiesce(Instant::now() + WATCHDOG));
    });
    // A sender that has come to rest can be used again.
    try_send(&mut *sender, 99, b"more").unwrap().unwrap();
    assert_eq!(recv(&mut *receiver, &doorbell()).unwrap().1, b"more");
}

#[test]
fn quiescing_a_receiver_ends_it() {
    let world = World::new(roomy(6), &NetOptions::default());
    let (_sender, mut receiver) = world.connect();
    assert!(
        !receiver.quiesce(Instant::now()),
        "the mock network takes its time"
    );
    assert!(receiver.quiesce(Instant::now() + WATCHDOG));
    assert_eq!(
        receiver.try_step().unwrap_err().kind(),
        ErrorKind::Cancelled
    );
    assert_eq!(
        receiver.arm(&doorbell()).unwrap_err().kind(),
        ErrorKind::Cancelled
    );
}

#[test]
fn an_end_may_be_dropped_while_it_is_armed() {
    let world = World::new(seeded(7), &NetOptions::default());
    let (mut sender, mut receiver) = world.connect();
    let doorbell = doorbell();
    assert_eq!(receiver.arm(&doorbell).unwrap(), Armed::WillRing);
    drop(receiver);
    let error = loop {
        match try_send(&mut *sender, 0, b"x").and_then(|_| sender.progress()) {
            Ok(_) => thread::yield_now(),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::PeerDied);
    drop(doorbell);
}
