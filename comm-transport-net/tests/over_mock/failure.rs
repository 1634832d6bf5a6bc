//! Deaths, broken connections and injected faults.

use std::thread;
use std::time::Duration;

use comm_core::{ConnInfo, Error, ErrorKind, Result};
use comm_transport_net::NetOptions;

use crate::support::{
    STEP, World, doorbell, header, recv, recv_asleep, seeded, send, try_recv, try_send,
};

/// Sends full steps until it fails.
fn send_until_failure(end: &mut dyn comm_core::MessageSend) -> Error {
    let doorbell = doorbell();
    for number in 0.. {
        if let Err(error) = send(end, &doorbell, number, &[0; STEP]) {
            return error;
        }
    }
    unreachable!("the numbers do not end")
}

#[test]
fn a_peers_death_wakes_the_sleeping_receiver_with_an_error_that_names_it() {
    let world = World::new(seeded(1), &NetOptions::default());
    let (_sender, mut receiver) = world.connect();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(10));
            world.cards[0].kill();
        });
        let error = recv_asleep(&mut *receiver, &doorbell()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PeerDied);
        let text = error.to_string();
        for part in [
            "edge=0 -> 1",
            "peer=0: rank 0",
            "testhost",
            "backend=mock",
            "device=mock0",
        ] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
        assert_eq!(
            try_recv(&mut *receiver).unwrap_err().kind(),
            ErrorKind::PeerDied
        );
        assert_eq!(receiver.progress().unwrap_err().kind(), ErrorKind::PeerDied);
        assert_eq!(
            receiver.arm(&doorbell()).unwrap_err().kind(),
            ErrorKind::PeerDied
        );
    });
}

#[test]
fn a_peers_death_wakes_the_sleeping_sender_with_an_error_that_names_it() {
    let world = World::new(seeded(2), &NetOptions::default());
    let (mut sender, _receiver) = world.connect();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(10));
            world.cards[1].kill();
        });
        let error = send_until_failure(&mut *sender);
        assert_eq!(error.kind(), ErrorKind::PeerDied);
        assert!(error.to_string().contains("peer=1: rank 1"), "{error}");
        assert_eq!(sender.try_slot().unwrap_err().kind(), ErrorKind::PeerDied);
    });
}

#[test]
fn the_death_of_its_own_network_is_told_to_a_sleeping_end() {
    let world = World::new(seeded(3), &NetOptions::default());
    let (_sender, mut receiver) = world.connect();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(10));
            world.cards[1].kill();
        });
        let error = recv_asleep(&mut *receiver, &doorbell()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::System);
    });
}

#[test]
fn a_broken_connection_fails_both_ends_and_no_later_edge() {
    let world = World::new(seeded(4), &NetOptions::default());
    let (mut sender, mut receiver) = world.connect();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(10));
            world.cards[0].break_connections();
        });
        let error = recv_asleep(&mut *receiver, &doorbell()).unwrap_err();
        assert!(
            error.to_string().contains("retry counter exceeded"),
            "{error}"
        );
    });
    let error = send_until_failure(&mut *sender);
    assert!(
        error.to_string().contains("retry counter exceeded"),
        "{error}"
    );

    let (mut sender, mut receiver) = world.connect();
    try_send(&mut *sender, 0, b"abc").unwrap().unwrap();
    assert_eq!(recv(&mut *receiver, &doorbell()).unwrap().1, b"abc");
}

#[test]
fn steps_that_arrived_before_the_failure_are_still_handed_out() {
    let world = World::new(seeded(5), &NetOptions::default());
    let (mut sender, mut receiver) = world.connect();
    for number in 0..4 {
        try_send(&mut *sender, number, &[9; 50]).unwrap().unwrap();
    }
    assert!(sender.quiesce(std::time::Instant::now() + crate::support::WATCHDOG));
    world.cards[0].kill();
    thread::sleep(Duration::from_millis(20));
    let doorbell = doorbell();
    for number in 0..4 {
        assert_eq!(
            recv(&mut *receiver, &doorbell).unwrap(),
            (header(50, number), vec![9; 50])
        );
    }
    assert_eq!(
        recv(&mut *receiver, &doorbell).unwrap_err().kind(),
        ErrorKind::PeerDied
    );
}

/// Connects, passes a few steps, closes. Every end either works or says why not.
fn whole_life(world: &World) -> Result<()> {
    let (send_end, recv_end) = world.try_connect();
    let (ConnInfo::MessageSend(mut sender), ConnInfo::MessageRecv(mut receiver)) =
        (send_end?, recv_end?)
    else {
        panic!("these are no message connections");
    };
    thread::scope(|scope| {
        let sending = scope.spawn(move || {
            let doorbell = doorbell();
            for number in 0..20 {
                send(&mut *sender, &doorbell, number, &[number as u8; 500])?;
            }
            Ok(())
        });
        let doorbell = doorbell();
        let received = (0..20).try_for_each(|number| {
            let (got, contents) = recv(&mut *receiver, &doorbell)?;
            assert_eq!(
                (got, contents),
                (header(500, number), vec![number as u8; 500])
            );
            Ok(())
        });
        drop(receiver);
        let sent = sending.join().unwrap();
        received.and(sent)
    })
}

/// Lets one call after the other fail, each in a world of its own; `rank` has the faulty card.
fn fault_at_every_call(rank: usize) {
    let mut failed = 0;
    let mut call = 1;
    loop {
        let world = World::new(seeded(call), &NetOptions::default().linger(Duration::ZERO));
        world.cards[rank].fail_call(call);
        let outcome = whole_life(&world);
        if !world.cards[rank].call_has_failed() {
            break;
        }
        // A fault while closing, or in a call whose answer did not matter, is none.
        if let Err(error) = outcome {
            failed += 1;
            let known = [ErrorKind::System, ErrorKind::PeerDied];
            assert!(known.contains(&error.kind()), "call {call}: {error}");
        }
        // Each of the first calls, then fewer and fewer: there are thousands of polls.
        call += 1 + call / 50;
        // With polling there is no last call; but there are enough.
        if call > 5000 {
            break;
        }
    }
    assert!(failed > 50, "only {failed} faults were noticed");
}

#[test]
fn a_fault_at_any_call_of_the_sender_ends_both_sides() {
    fault_at_every_call(0);
}

#[test]
fn a_fault_at_any_call_of_the_receiver_ends_both_sides() {
    fault_at_every_call(1);
}
