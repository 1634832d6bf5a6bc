//! Communicators made from a communicator: split and shrunk ones, and what becomes of the old one.

mod support;

use comm_api::{Communicator, Error, ErrorKind, ReduceOp};
use support::{init_all_with, on_every_rank, on_every_transport};

fn init_all(ranks: u32) -> Vec<Communicator> {
    // The long collectives need more than one step.
    init_all_with(ranks, |builder| builder.step_bytes(4096)).unwrap()
}

/// The sum of all ranks' numbers, over several steps.
fn sum(comm: &Communicator, number: u32) -> u32 {
    let mut numbers = vec![number; 10_000];
    comm.all_reduce(&mut numbers, ReduceOp::Sum).unwrap();
    assert!(numbers.iter().all(|sum| *sum == numbers[0]));
    numbers[0]
}

fn ranks_of_one_color_reduce_among_themselves_in_the_order_of_their_keys() {
    let results = on_every_rank(init_all(5), |comm| {
        let rank = comm.rank();
        // The odd ones backwards.
        let key = if rank % 2 == 1 { -i64::from(rank) } else { 7 };
        let part = comm.split(Some(rank % 2), key).unwrap().unwrap();
        let sent = part.rank();
        (sent, part.world_size(), sum(&part, rank), sum(comm, rank))
    });
    let expected = [
        (0, 3, 6, 10),
        (1, 2, 4, 10),
        (1, 3, 6, 10),
        (0, 2, 4, 10),
        (2, 3, 6, 10),
    ];
    assert_eq!(results, expected);
}

fn a_rank_without_a_color_gets_no_communicator_and_is_not_waited_for() {
    let results = on_every_rank(init_all(3), |comm| {
        let color = (comm.rank() != 1).then_some(u32::MAX);
        let part = comm.split(color, 0).unwrap();
        part.map(|part| (part.rank(), sum(&part, 1)))
    });
    assert_eq!(results, [Some((0, 2)), None, Some((1, 2))]);
}

fn a_rank_may_be_alone_with_its_color() {
    let results = on_every_rank(init_all(2), |comm| {
        let part = comm.split(Some(comm.rank()), 0).unwrap().unwrap();
        (part.rank(), part.world_size(), sum(&part, comm.rank()))
    });
    assert_eq!(results, [(0, 1, 0), (0, 1, 1)]);
}

fn parts_are_split_again_and_outlive_what_they_were_made_from() {
    let results = on_every_rank(init_all(4), |comm| {
        let half = comm.split(Some(comm.rank() / 2), 0).unwrap().unwrap();
        let same = half
            .split(Some(0), -i64::from(half.rank()))
            .unwrap()
            .unwrap();
        drop(half);
        let own = [comm.rank()];
        let other = 1 - same.rank();
        let mut received = [u32::MAX];
        if same.rank() == 0 {
            same.send(&own, other).unwrap();
            same.recv(&mut received, other).unwrap();
        } else {
            same.recv(&mut received, other).unwrap();
            same.send(&own, other).unwrap();
        }
        received[0]
    });
    assert_eq!(results, [1, 0, 3, 2]);
}

fn several_splits_pair_up_in_their_order() {
    let results = on_every_rank(init_all(4), |comm| {
        let (row, column) = (comm.rank() / 2, comm.rank() % 2);
        let rows = comm.split(Some(row), 0).unwrap().unwrap();
        let columns = comm.split(Some(column), 0).unwrap().unwrap();
        (sum(&rows, comm.rank()), sum(&columns, comm.rank()))
    });
    assert_eq!(results, [(1, 2), (1, 4), (5, 2), (5, 4)]);
}

fn a_failure_of_a_part_is_no_failure_of_the_others() {
    let results = on_every_rank(init_all(4), |comm| {
        let part = comm.split(Some(comm.rank() % 2), 0).unwrap().unwrap();
        comm.barrier().unwrap();
        if comm.rank() == 0 {
            part.abort();
        }
        let own = if comm.rank() % 2 == 0 {
            part.barrier().unwrap_err();
            0
        } else {
            sum(&part, 1)
        };
        (own, sum(comm, 1))
    });
    assert_eq!(results, [(0, 4), (2, 4), (0, 4), (2, 4)]);
}

/// Reduces until the communicator fails.
fn until_it_fails(comm: &Communicator) -> Error {
    loop {
        if let Err(error) = comm.all_reduce(&mut [1_u32; 4], ReduceOp::Sum) {
            return error;
        }
    }
}

fn a_failed_communicator_is_not_split_but_shrunk() {
    let results = on_every_rank(init_all(3), |comm| {
        if comm.rank() == 1 {
            comm.abort();
            return None;
        }
        until_it_fails(comm);
        let error = comm.split(Some(0), 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
        assert_eq!(comm.failed_rank(), None);
        let rest = comm.shrink(&[1]).unwrap();
        Some((rest.rank(), rest.world_size(), sum(&rest, comm.rank())))
    });
    assert_eq!(results, [Some((0, 2, 2)), None, Some((1, 2, 2))]);
}

fn a_rank_that_panics_is_named_and_the_others_go_on_without_it() {
    let mut ranks = init_all(4);
    let unlucky = ranks.remove(2);
    let panicked = std::thread::spawn(move || {
        let own = unlucky;
        own.all_reduce(&mut [1_u32; 4], ReduceOp::Sum).unwrap();
        panic!("on purpose");
    });
    let results = on_every_rank(ranks, |comm| {
        let error = until_it_fails(comm);
        assert_eq!(error.kind(), ErrorKind::PeerDied, "{error}");
        let failed = comm.failed_rank().unwrap();
        let rest = comm.shrink(&[failed]).unwrap();
        let first = sum(&rest, comm.rank());
        // Again, from one that works, which then goes on.
        let fewer = (rest.rank() > 0).then(|| rest.shrink(&[0]).unwrap());
        let second = fewer.map(|fewer| sum(&fewer, comm.rank()));
        (failed, rest.rank(), first, second, sum(&rest, 1))
    });
    assert_eq!(
        results,
        [
            (2, 0, 4, None, 3),
            (2, 1, 4, Some(4), 3),
            (2, 2, 4, Some(4), 3)
        ]
    );
    panicked.join().unwrap_err();
}

fn a_rank_that_dies_before_it_has_come_is_not_waited_for() {
    let mut ranks = init_all(3);
    let unlucky = ranks.remove(1);
    let panicked = std::thread::spawn(move || {
        let own = unlucky;
        own.barrier().unwrap();
        panic!("on purpose");
    });
    let errors = on_every_rank(ranks, |comm| {
        comm.barrier().ok();
        comm.split(Some(0), 0).unwrap_err()
    });
    for error in errors {
        assert!(error.to_string().contains("rank 1 panicked"), "{error}");
    }
    panicked.join().unwrap_err();
}

fn ranks_that_exclude_others_are_told_of_it() {
    let results = on_every_rank(init_all(4), |comm| match comm.rank() {
        rank @ (0 | 1) => Some(comm.shrink(&[rank + 2, 3]).unwrap_err()),
        _ => None,
    });
    for error in results.into_iter().flatten() {
        assert_eq!(error.kind(), ErrorKind::InvalidConfiguration, "{error}");
        let text = error.to_string();
        assert!(
            text.contains("excluded ranks") && text.contains("'2,3'"),
            "{text}"
        );
    }
}

fn shrinking_can_be_tried_again_at_once() {
    on_every_rank(init_all(4), |comm| {
        let rank = comm.rank();
        if rank > 1 {
            return;
        }
        comm.shrink(&[rank + 2, 3]).unwrap_err();
        // Whoever is faster than rank 0 may meet the table of the first try once more.
        let rest = loop {
            if let Ok(rest) = comm.shrink(&[2, 3]) {
                break rest;
            }
        };
        assert_eq!(sum(&rest, 1), 2);
    });
}

fn a_part_may_be_dropped_as_soon_as_it_is_made() {
    on_every_rank(init_all(3), |comm| {
        for _ in 0..100 {
            drop(comm.split(Some(0), 0).unwrap());
        }
    });
}

fn a_split_that_not_all_ranks_call_ends_the_communicator() {
    let limit = std::time::Duration::from_secs(8);
    let ranks = init_all_with(3, |builder| builder.init_timeout(limit)).unwrap();
    let errors = on_every_rank(ranks, |comm| {
        if comm.rank() == 2 {
            return until_it_fails(comm);
        }
        comm.split(Some(0), 0).unwrap_err()
    });
    for error in errors {
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{text}");
        assert!(
            text.contains("split #0") && text.contains("every rank has to call"),
            "{text}"
        );
    }
}

fn excluding_makes_sense_or_is_refused_at_once() {
    on_every_rank(init_all(2), |comm| {
        for excluded in [&[2][..], &[comm.rank()]] {
            let error = comm.shrink(excluded).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        }
        let same = comm.shrink(&[]).unwrap();
        assert_eq!((same.rank(), same.world_size()), (comm.rank(), 2));
        assert_eq!(sum(comm, 1) + sum(&same, 1), 4);
    });
}

on_every_transport!(
    ranks_of_one_color_reduce_among_themselves_in_the_order_of_their_keys,
    a_rank_without_a_color_gets_no_communicator_and_is_not_waited_for,
    a_rank_may_be_alone_with_its_color,
    parts_are_split_again_and_outlive_what_they_were_made_from,
    several_splits_pair_up_in_their_order,
    a_failure_of_a_part_is_no_failure_of_the_others,
    a_failed_communicator_is_not_split_but_shrunk,
    a_rank_that_panics_is_named_and_the_others_go_on_without_it,
    a_rank_that_dies_before_it_has_come_is_not_waited_for,
    ranks_that_exclude_others_are_told_of_it,
    shrinking_can_be_tried_again_at_once,
    a_split_that_not_all_ranks_call_ends_the_communicator,
    a_part_may_be_dropped_as_soon_as_it_is_made,
    excluding_makes_sense_or_is_refused_at_once,
);
