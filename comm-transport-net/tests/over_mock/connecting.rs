//! Set-up: candidates, handles, deadlines, cancellation.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use comm_core::{ConnectHandle, ErrorKind, Transport};
use comm_transport_net::NetOptions;

use crate::support::{WATCHDOG, World, block_on, seeded};

#[test]
fn the_transport_says_what_it_is() {
    let world = World::new(seeded(1), &NetOptions::default().name("mocknet"));
    assert_eq!(world.transports[0].name(), "mocknet");
    assert!(world.transports[0].can_connect(&world.edge(0)).is_yes());
    assert!(world.transports[1].can_connect(&world.edge(0)).is_yes());
    let capabilities = world.transports[0].capabilities();
    assert!(capabilities.same_process && !capabilities.same_host && !capabilities.passes_fds);
}

#[test]
fn different_step_sizes_are_an_error_on_both_sides() {
    let mut world = World::new(seeded(1), &NetOptions::default());
    world.step_bytes = [4096, 8192];
    let (send, recv) = world.try_connect();
    for error in [send.unwrap_err(), recv.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
        let text = error.to_string();
        assert!(
            text.contains("step_bytes=") && text.contains("peer_step_bytes="),
            "{text}"
        );
        assert!(
            text.contains("backend=mock") && text.contains("device=mock0"),
            "{text}"
        );
    }
}

#[test]
fn impossible_step_sizes_are_refused() {
    let mut world = World::new(seeded(1), &NetOptions::default());
    for bytes in [0, usize::MAX] {
        world.step_bytes = [bytes; 2];
        let error = world.try_connect().0.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfiguration, "{error}");
    }
}

#[test]
fn a_handle_of_something_else_is_refused() {
    let world = World::new(seeded(1), &NetOptions::default());
    let deadline = Instant::now() + WATCHDOG;
    let send = block_on(world.transports[0].setup_send(&world.edge(0), deadline)).unwrap();
    let handle = ConnectHandle::from_bytes(bytes::Bytes::from_static(b"something else"));
    let error = block_on(send.connect(handle, deadline)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
}

#[test]
fn a_peer_that_does_not_come_is_a_timeout_that_names_it() {
    let world = World::new(seeded(1), &NetOptions::default());
    let deadline = Instant::now() + Duration::from_millis(30);
    let mut send = block_on(world.transports[0].setup_send(&world.edge(0), deadline)).unwrap();
    let recv = block_on(world.transports[1].setup_recv(&world.edge(1), deadline)).unwrap();
    let error = block_on(recv.connect(send.handle().unwrap(), deadline)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("peer=0: rank 0"), "{error}");
    assert!(Instant::now() >= deadline);
}

#[test]
fn a_receiver_that_is_gone_is_an_error_before_the_deadline() {
    let world = World::new(seeded(1), &NetOptions::default());
    let deadline = Instant::now() + WATCHDOG;
    let send = block_on(world.transports[0].setup_send(&world.edge(0), deadline)).unwrap();
    let mut recv = block_on(world.transports[1].setup_recv(&world.edge(1), deadline)).unwrap();
    let handle = recv.handle().unwrap();
    drop(recv);
    let error = block_on(send.connect(handle, deadline)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PeerDied, "{error}");
}

#[test]
fn a_dropped_future_releases_everything() {
    let world = World::new(seeded(1), &NetOptions::default());
    let deadline = Instant::now() + WATCHDOG;
    let mut send = block_on(world.transports[0].setup_send(&world.edge(0), deadline)).unwrap();
    let recv = block_on(world.transports[1].setup_recv(&world.edge(1), deadline)).unwrap();
    assert!(world.transports[1].mem_stats().slot_bytes > 0);
    {
        let mut connect = pin!(recv.connect(send.handle().unwrap(), deadline));
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(connect.as_mut().poll(&mut context), Poll::Pending));
    }
    assert_eq!(world.transports[1].mem_stats().slot_bytes, 0);
    // The transport goes on.
    drop(world.connect());
}
