//! The control plane among ranks that are threads of one process.

mod support;

use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use comm_core::{ErrorKind, Rank};
use comm_runtime::control::{ControlPlane, Failure, JoinOptions, MAX_FDS, Message};
use support::*;

#[test]
fn every_rank_gets_the_facts_of_all_ranks_in_rank_order() {
    let _watchdog = watchdog();
    let process = process();
    for count in [1, 2, 3, 8] {
        let port = free_port();
        let world = ranks(count, |rank| {
            let options = JoinOptions::new(rank, count, tcp(&process, port)).deadline(soon());
            join_with(&process, options, |facts| {
                facts
                    .transports
                    .insert("mock".to_owned(), Bytes::from(vec![rank as u8; 3]));
            })
            .unwrap()
        });
        for joined in &world {
            assert_eq!(joined.facts, world[0].facts);
            assert_eq!(joined.plane.world_size(), count);
        }
        for (rank, info) in (0..count).zip(&world[0].facts) {
            assert_eq!(info.rank, rank);
            assert_eq!(info.process, process.id());
            assert_eq!(info.host, process.host());
            assert_eq!(
                info.transport_facts("mock").unwrap()[..],
                vec![rank as u8; 3]
            );
            assert!(!info.control_addresses.is_empty() && !info.host_name.is_empty());
            assert!(info.cpus >= 1);
        }
        leave(world);
    }
}

#[test]
fn allgather_returns_the_values_in_rank_order_for_any_world_size() {
    let _watchdog = watchdog();
    for count in [1, 2, 3, 5, 8] {
        let world = world(count);
        let expected: Vec<Bytes> = (0..count)
            .map(|rank| Bytes::from(vec![rank as u8; rank as usize]))
            .collect();
        // One tag several times in a row, and ranks that run ahead of others.
        let planes = planes(&world);
        ranks(count, |rank| {
            for _ in 0..20 {
                let value = expected[rank as usize].clone();
                let values = planes[rank as usize].allgather(7, value, soon()).unwrap();
                assert_eq!(values, expected);
            }
        });
        leave(world);
    }
}

#[test]
fn exchanges_with_different_tags_do_not_wait_for_each_other() {
    let _watchdog = watchdog();
    let world = world(3);
    let planes = planes(&world);
    ranks(3, |rank| {
        let plane = &planes[rank as usize];
        // Each rank starts the tags in another order.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let gather = |tag: u64| {
                plane.allgather_async(tag, Bytes::from(vec![tag as u8, rank as u8]), soon())
            };
            let tags = [
                u64::from(rank) % 3,
                (u64::from(rank) + 1) % 3,
                (u64::from(rank) + 2) % 3,
            ];
            let (first, second, third) =
                tokio::join!(gather(tags[0]), gather(tags[1]), gather(tags[2]));
            for (tag, values) in tags.into_iter().zip([first, second, third]) {
                let expected: Vec<Bytes> = (0..3)
                    .map(|rank| Bytes::from(vec![tag as u8, rank]))
                    .collect();
                assert_eq!(values.unwrap(), expected);
            }
        });
    });
    leave(world);
}

#[test]
fn a_barrier_lets_nobody_through_before_the_last_one_comes() {
    let _watchdog = watchdog();
    let world = world(5);
    let pause = Duration::from_millis(200);
    let planes = planes(&world);
    let waited = ranks(5, |rank| {
        if rank == 3 {
            std::thread::sleep(pause);
        }
        let plane = &planes[rank as usize];
        let before = Instant::now();
        plane.barrier(1, soon()).unwrap();
        (before, Instant::now())
    });
    let last_came = waited.iter().map(|(before, _)| *before).max().unwrap();
    assert!(waited.iter().all(|(_, after)| *after >= last_came));
    leave(world);
}

#[test]
fn an_exchange_that_a_rank_does_not_join_ends_at_its_deadline() {
    let _watchdog = watchdog();
    let world = world(2);
    let deadline = Instant::now() + Duration::from_millis(100);
    let error = world[0].plane.barrier(1, deadline).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.message().contains("rank 1"), "{error}");
    assert!(Instant::now() >= deadline);
    leave(world);
}

#[test]
fn messages_of_one_rank_arrive_complete_and_in_order_at_every_rank() {
    let _watchdog = watchdog();
    let world = world(6);
    let count = 200_u32;
    let planes = planes(&world);
    ranks(6, |rank| {
        for number in 0..count {
            for peer in 0..6 {
                let payload = Bytes::from([rank.to_le_bytes(), number.to_le_bytes()].concat());
                planes[rank as usize]
                    .send(peer, Message::new(5, payload))
                    .unwrap();
            }
        }
    });
    for joined in &world {
        let mut next = [0_u32; 6];
        for _ in 0..6 * count {
            let (from, message) = joined.recorded.messages.recv().unwrap();
            let number = next[from as usize];
            assert_eq!(message.kind, 5);
            assert_eq!(
                message.payload[..],
                [from.to_le_bytes(), number.to_le_bytes()].concat()
            );
            next[from as usize] += 1;
        }
    }
    leave(world);
}

fn file_with(text: &str) -> OwnedFd {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.into()
}

fn text_of(fd: OwnedFd) -> String {
    let mut file = std::fs::File::from(fd);
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn file_descriptors_arrive_with_their_message_in_order() {
    let _watchdog = watchdog();
    let world = world(4);
    let planes = planes(&world);
    ranks(4, |rank| {
        for number in 0..10 {
            for peer in 0..4 {
                let fds = (0..number % 3).map(|fd| file_with(&format!("{rank} {number} {fd}")));
                let message = Message::new(number, Bytes::from_static(b"payload"));
                let message = message.with_fds(fds.collect());
                planes[rank as usize].send(peer, message).unwrap();
            }
        }
    });
    for joined in &world {
        let mut next = [0_u16; 4];
        for _ in 0..40 {
            let (from, message) = joined.recorded.messages.recv().unwrap();
            let number = next[from as usize];
            next[from as usize] += 1;
            assert_eq!(message.kind, number);
            assert_eq!(message.payload[..], b"payload"[..]);
            assert!(message.fds_error.is_none());
            let texts: Vec<String> = message.fds.into_iter().map(text_of).collect();
            let expected: Vec<String> = (0..number % 3)
                .map(|fd| format!("{from} {number} {fd}"))
                .collect();
            assert_eq!(texts, expected);
        }
    }
    leave(world);
}

#[test]
fn the_largest_number_of_descriptors_arrives_and_one_more_is_refused() {
    let _watchdog = watchdog();
    let world = world(2);
    let message = |count| {
        let fds = (0..count).map(|_| file_with("x")).collect();
        Message::new(1, Bytes::new()).with_fds(fds)
    };
    world[0].plane.send(1, message(MAX_FDS)).unwrap();
    let (_, received) = world[1].recorded.messages.recv().unwrap();
    assert_eq!(received.fds.len(), MAX_FDS);
    let error = world[0].plane.send(1, message(MAX_FDS + 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    leave(world);
}

#[test]
fn a_failure_reaches_every_rank_and_the_first_one_stays() {
    let _watchdog = watchdog();
    let world = world(8);
    let failure = |origin: Rank, message: &str| Failure {
        origin,
        failed: None,
        kind: ErrorKind::Mismatch,
        message: message.to_owned(),
    };
    world[5].plane.fail(failure(5, "counts differ"));
    for joined in &world {
        let error = joined.recorded.failures.recv().unwrap();
        assert_eq!(error.kind(), ErrorKind::Mismatch);
        assert_eq!(error.to_string(), "mismatch: counts differ (noticed_by=5)");
    }
    world[2].plane.fail(failure(2, "something later"));
    for joined in &world {
        assert!(
            joined
                .plane
                .failure()
                .unwrap()
                .message()
                .contains("counts differ")
        );
        let error = joined.plane.barrier(1, soon()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Mismatch);
        assert!(joined.recorded.failures.try_recv().is_err());
    }
    leave(world);
}

#[test]
fn a_failure_ends_an_exchange_that_waits() {
    let _watchdog = watchdog();
    let world = world(3);
    let planes = planes(&world);
    let errors = ranks(3, |rank| {
        let plane = &planes[rank as usize];
        if rank == 0 {
            plane.fail(Failure {
                origin: 0,
                failed: None,
                kind: ErrorKind::PeerFailed,
                message: "out of memory".to_owned(),
            });
            return plane.failure().unwrap();
        }
        plane.allgather(1, Bytes::new(), soon()).unwrap_err()
    });
    for error in errors {
        assert!(error.message().contains("out of memory"), "{error}");
    }
    leave(world);
}

#[test]
fn a_rank_dropped_without_leaving_is_a_death_and_one_that_left_is_not() {
    let _watchdog = watchdog();
    let mut world = world(5);
    let left = world.remove(1);
    left.plane.leave(PATIENCE);
    // Everybody else is a neighbour of rank 1 in a world of five.
    for joined in &world {
        assert_eq!(joined.recorded.leaves.recv().unwrap(), 1);
        assert!(joined.plane.failure().is_none());
        let error = joined
            .plane
            .send(1, Message::new(1, Bytes::new()))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PeerFailed);
    }
    drop(world.remove(2));
    for joined in &world {
        let error = joined.recorded.failures.recv().unwrap();
        assert_eq!(error.kind(), ErrorKind::PeerDied);
        assert!(error.message().starts_with("rank 3 (pid "), "{error}");
    }
    leave(world);
}

#[test]
fn an_exchange_with_a_rank_that_has_left_is_an_error() {
    let _watchdog = watchdog();
    let mut world = world(2);
    world.remove(0).plane.leave(PATIENCE);
    let error = world[0].plane.barrier(1, soon()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PeerFailed);
    leave(world);
}

#[test]
fn a_blocking_call_in_a_handler_is_an_error_and_not_a_deadlock() {
    let _watchdog = watchdog();
    let world = world(2);
    let (sender, receiver) = std::sync::mpsc::channel();
    let plane: Arc<ControlPlane> = Arc::clone(&world[0].plane);
    plane.process().clone().spawn(async move {
        sender.send(plane.barrier(1, soon())).unwrap();
    });
    let error = receiver.recv().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    leave(world);
}

#[test]
fn communicators_of_one_process_are_independent() {
    let _watchdog = watchdog();
    let first = world(3);
    let second = world(3);
    drop(first);
    let planes = planes(&second);
    ranks(3, |rank| planes[rank as usize].barrier(1, soon()).unwrap());
    leave(second);
}

#[test]
fn sixty_four_ranks_join_and_meet() {
    let _watchdog = watchdog();
    let start = Instant::now();
    let world = world(64);
    println!("64 ranks of one process joined in {:?}", start.elapsed());
    let planes = planes(&world);
    ranks(64, |rank| planes[rank as usize].barrier(1, soon()).unwrap());
    println!("and passed a barrier after {:?}", start.elapsed());
    leave(world);
}
