//! Random sequences of collectives, the same on all ranks, on random configurations.

mod calls;
mod support;

use calls::{Call, DTYPES, FORMS, KINDS, check};
use comm_api::ReduceOp;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRng, TestRunner};
use support::{on_every_rank, on_every_transport};

/// Bounds the time; a failure is not shrunk further than that is worth.
const CASES: u32 = 64;

#[derive(Clone, Debug)]
struct Job {
    ranks: u32,
    channels: u32,
    step_bytes: usize,
    calls: Vec<Call>,
}

fn call(ranks: u32) -> impl Strategy<Value = Call> {
    let counts = prop_oneof![0..20_usize, 20..3000_usize];
    (
        select(&KINDS[..]),
        select(&DTYPES[..]),
        select(&ReduceOp::ALL[..]),
        0..ranks,
        counts,
        select(&FORMS[..]),
    )
        .prop_map(|(kind, dtype, op, root, count, form)| Call {
            kind,
            dtype,
            op,
            root,
            count,
            form,
        })
}

fn job() -> impl Strategy<Value = Job> {
    (1..=6_u32, 1..=3_u32, select(&[256_usize, 1024, 65_536][..])).prop_flat_map(
        |(ranks, channels, step_bytes)| {
            proptest::collection::vec(call(ranks), 1..40).prop_map(move |calls| Job {
                ranks,
                channels,
                step_bytes,
                calls,
            })
        },
    )
}

fn any_sequence_of_collectives_gives_each_its_result() {
    let config = Config {
        cases: CASES,
        max_shrink_iters: 8,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(config.rng_algorithm);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let run = |job: Job| {
        let comms = support::init_all_with(job.ranks, |builder| {
            builder.channels(job.channels).step_bytes(job.step_bytes)
        })
        .unwrap();
        on_every_rank(comms, move |comm| {
            job.calls.iter().for_each(|call| check(comm, call));
        });
        Ok(())
    };
    if let Err(error) = runner.run(&job(), run) {
        panic!("{error}");
    }
}

on_every_transport! {
    any_sequence_of_collectives_gives_each_its_result,
}
