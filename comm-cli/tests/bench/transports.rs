//! Every transport that a benchmark can be told to use.

use std::collections::BTreeSet;

use comm_bench::Operation;

use crate::command::bench_with_rows;
#[cfg(feature = "uds")]
use crate::command::{commctl, rows};

/// Every operation over one transport, checked.
fn everything_over(transport: &str, shown_as: &str) {
    let (ended, rows) = bench_with_rows(&format!(
        "--transport {transport} --op all --ranks 2 --max-bytes 1M --factor 512 --time 0.002"
    ));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let operations: BTreeSet<_> = rows.iter().map(|row| row.op.to_string()).collect();
    assert_eq!(operations.len(), Operation::ALL.len(), "{operations:?}");
    for row in &rows {
        assert_eq!(
            (row.transport.as_str(), row.ranks, row.wrong),
            (shown_as, 2, Some(0)),
            "{row:?}"
        );
    }
    let edges = format!("# edges: {shown_as} ");
    assert_eq!(
        ended.stdout.matches(&edges).count(),
        Operation::ALL.len(),
        "{ended:?}"
    );
}

#[test]
fn p2p_carries_every_operation_between_threads() {
    everything_over("p2p", "p2p");
}

#[test]
fn shm_carries_every_operation() {
    everything_over("shm", "shm");
}

#[test]
fn net_carries_every_operation() {
    everything_over("net", "net");
}

#[cfg(feature = "uds")]
#[test]
fn the_example_carries_every_operation() {
    everything_over("uds", "uds");
}

#[test]
fn auto_is_the_first_that_connects_processes() {
    everything_over("auto", "shm");
}

#[test]
fn more_ranks_than_cpus_are_threads_too_over_p2p() {
    let (ended, rows) = bench_with_rows(
        "--transport p2p --op all_reduce,init --ranks 5 --max-bytes 64K --factor 512 --time 0.001",
    );
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        rows.iter()
            .all(|row| (row.ranks, row.transport.as_str()) == (5, "p2p")),
        "{rows:?}"
    );
}

#[test]
fn without_an_operation_p2p_shm_and_net_are_shown() {
    let (ended, rows) = bench_with_rows("--max-bytes 8 --time 0.001");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for transport in ["p2p", "shm", "net"] {
        let operations: BTreeSet<_> = rows
            .iter()
            .filter(|row| row.transport == transport)
            .map(|row| row.op.to_string())
            .collect();
        assert_eq!(operations.len(), Operation::ALL.len(), "{transport}");
    }
    assert!(rows.iter().any(|row| row.ranks == 4));
    assert_eq!(ended.stdout.matches("# comm 0.").count(), 1, "{ended:?}");
}

#[cfg(feature = "uds")]
#[test]
fn every_algorithm_runs_over_the_example_with_odd_sizes_and_numbers_of_ranks() {
    let directory = tempfile::tempdir().unwrap();
    for (algorithm, ranks, operations) in [
        ("one_shot", 3, "all"),
        ("ring", 5, "all"),
        ("double_tree", 5, "all_reduce,broadcast,reduce"),
    ] {
        let path = directory.path().join(algorithm);
        let arguments = format!(
            "bench --transport uds --op {operations} --ranks {ranks} --dtype f16 \
             --min-bytes 12 --max-bytes 400K --factor 183 --time 0.0001 --json {}",
            path.display()
        );
        let arguments: Vec<_> = arguments.split_whitespace().collect();
        let ended = commctl(&arguments, &[("COMM_ALGO", algorithm)]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let rows = rows(&path);
        assert!(!rows.is_empty());
        for row in rows {
            assert_eq!(
                (row.transport.as_str(), row.wrong),
                ("uds", Some(0)),
                "{row:?}"
            );
        }
    }
}
