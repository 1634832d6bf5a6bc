//! How workers are started, joined, and what their failure means.

use crate::command::{bench_with_rows, commctl, rows};

const COMMCTL: &str = env!("CARGO_BIN_EXE_commctl");

#[test]
fn several_numbers_of_ranks_are_several_jobs_in_one_report() {
    let (ended, rows) = bench_with_rows("--op all_reduce --ranks 1,3 --max-bytes 8 --time 0.001");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let ranks: Vec<_> = rows.iter().map(|row| row.ranks).collect();
    assert_eq!(ranks, [1, 1, 3, 3]);
    assert_eq!(ended.stdout.matches("# comm 0.").count(), 1, "{ended:?}");
    assert!(ended.stdout.contains("# all_reduce, 3 ranks"), "{ended:?}");
}

#[test]
fn a_worker_that_fails_is_exit_code_1() {
    let arguments = ["bench", "--op", "pingpong", "--max-bytes", "8"];
    let ended = commctl(&arguments, &[("COMM_STEP_BYTES", "7")]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("commctl launch: rank "), "{ended:?}");
}

#[test]
fn ranks_that_no_transport_connects_are_named() {
    let arguments: Vec<_> = "bench --op pingpong --transport shm --max-bytes 8"
        .split(' ')
        .collect();
    let ended = commctl(&arguments, &[("COMM_SHM_DISABLE", "1")]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.stderr.contains("no transport connects rank 0"),
        "{ended:?}"
    );
}

#[test]
fn inside_a_launched_job_it_is_one_of_the_ranks() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rows.json");
    let bench = "bench --op all_reduce,init --max-bytes 8 --time 0.001 --json";
    let arguments: Vec<_> = ["launch", "-n", "3", "--", COMMCTL]
        .into_iter()
        .chain(bench.split(' '))
        .chain([path.to_str().unwrap()])
        .collect();
    let ended = commctl(&arguments, &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.stdout.lines().all(|line| line.starts_with("[0] ")),
        "{ended:?}"
    );
    assert!(ended.stdout.contains("# all_reduce, 3 ranks"), "{ended:?}");
    assert!(
        rows(&path)
            .iter()
            .all(|row| row.ranks == 3 && row.wrong == Some(0))
    );
}

#[test]
fn inside_a_launched_job_other_ranks_cannot_be_asked_for() {
    let arguments = ["launch", "-n", "2", "--", COMMCTL, "bench", "--ranks", "4"];
    let ended = commctl(&arguments, &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("leave out --ranks"), "{ended:?}");
}
