//! Every collective by every algorithm, with every type, operator, form, and odd sizes, on 1 to 9
//! ranks.

mod calls;
mod support;

use std::collections::HashSet;

use calls::{Call, DTYPES, FORMS, KINDS, check, reduces};
use comm_api::{Algorithm, DType, OperationKind, ReduceOp};
use support::{on_every_rank, on_every_transport};

const ALGORITHMS: [Algorithm; 3] = [Algorithm::OneShot, Algorithm::Ring, Algorithm::DoubleTree];

/// In elements; with steps of 1024 bytes the larger ones take several steps.
const COUNTS: [usize; 8] = [0, 1, 3, 17, 64, 259, 1021, 4099];

const STEP_BYTES: usize = 1024;

fn carries_out(algorithm: Algorithm, kind: OperationKind) -> bool {
    algorithm != Algorithm::DoubleTree
        || matches!(
            kind,
            OperationKind::AllReduce | OperationKind::Broadcast | OperationKind::Reduce
        )
}

/// The calls of one world: all collectives with all types; the other properties turn at speeds that
/// differ, so that over all worlds each value of one meets each value of every other.
fn calls(algorithm: Algorithm, ranks: u32) -> Vec<Call> {
    let mut calls = Vec::new();
    for (kind_index, kind) in KINDS.into_iter().enumerate() {
        if !carries_out(algorithm, kind) {
            continue;
        }
        for (dtype_index, dtype) in DTYPES.into_iter().enumerate() {
            let turn = kind_index + ranks as usize + algorithm as usize;
            calls.push(Call {
                kind,
                dtype,
                op: ReduceOp::ALL[(dtype_index + turn) % ReduceOp::ALL.len()],
                root: (dtype_index as u32 + ranks / 2) % ranks,
                count: COUNTS[(3 * dtype_index + turn) % COUNTS.len()],
                form: FORMS[(dtype_index + turn / 2) % FORMS.len()],
            });
        }
    }
    calls
}

fn cover(algorithm: Algorithm) {
    for ranks in 1..=9 {
        let comms = support::init_all_with(ranks, |builder| {
            builder
                .algorithms(vec![algorithm])
                .channels(1 + ranks % 3)
                .step_bytes(STEP_BYTES)
        })
        .unwrap();
        on_every_rank(comms, move |comm| {
            for call in calls(algorithm, ranks) {
                check(comm, &call);
            }
        });
    }
}

fn every_collective_is_right_in_one_shot() {
    cover(Algorithm::OneShot);
}

fn every_collective_is_right_around_a_ring() {
    cover(Algorithm::Ring);
}

fn reductions_and_broadcasts_are_right_on_double_trees() {
    cover(Algorithm::DoubleTree);
}

#[test]
fn the_cover_pairs_every_value_with_every_other() {
    let mut pairs = HashSet::new();
    let mut note = |names: &[String]| {
        for (index, a) in names.iter().enumerate() {
            for b in &names[index + 1..] {
                pairs.insert((a.clone(), b.clone()));
            }
        }
    };
    for algorithm in ALGORITHMS {
        for ranks in 1..=9 {
            for call in calls(algorithm, ranks) {
                let mut names = vec![
                    algorithm.to_string(),
                    format!("{ranks} ranks"),
                    call.kind.to_string(),
                    call.dtype.to_string(),
                    format!("{} elements", call.count),
                    format!("{:?}", call.form),
                ];
                if reduces(call.kind) {
                    names.push(call.op.to_string());
                }
                note(&names);
            }
        }
    }
    let algorithms = ALGORITHMS.map(|algorithm| algorithm.to_string());
    let ranks = [1, 2, 3, 4, 5, 6, 7, 8, 9].map(|ranks| format!("{ranks} ranks"));
    let kinds = KINDS.map(|kind| kind.to_string());
    let dtypes = DTYPES.map(|dtype: DType| dtype.to_string());
    let counts = COUNTS.map(|count| format!("{count} elements"));
    let forms = FORMS.map(|form| format!("{form:?}"));
    let ops = ReduceOp::ALL.map(|op| op.to_string());
    let values: [&[String]; 7] = [&algorithms, &ranks, &kinds, &dtypes, &counts, &forms, &ops];
    for (index, these) in values.iter().enumerate() {
        for those in &values[index + 1..] {
            for a in *these {
                for b in *those {
                    let tree = a == "double_tree" && KINDS.iter().any(|kind| kind.as_str() == b);
                    let never = ReduceOp::ALL.iter().any(|op| op.as_str() == b)
                        && KINDS
                            .iter()
                            .any(|kind| kind.as_str() == a && !reduces(*kind));
                    let pair = (a.clone(), b.clone());
                    assert!(
                        pairs.contains(&pair) || tree || never,
                        "{a} and {b} never meet"
                    );
                }
            }
        }
    }
}

fn large_blocks_are_right_by_default() {
    for ranks in [2, 3, 8] {
        let comms = support::init_all(ranks).unwrap();
        on_every_rank(comms, move |comm| {
            for (index, kind) in KINDS.into_iter().enumerate() {
                for count in [20_011, 100_003] {
                    check(
                        comm,
                        &Call {
                            kind,
                            dtype: DType::F32,
                            op: ReduceOp::Avg,
                            root: index as u32 % ranks,
                            count,
                            form: FORMS[(index + count) % FORMS.len()],
                        },
                    );
                }
            }
        });
    }
}

on_every_transport! {
    every_collective_is_right_in_one_shot,
    every_collective_is_right_around_a_ring,
    reductions_and_broadcasts_are_right_on_double_trees,
    large_blocks_are_right_by_default,
}
