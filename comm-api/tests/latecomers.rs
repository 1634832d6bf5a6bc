//! Small collectives in which ranks come late: what begins on the caller's stack goes on as an ordinary
//! operation, from where it stands.

mod calls;
mod support;

use std::thread;
use std::time::Duration;

use calls::{Call, DTYPES, FORMS, KINDS, check};
use comm_api::ReduceOp;
use support::{on_every_rank, on_every_transport};

/// Longer than a rank spins, and than its first sleep.
const LATE: Duration = Duration::from_millis(30);
/// More calls than an edge has slots.
const AHEAD: usize = 20;
/// Elements: in the line, in a slot that is copied by a few moves or not, and in one of some KiB.
const COUNTS: [usize; 3] = [2, 40, 1000];

fn a_late_rank_finds_every_operation_where_it_stands() {
    for ranks in [2, 3] {
        for late in 0..ranks {
            let comms = support::init_all(ranks).unwrap();
            on_every_rank(comms, move |comm| {
                for (turn, kind) in KINDS.into_iter().enumerate() {
                    let call = |round: usize| Call {
                        kind,
                        dtype: DTYPES[(turn + round) % DTYPES.len()],
                        op: ReduceOp::Sum,
                        root: 0,
                        count: COUNTS[round % COUNTS.len()],
                        form: FORMS[(turn + round) % FORMS.len()],
                    };
                    // Edges and plans first, so that the rest begins at once.
                    (0..AHEAD).for_each(|round| check(comm, &call(round)));
                    if comm.rank() == late {
                        thread::sleep(LATE);
                    }
                    (0..AHEAD).for_each(|round| check(comm, &call(round)));
                }
            });
        }
    }
}

on_every_transport! {
    a_late_rank_finds_every_operation_where_it_stands,
}
